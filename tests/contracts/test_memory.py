"""The implementations in memory pass the suites that all others pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from thence.core.clock import Clock
from thence.core.event import Event
from thence.core.ports import (
    ArrowStream,
    Backend,
    DeadLetter,
    DeadLetters,
    Journal,
    Load,
    Lock,
    OffsetLog,
    Warehouse,
)
from thence.testing.contracts.backend import BackendContract
from thence.testing.contracts.deadletters import DeadLettersContract
from thence.testing.contracts.journal import JournalContract
from thence.testing.contracts.lock import LockContract
from thence.testing.contracts.offsets import OffsetLogContract
from thence.testing.contracts.place import Place
from thence.testing.contracts.warehouse import WarehouseContract
from thence.testing.memory import (
    Disk,
    MemoryDeadLetters,
    MemoryJournal,
    MemoryLock,
    MemoryOffsetLog,
    MemoryWarehouse,
    PowerFailure,
    RecordingBackend,
)

DISKS: defaultdict[Path, Disk] = defaultdict(Disk)


@contextmanager
def power_failing(directory: Path, steps: int) -> Iterator[None]:
    """Let the power fail after some steps; it may also outlast them."""
    DISKS[directory].fail_after(steps)
    try:
        yield
    except PowerFailure:
        pass
    finally:
        DISKS[directory].repair()


class OnDisk:
    """Which directory the one implementation under test was opened on."""

    directory: ClassVar[Path]

    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path: Path) -> None:
        type(self).directory = tmp_path

    def crash(self, opened: object) -> None:
        """Everything that is not on the disk goes with the object."""


class TestMemoryJournal(OnDisk, JournalContract):
    def open(self, directory: Path, clock: Clock) -> Journal:
        return MemoryJournal(DISKS[directory])

    def open_small(
        self, directory: Path, clock: Clock, *, when_full: Literal["refuse", "expire_oldest"]
    ) -> Journal:
        return MemoryJournal(DISKS[directory], max_records=10, when_full=when_full)

    def append_and_die(self, opened: Journal, batch: Sequence[Event], moment: int) -> None:
        with power_failing(self.directory, moment):
            opened.append(batch)


class TestMemoryLock(OnDisk, LockContract):
    def open(self, directory: Path, clock: Clock) -> Lock:
        return MemoryLock(DISKS[directory], clock)


class TestMemoryOffsetLog(OnDisk, OffsetLogContract):
    def open(self, directory: Path, clock: Clock) -> OffsetLog:
        return MemoryOffsetLog(DISKS[directory])


class TestMemoryDeadLetters(OnDisk, DeadLettersContract):
    def open(self, directory: Path, clock: Clock) -> DeadLetters:
        return MemoryDeadLetters(DISKS[directory])

    def put_and_die(self, opened: DeadLetters, batch: Sequence[DeadLetter], moment: int) -> None:
        with power_failing(self.directory, moment):
            opened.put(batch)


class TestRecordingBackend(OnDisk, BackendContract):
    def open(self, directory: Path, clock: Clock) -> Backend:
        return RecordingBackend(DISKS[directory])

    def arrived(self, place: Place[Backend]) -> Sequence[bytes]:
        return [event.payload for event in RecordingBackend(DISKS[place.directory]).arrived]

    def refuse(self, place: Place[Backend], refused: Event) -> None:
        RecordingBackend(DISKS[place.directory]).refused.add(refused.id)

    @contextmanager
    def unreachable(self, place: Place[Backend]) -> Iterator[None]:
        with RecordingBackend(DISKS[place.directory]).unreachable():
            yield

    @contextmanager
    def losing_answers(self, place: Place[Backend]) -> Iterator[None]:
        with RecordingBackend(DISKS[place.directory]).losing_answers():
            yield


class TestMemoryWarehouse(OnDisk, WarehouseContract):
    def open(self, directory: Path, clock: Clock) -> Warehouse:
        return MemoryWarehouse(DISKS[directory])

    def rows(self, opened: Warehouse, table: str) -> Sequence[Mapping[str, Any]]:
        assert isinstance(opened, MemoryWarehouse)
        return opened.rows(table)

    def write_and_die(self, opened: Warehouse, load: Load, rows: ArrowStream, moment: int) -> None:
        with power_failing(self.directory, moment):
            opened.write(load, rows)
