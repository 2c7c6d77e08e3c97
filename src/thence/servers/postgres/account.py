"""The user that PostgreSQL runs as, because it refuses to run as root.

An ordinary user runs it as itself. Root runs it in a user namespace, where the files stay root's and their paths
need not be open to anybody; where the kernel forbids that, as `nobody`, who must be able to reach the paths.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import msgspec

from thence.core.errors import ConfigError

NOBODY = 65534
NAMESPACE = ("--user", "--map-user=1000", "--map-group=1000", "--")


class Account(msgspec.Struct, frozen=True):
    """How a program is started so that it is not root: behind a prefix, or with another user id."""

    prefix: tuple[str, ...] = ()
    uid: int | None = None

    def spawn(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.DEVNULL,
    ) -> subprocess.Popen[bytes]:
        """Start a program in a session of its own, so that Ctrl-C in the terminal does not reach it."""
        return subprocess.Popen(
            [*self.prefix, *arguments],
            cwd=cwd,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=self.uid,
            group=self.uid,
            extra_groups=None if self.uid is None else [],
        )

    def run(self, arguments: Sequence[str], *, cwd: Path, stdin: str = "") -> tuple[int, str]:
        """Run a program to its end: its exit code and all that it said."""
        with self.spawn(arguments, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            try:
                said, _ = child.communicate(stdin.encode())
            except BaseException:
                child.kill()
                raise
        return child.returncode, said.decode(errors="replace")

    def own(self, path: Path) -> None:
        """Give a directory to this user. Only root can and need do that."""
        if os.geteuid() == 0:
            os.chown(path, self.uid or 0, self.uid or 0)

    def own_tree(self, path: Path) -> None:
        """Give a directory and all in it to this user, where they are not its own already."""
        if os.geteuid() == 0 and path.stat().st_uid != (self.uid or 0):
            for entry in (path, *path.rglob("*")):
                os.chown(entry, self.uid or 0, self.uid or 0, follow_symlinks=False)


def choose(program: str, root: Path) -> Account:
    """The account for a program and a directory that it is to work in."""
    if os.geteuid() != 0:
        return Account()
    _refuse_foreign(root)
    for account in _candidates():
        account.own(root)
        if _can(account, program, "--version") and _can(account, "/bin/sh", "-c", 'cd -- "$0"', str(root)):
            return account
    raise ConfigError(
        "postgres.root",
        "PostgreSQL refuses to run as root, user namespaces are not allowed here, "
        f"and user {NOBODY} cannot reach {program} and {root}.",
        advice="Run thence as an ordinary user, or allow user namespaces, or install it and put its directory "
        "where every user may pass.",
    )


def _refuse_foreign(root: Path) -> None:
    uid = root.stat().st_uid
    if uid not in {0, NOBODY}:
        raise ConfigError(
            "postgres.directory_owner",
            f"{root} belongs to user {uid}, and this process is root.",
            advice=f"Run thence as user {uid}, or give the directory to root: chown -R root: {root}",
        )


def _candidates() -> tuple[Account, ...]:
    unshare = shutil.which("unshare")
    namespace = (Account((unshare, *NAMESPACE)),) if unshare else ()
    return (*namespace, Account(uid=NOBODY))


def _can(account: Account, *arguments: str) -> bool:
    try:
        return account.run(arguments, cwd=Path("/"))[0] == 0
    except (OSError, subprocess.SubprocessError):
        return False
