"""The SQLite file itself: opened, checked, put aside when it is damaged, and its errors in our words.

WAL with `synchronous=FULL`: a commit that returned is on disk, and other processes read meanwhile. A file that SQLite
cannot read goes to `damaged/` with its log beside it, and a new one begins: what fails next matters more.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from thence.core.clock import Clock
from thence.core.errors import ConfigError, ThenceError, Unavailable
from thence.disk import durable
from thence.journal.letters import queries

FORMAT = 1
_BUSY_SECONDS = 10
_WAL_LIMIT_BYTES = 4 << 20
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_log = logging.getLogger(__name__)


def create(path: Path) -> sqlite3.Connection:
    """Open the file; make it when it is not there."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        durable.sync_directory(path.parent)
    return connect(path)


def connect(path: Path) -> sqlite3.Connection:
    """Open a file that is there, and see to it that it is ready."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        _prepare(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def check(connection: sqlite3.Connection) -> None:
    """Read through the whole file; raises what SQLite raises for a damaged one."""
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        damaged = sqlite3.DatabaseError(found)
        damaged.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise damaged


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file is to blame."""
    return _code(error) in _DAMAGE


def put_aside(path: Path, clock: Clock) -> Path:
    """Move a damaged file out of the way, with its log."""
    damaged = path.parent / "damaged"
    damaged.mkdir(mode=0o700, exist_ok=True)
    target = damaged / f"{path.stem}-{clock.now():%Y%m%dT%H%M%S%f}{path.suffix}"
    for suffix in ("", "-wal"):
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            beside.replace(target.with_name(target.name + suffix))
    path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
    durable.sync_directory(damaged)
    durable.sync_directory(path.parent)
    about = {"action": "failed_store_damaged", "file": str(target)}
    _log.error("put a damaged file of failed events aside, a new one begins", extra=about)
    return target


@contextlib.contextmanager
def translating(path: Path) -> Iterator[None]:
    """What SQLite and the disk say, in our words."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translated(error, path) from error
    except OSError as error:
        raise _of_the_disk(path, error.strerror or str(error)) from error


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(f"PRAGMA journal_size_limit={_WAL_LIMIT_BYTES:d}")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > FORMAT:
        raise ConfigError(
            "failed.newer",
            f"{path} was written by a newer thence (format {version}; this one knows {FORMAT})",
            advice="Use that version, or move the file away.",
        )
    if version == FORMAT:
        return
    # Lineage events have a few kilobytes: in the usual pages of 4 KiB they would leave a third of each empty.
    connection.execute("PRAGMA page_size=8192")
    connection.execute("PRAGMA auto_vacuum=FULL")
    connection.execute("PRAGMA journal_mode=WAL").fetchone()
    connection.executescript(f"BEGIN IMMEDIATE; {queries.schema()}; PRAGMA user_version={FORMAT:d}; COMMIT;")


def _code(error: sqlite3.Error) -> int:
    # The low byte; the rest says more than we need.
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _translated(error: sqlite3.Error, path: Path) -> ThenceError:
    code = _code(error)
    if code == sqlite3.SQLITE_FULL:
        return Unavailable(
            "failed.disk_full",
            f"no space left for the failed events in {path}",
            advice="Free some space, or throw old ones away: thence failed purge.",
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Unavailable(
            "failed.busy",
            f"another process has been writing into {path} for more than {_BUSY_SECONDS} s",
            advice="Try again when that command has ended.",
        )
    if code in _DAMAGE:
        return Unavailable(
            "failed.damaged",
            f"{path} is damaged: {error}",
            advice="Start the collector again: it puts the file aside and begins a new one.",
        )
    return _of_the_disk(path, str(error))


def _of_the_disk(path: Path, reason: str) -> Unavailable:
    return Unavailable(
        "failed.disk",
        f"the disk refuses {path}: {reason}",
        advice="Look at the disk and the rights; what was kept before is safe.",
    )
