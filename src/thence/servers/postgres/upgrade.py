"""A data directory of an older major version, copied into one of the newest by the wheel's own pg_upgrade.

1. Recover the old cluster with its own version, if it was not shut down.
2. Initialise `data.making`, let pg_upgrade copy into it and sync it; rename it to `data.upgraded`.
3. Rename `data` to `data.16`, then `data.upgraded` to `data`.

A crash before 3 leaves the old cluster as it was, and the next start begins again. Between the two renames of 3
there is no `data`: the next start does the second one. The old cluster stays until the operator removes it.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from thence.disk import durable
from thence.servers.postgres import cluster
from thence.servers.postgres.account import Account
from thence.servers.postgres.cluster import Tools
from thence.servers.postgres.home import Home, discard, disk_full

logger = logging.getLogger(__name__)

SPARE_BYTES = 100 * 1024 * 1024


def resume(home: Home) -> None:
    """Clear away or finish what a crash left."""
    home.discard_unfinished()
    if home.upgraded.exists() and not home.data.exists():
        durable.rename(home.upgraded, home.data)
    # Beside the old cluster it may be out of date: that one may have been used again by an older thence.
    discard(home.upgraded)


def upgrade(old: Tools, new: Tools) -> None:
    """Bring the cluster of a home to the version of `new`."""
    home = new.home
    logger.info("upgrading PostgreSQL", extra=_about("postgres_upgrade_started", old, new))
    _need_space(home)
    _settle(old)
    cluster.initialise(new, home.making, checksums=_has_checksums(old))
    _copy(old, new)
    durable.rename(home.making, home.upgraded)
    kept = home.kept(old.binaries.major)
    durable.rename(home.data, kept)
    durable.rename(home.upgraded, home.data)
    discard(home.work)
    logger.info("upgraded PostgreSQL", extra={**_about("postgres_upgraded", old, new), "kept": str(kept)})


def _copy(old: Tools, new: Tools) -> None:
    home = new.home
    home.work.mkdir(mode=0o700)
    new.account.own(home.work)
    with _socket_directory(new.account) as sockets:
        home.sockets.symlink_to(sockets)
        # Nobody else can reach a socket in this directory, so the tools need no password.
        access = sockets / "hba"
        access.write_text("local all postgres trust\n")
        access.chmod(0o644)
        new.run(
            "pg_upgrade",
            "--old-bindir", str(old.binaries.directory), "--new-bindir", str(new.binaries.directory),
            "--old-datadir", str(home.data), "--new-datadir", str(home.making),
            "--username=postgres", "--socketdir", str(sockets), "--copy",
            "--old-options", f"-c hba_file={access}", "--new-options", f"-c hba_file={access}",
            cwd=home.work,
        )  # fmt: skip


@contextmanager
def _socket_directory(account: Account) -> Iterator[Path]:
    # A path of a Unix socket may have no more than about 100 characters.
    directory = Path(tempfile.mkdtemp(prefix="thence-", dir="/tmp"))
    try:
        account.own(directory)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _settle(old: Tools) -> None:
    state = cluster.control(old, old.home.data).get("Database cluster state")
    if state != "shut down":
        old.execute(old.home.data, "")


def _has_checksums(old: Tools) -> bool:
    return cluster.control(old, old.home.data).get("Data page checksum version", "0") != "0"


def _need_space(home: Home) -> None:
    needed = SPARE_BYTES + sum(_bytes(directory, names) for directory, _, names in os.walk(home.data))
    free = shutil.disk_usage(home.root).free
    if free < needed:
        raise disk_full(home, f"an upgrade copies the data and needs {needed} bytes, {free} are free")


def _bytes(directory: str, names: list[str]) -> int:
    return sum(Path(directory, name).lstat().st_size for name in names)


def _about(action: str, old: Tools, new: Tools) -> dict[str, str]:
    return {
        "action": action,
        "from_version": old.binaries.version,
        "to_version": new.binaries.version,
        "directory": str(new.home.root),
    }
