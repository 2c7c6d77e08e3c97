"""Where everything of one server lies: the directory, file by file.

`data` is the cluster. `data.making` is one that is being initialised or upgraded and is worthless after a crash;
`data.upgraded` is complete and waits for its last rename; `data.16` is what an upgrade kept.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import msgspec

from thence.core.errors import ConfigError, ThenceError, Unavailable

OWN_SETTINGS = """# Your own settings for this PostgreSQL, read after all others at its next start, such as:
# shared_buffers = 256MB
"""


class Home(msgspec.Struct, frozen=True):
    """The directory of one server."""

    root: Path

    @property
    def data(self) -> Path:
        """The cluster."""
        return self.root / "data"

    @property
    def making(self) -> Path:
        """A cluster that is not finished."""
        return self.root / "data.making"

    @property
    def upgraded(self) -> Path:
        """A finished upgrade that has not taken the place of the old cluster yet."""
        return self.root / "data.upgraded"

    @property
    def work(self) -> Path:
        """Where pg_upgrade runs and leaves its scripts."""
        return self.root / "upgrade.work"

    @property
    def sockets(self) -> Path:
        """A link to where pg_upgrade has its sockets: outside, because their paths have to be short."""
        return self.work / "sockets"

    @property
    def log(self) -> Path:
        """What PostgreSQL says."""
        return self.root / "log" / "postgres.log"

    @property
    def credentials(self) -> Path:
        """The passwords."""
        return self.root / "credentials.json"

    @property
    def port(self) -> Path:
        """The port of the last time."""
        return self.root / "port"

    @property
    def settings(self) -> Path:
        """The operator's own settings for PostgreSQL."""
        return self.root / "postgresql.conf"

    def kept(self, major: str) -> Path:
        """A free name for the cluster of an older version."""
        names = [f"data.{major}", *(f"data.{major}-{number}" for number in range(2, 1000))]
        return next(path for path in map(self.root.joinpath, names) if not path.exists())

    def make(self) -> None:
        """Create the directories, closed to others."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o700)
        self.log.parent.mkdir(mode=0o700, exist_ok=True)
        if not self.settings.exists():
            self.settings.write_text(OWN_SETTINGS)
            self.settings.chmod(0o644)

    def discard_unfinished(self) -> None:
        """Remove what an initialisation or an upgrade that did not end has left."""
        if self.sockets.is_symlink():
            discard(self.sockets.readlink())
        discard(self.making)
        discard(self.work)


def discard(path: Path) -> None:
    """Remove a directory tree that nobody needs, if it is there."""
    if path.exists():
        shutil.rmtree(path)


def unusable(home: Home, error: OSError) -> ThenceError:
    """What an error of the file system means to the operator."""
    reason = f"{error.strerror or error}: {error.filename or home.root}"
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return disk_full(home, reason)
    return ConfigError(
        "postgres.directory",
        f"The server's directory {home.root} cannot be used: {reason}",
        advice="Name a directory on a local disk that this user may write, or correct its owner and mode.",
    )


def disk_full(home: Home, reason: str) -> ThenceError:
    """No room for what was to be done; nothing is left of it."""
    return Unavailable(
        "postgres.disk_full",
        f"No space for PostgreSQL in {home.root}: {reason}",
        advice="Free some space (an empty server takes about 100 MB) and start again.",
    )
