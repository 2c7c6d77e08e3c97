"""Appends failed events to a file of JSON lines, synced before they count as handled.

When a file is full it is renamed to `.1`, the one before to `.2` and so on; the oldest beyond the bound is deleted,
and the log says so. A line that a crash or a full disk cut off is taken out again: nobody was told that it is there.
Somebody else may move the file away; the next line begins a new one.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from thence.collect.handlers.readable import line_of
from thence.core.errors import Unavailable
from thence.core.ports import DeadLetter
from thence.disk import durable

_log = logging.getLogger(__name__)
_CHUNK_BYTES = 1 << 16


class FileHandler:
    """The handler `file`."""

    name = "file"

    def __init__(self, path: Path, *, max_bytes: int = 64 << 20, max_files: int = 10) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._file = -1
        self._size_bytes = 0
        # Whatever is wrong with the place is said at the start, and again when it matters.
        with _translating(path):
            self._open()

    def handle(self, letters: Sequence[DeadLetter]) -> None:
        """See FailedEventHandler."""
        content = b"".join(map(line_of, letters))
        with _translating(self.path):
            self._get_ready(len(content))
            try:
                _write_all(self._file, content, self._size_bytes)
                os.fsync(self._file)
            except OSError:
                self._take_back()
                raise
        self._size_bytes += len(content)

    def close(self) -> None:
        """Let go of the file. Closing twice does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _get_ready(self, size_bytes: int) -> None:
        if self._file < 0 or not _is_at(self._file, self.path):
            self._open()
        if self._size_bytes and self._size_bytes + size_bytes > self._max_bytes:
            self._rotate()
            self._open()

    def _open(self) -> None:
        self.close()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        durable.sync_directory(self.path.parent)
        self._size_bytes = _end_of_lines(self._file)
        os.ftruncate(self._file, self._size_bytes)

    def _take_back(self) -> None:
        # If even that fails, the next start does it: a line without an end is nobody's.
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, self._size_bytes)

    def _rotate(self) -> None:
        older = [
            self.path,
            *(self.path.with_name(f"{self.path.name}.{n}") for n in range(1, self._max_files)),
        ]
        if older[-1].exists():
            about = {"action": "failed_file_expired", "file": older[-1].name}
            _log.warning("the oldest file of failed events goes", extra=about)
        if self._max_files == 1:
            self.path.unlink()
        for newer, old in reversed(list(itertools.pairwise(older))):
            if newer.exists():
                newer.replace(old)


def _end_of_lines(file: int) -> int:
    """The offset after the last line that is whole."""
    end = os.fstat(file).st_size
    while end > 0:
        start = max(end - _CHUNK_BYTES, 0)
        found = os.pread(file, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _is_at(file: int, path: Path) -> bool:
    try:
        there, here = path.stat(), os.fstat(file)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def _write_all(file: int, content: bytes, offset: int) -> None:
    rest = memoryview(content)
    while rest:
        written = os.pwrite(file, rest, offset)
        offset += written
        rest = rest[written:]


@contextlib.contextmanager
def _translating(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise Unavailable(
            "failed.handler_file",
            f"failed events cannot be written to {path}: {error.strerror}",
            advice="Free some space." if full else "Look at the disk and the rights.",
        ) from error
