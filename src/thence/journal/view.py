"""Looks into a journal without owning it: for reading only, while another process may append, rotate and forget.

Nothing is locked, so what is shown is a moment that is passing: a file that vanished was forgotten, one that grew has
more. A frame counts when its checksum is right. The newest frames may be written and not yet synced, and a record that
an append left behind before it failed may be shown until the next one takes its position.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import msgspec

from thence.core.clock import Clock, SystemClock
from thence.core.event import Record
from thence.core.tally import Tally
from thence.journal import frame, mark, partition
from thence.journal.partition import HEAD_BYTES, Head
from thence.journal.trouble import translated

_POLL_SECONDS = 0.2


class PartitionView(msgspec.Struct, frozen=True):
    """One partition: the positions it spans, its size, and how many records cannot be read if that was asked."""

    file: str
    first: int
    last: int
    size_bytes: int
    created_at: datetime
    damaged_count: int | None = None


class CursorView(msgspec.Struct, frozen=True):
    """One cursor: its tally, and when the oldest waiting record came."""

    name: str
    tally: Tally
    oldest_waiting_at: datetime | None = None


class JournalView:
    """A journal's directory, seen from outside."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def exists(self) -> bool:
        """Whether there is a journal."""
        return bool(self._paths())

    def partitions(self, *, check: bool = False) -> list[PartitionView]:
        """All partitions, oldest first; `check` reads through all of them."""
        paths = self._paths()
        shown = [self._partition(path, before, check=check) for path, before in _with_next(paths)]
        return [each for each in shown if each is not None]

    def cursors(self, last: int) -> list[CursorView]:
        """All cursors, when `last` is the newest position."""
        return [self._cursor(slot, last) for slot in self._slots()]

    def damaged_files(self) -> list[str]:
        """Files that were put aside."""
        with suppress(FileNotFoundError):
            return sorted(path.name for path in (self.directory / "damaged").iterdir())
        return []

    def records(self, first: int = 1, last: int | None = None) -> Iterator[Record]:
        """The records that can be read, from one position to another."""
        for path, before in _with_next(self._paths()):
            if before is not None and before <= first:
                continue
            if last is not None and partition.first_in(path) > last:
                return
            for record in _records(path, before):
                if last is not None and record.position > last:
                    return
                if record.position >= first:
                    first = record.position + 1
                    yield record

    def newest(self, count: int) -> list[Record]:
        """The last so many records."""
        found: list[Record] = []
        for path, before in reversed(list(_with_next(self._paths()))):
            if len(found) >= count:
                break
            found = [*deque(_records(path, before), maxlen=count - len(found)), *found]
        return found

    def follow(self, after: int, clock: Clock | None = None) -> Iterator[Record]:
        """The records after a position, and all that come later; never ends."""
        clock = clock or SystemClock()
        while True:
            for record in self.records(after + 1):
                after = record.position
                yield record
            # It ends when another partition has begun, or the file is gone.
            after = yield from self._grow(after, clock)

    def position_at(self, moment: datetime) -> int:
        """The position of the first record that came at a time or later; one beyond the newest if there is none."""
        after = 0
        for record in self.records():
            if record.event.received_at >= moment:
                return record.position
            after = record.position
        return after + 1

    # Inside

    def _paths(self) -> list[Path]:
        return sorted(self.directory.glob("partition-*.log"))

    def _slots(self) -> list[mark.Slot]:
        slots = []
        for path in mark.paths_in(self.directory):
            with suppress(FileNotFoundError):
                slots.append(mark.read(path))
        return sorted((slot for slot in slots if slot is not None), key=lambda slot: slot.name)

    def _cursor(self, slot: mark.Slot, last: int) -> CursorView:
        passed = slot.settled.total
        # It may have moved past what was newest a moment ago.
        last = max(last, passed)
        following = next(self.records(passed + 1), None) if passed < last else None
        at = following.event.received_at if following is not None else None
        return CursorView(slot.name, Tally(last, slot.settled, last - passed), at)

    def _partition(self, path: Path, before: int | None, *, check: bool) -> PartitionView | None:
        with _opened(path) as file:
            head = _head(file)
            if file < 0 or head is None:
                return None
            size_bytes = os.fstat(file).st_size
            count, last = 0, head.first - 1
            if check or before is None:
                for position in _positions(file, head, before):
                    count, last = count + 1, position
            last = last if before is None else before - 1
            damaged = last - head.first + 1 - count if check else None
            return PartitionView(path.name, head.first, last, size_bytes, head.created_at, damaged)

    def _grow(self, after: int, clock: Clock) -> Generator[Record, None, int]:
        """What is appended to the last partition, until there is another one; returns the last position."""
        paths = self._paths()
        if not paths:
            clock.sleep(_POLL_SECONDS)
            return after
        with _opened(paths[-1]) as file:
            head = _head(file)
            offset = HEAD_BYTES
            while head is not None:
                is_last = self._paths()[-1:] == [paths[-1]]
                size_bytes = os.fstat(file).st_size
                for _, end, body in frame.scan(_reader(file), offset, size_bytes, head.salt):
                    offset = end
                    if frame.position_in(body) > after:
                        after = frame.position_in(body)
                        yield frame.decode(body)
                if not is_last:
                    return after
                clock.sleep(_POLL_SECONDS)
        clock.sleep(_POLL_SECONDS)
        return after


def _with_next(paths: Sequence[Path]) -> Iterator[tuple[Path, int | None]]:
    """Each file with the first position of the one after it."""
    for index, path in enumerate(paths):
        yield path, partition.first_in(paths[index + 1]) if index + 1 < len(paths) else None


def _records(path: Path, before: int | None) -> Iterator[Record]:
    with _opened(path) as file:
        head = _head(file)
        if head is None:
            return
        for _, _, body in frame.scan(_reader(file), HEAD_BYTES, os.fstat(file).st_size, head.salt):
            if before is not None and frame.position_in(body) >= before:
                return
            yield frame.decode(body)


def _positions(file: int, head: Head, before: int | None) -> Iterator[int]:
    for _, _, body in frame.scan(_reader(file), HEAD_BYTES, os.fstat(file).st_size, head.salt):
        if before is not None and frame.position_in(body) >= before:
            return
        yield frame.position_in(body)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """The file for reading; -1 when it is gone."""
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        yield -1
        return
    except OSError as error:
        raise translated(error, path.parent) from error
    try:
        yield file
    finally:
        os.close(file)


def _head(file: int) -> Head | None:
    return Head.decode(os.pread(file, HEAD_BYTES, 0)) if file >= 0 else None


def _reader(file: int) -> Callable[[int, int], bytes]:
    return lambda size, offset: os.pread(file, size, offset)
