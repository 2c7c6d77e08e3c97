"""The journal on a real disk passes the contract of its port."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from thence.core.clock import Clock
from thence.core.event import Event
from thence.core.ports import Journal
from thence.journal import partition
from thence.journal.limits import Limits
from thence.journal.log import FileJournal
from thence.testing.contracts.journal import JournalContract


class Death(BaseException):
    """The process is gone."""


class TestFileJournal(JournalContract):
    def open(self, directory: Path, clock: Clock) -> Journal:
        return FileJournal(directory, clock=clock)

    def open_small(
        self, directory: Path, clock: Clock, *, when_full: Literal["refuse", "expire_oldest"]
    ) -> Journal:
        return FileJournal(
            directory, Limits(max_bytes=16 << 10, partition_bytes=4 << 10, when_full=when_full), clock=clock
        )

    def crash(self, opened: Journal) -> None:
        # It keeps nothing in memory that closing would write; closing only lets go of the files.
        opened.close()

    def append_and_die(self, opened: Journal, batch: Sequence[Event], moment: int) -> None:
        whole = partition._write_all

        def cut(file: int, parts: list[bytes], offset: int) -> None:
            content = b"".join(parts)
            os.pwrite(file, content[: len(content) * moment // len(batch)], offset)
            raise Death

        partition._write_all = cut
        try:
            opened.append(batch)
        except Death:
            self.crash(opened)
        finally:
            partition._write_all = whole
