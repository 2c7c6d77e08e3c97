"""PostgreSQL's own log: one file that it appends to, bounded by moving its content aside.

It writes straight to the file, so that its last words are there even when thence is dead.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

LIMIT_BYTES = 4 * 1024 * 1024
TAIL_BYTES = 4096


class LogFile:
    """The current file and the one before it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def appending(self) -> Iterator[IO[bytes]]:
        """The file for a child to inherit."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with os.fdopen(os.open(self._path, flags, 0o600), "ab") as file:
            yield file

    def trim(self) -> None:
        """Move the content aside when there is too much; the writer keeps its file, which becomes empty."""
        if self._path.stat().st_size > LIMIT_BYTES:
            shutil.copyfile(self._path, self._path.with_suffix(".log.1"))
            os.truncate(self._path, 0)

    def size(self) -> int:
        """How long it is now."""
        return self._path.stat().st_size if self._path.exists() else 0

    def since(self, offset: int, lines: int = 10) -> str:
        """The last lines after an offset, in one line."""
        with self._path.open("rb") as file:
            file.seek(max(offset, self.size() - TAIL_BYTES))
            said = file.read().decode(errors="replace").splitlines()
        return " | ".join(said[-lines:])
