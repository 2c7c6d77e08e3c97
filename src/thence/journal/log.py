"""The journal itself: partitions in a row, cursors beside them.

What is written, in which order, and why a death between any two steps loses nothing:

1. *Append*: frames at the end of the last partition, then fdatasync, then the caller is answered. Whatever a death
   or an error leaves behind the last synced frame was promised to nobody.
2. *Rotation*: the next partition appears whole, by a rename. From then on nothing is written into the one before it.
3. *Settling*: one slot of the cursor's file, then fdatasync.
4. *Forgetting*: first every cursor that is behind moves and counts what expires, then the files go, oldest first. A
   death in between leaves files that every cursor has passed; the next look removes them.

A partition that cannot be read at all is put aside under `damaged/`; records that cannot be read are counted as expired
where a cursor meets the gap. Writers take turns; readers wait for nobody: they look at a row of partitions that is
replaced as a whole, and a file that was deleted stays readable for whoever has it open.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

import msgspec

from thence.core.clock import Clock, SystemClock
from thence.core.errors import InvariantBroken, Rejected, Unavailable
from thence.core.event import Event
from thence.core.tally import Settled
from thence.disk import durable
from thence.disk.claim import Claim, Taken
from thence.journal import frame, limits, partition
from thence.journal.cursor import FileCursor
from thence.journal.limits import Limits, Stock
from thence.journal.mark import Mark, paths_in
from thence.journal.partition import Partition
from thence.journal.timeline import Timeline
from thence.journal.trouble import translating

_log = logging.getLogger(__name__)
_WORTH_ROTATING_BYTES = 1 << 20


class Expiry(msgspec.Struct, frozen=True):
    """What a journal had to forget: which positions, how many bytes, and why."""

    first: int
    last: int
    size_bytes: int
    reason: Literal["age", "bytes"]


class Counters(msgspec.Struct):
    """What happened since this journal was opened."""

    appended_bytes: int = 0
    commits: int = 0
    expired_events: int = 0
    expired_bytes: int = 0
    damaged_records: int = 0
    damaged_files: int = 0


class FileJournal:
    """A `Journal` in a directory. One process has it open; its methods may be called from any thread."""

    def __init__(
        self,
        directory: Path,
        given: Limits | None = None,
        *,
        clock: Clock | None = None,
        on_expiry: Callable[[Expiry], None] = lambda expiry: None,
    ) -> None:
        self.directory = directory
        self.limits = given or Limits()
        self.counters = Counters()
        self._on_expiry = on_expiry
        self._writing = threading.Lock()
        self._marks: dict[str, Mark] = {}
        self._partitions: tuple[Partition, ...] = ()
        self._claim = _claim(directory)
        try:
            with translating(directory):
                self._open(clock or SystemClock())
        except BaseException:
            self.close()
            raise

    def append(self, events: Sequence[Event]) -> range:
        """See `Journal.append`."""
        with self._writing:
            self._check_open()
            if not events:
                return range(self.last + 1, self.last + 1)
            size_bytes = sum(map(frame.size_of, events))
            with translating(self.directory):
                self._make_room(size_bytes)
                return self._append(events, size_bytes)

    def cursor(self, name: str, *, start: Literal["oldest", "newest"] = "oldest") -> FileCursor:
        """See `Journal.cursor`."""
        with self._writing:
            self._check_open()
            if name not in self._marks:
                before = self._partitions[0].first - 1 if start == "oldest" else self.last
                with translating(self.directory):
                    self._marks[name] = Mark.create(self.directory, name, Settled(skipped=before))
            return FileCursor(self, self._marks[name])

    def drop_cursor(self, name: str) -> None:
        """See `Journal.drop_cursor`."""
        with self._writing:
            mark = self._marks.get(name)
            if mark is not None:
                with translating(self.directory):
                    mark.delete()
                del self._marks[name]

    def rewind(self, name: str, position: int) -> int:
        """Let a cursor that nobody reads from begin again at a position, or at the oldest that is still there.

        Returns how many records are waiting again. It never moves forward.
        """
        with self._writing:
            if name not in self._marks:
                raise Rejected(
                    "journal.cursor_unknown",
                    f"the journal in {self.directory} has no cursor {name!r}",
                    advice="thence journal info lists them.",
                )
            return self._marks[name].rewind(max(position, self.partitions[0].first) - 1)

    def cursors(self) -> Sequence[str]:
        """See `Journal.cursors`."""
        return sorted(self._marks)

    def close(self) -> None:
        """See `Journal.close`."""
        with self._writing:
            for mark in self._marks.values():
                mark.close()
            # The files close when the last reader has let go of them.
            self._partitions = ()
            self._claim.release()

    @property
    def last(self) -> int:
        """The position of the newest record; 0 when there never was one."""
        return self.partitions[-1].last

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The row as it is now; what stands in it can be read for as long as somebody holds it."""
        self._check_open()
        return self._partitions

    @property
    def size_bytes(self) -> int:
        """What the partitions take on disk."""
        return sum(each.size_bytes for each in self._partitions)

    def stocks(self) -> list[Stock]:
        """The partitions, oldest first."""
        row = self.partitions
        ends = [*(each.head.created_at for each in row[1:]), None]
        return [_stock(each, end) for each, end in zip(row, ends, strict=True)]

    def note_damage(self, count: int) -> None:
        """A cursor met records that cannot be read."""
        self.counters.damaged_records += count

    def maintain(self) -> None:
        """Give back what is done with, and expire what is too old. Call it now and then."""
        with self._writing:
            self._check_open()
            with translating(self.directory):
                now = self._timeline.now()
                stock = _stock(self._partitions[-1], None)
                all_passed = self._passed() == self.last and stock.size_bytes > _WORTH_ROTATING_BYTES
                if all_passed or limits.should_rotate(stock, self.limits, 0, now):
                    self._rotate()
                self._forget(limits.done(self.stocks(), self._passed()))
                self._expire(limits.overdue(self.stocks(), self.limits, now), "age")

    # Inside

    def _check_open(self) -> None:
        if not self._partitions:
            raise InvariantBroken("journal.closed", f"the journal in {self.directory} is closed")

    def _open(self, clock: Clock) -> None:
        paths = sorted(self.directory.glob("partition-*.log"))
        found: list[Partition] = []
        for index, path in enumerate(paths):
            before = partition.first_in(paths[index + 1]) if path is not paths[-1] else None
            opened = Partition.open(path, before=before)
            if opened is None:
                self._put_aside(path)
            else:
                found.append(opened)
        self._partitions = tuple(found)
        self._open_marks()
        newest = max((each.head.created_at for each in self._partitions), default=None)
        self._timeline = Timeline(clock, newest)
        passed = max((mark.settled.total for mark in self._marks.values()), default=0)
        named = partition.first_in(paths[-1]) - 1 if paths else 0
        last = self._partitions[-1].last if self._partitions else 0
        # A position that somebody may have passed, or that a lost file began with, is never used again.
        follows = max(last, passed, named)
        if not self._partitions or follows > last or not self._partitions[-1].is_clean:
            self._begin(follows + 1)

    def _open_marks(self) -> None:
        for path in paths_in(self.directory):
            mark = Mark.open(path)
            if mark is None:
                self._put_aside(path)
            else:
                self._marks[mark.slot.name] = mark

    def _put_aside(self, path: Path) -> None:
        damaged = self.directory / "damaged"
        damaged.mkdir(mode=0o700, exist_ok=True)
        path.replace(damaged / path.name)
        durable.sync_directory(damaged)
        durable.sync_directory(self.directory)
        self.counters.damaged_files += 1
        _log.error("put a damaged file aside", extra={"action": "journal_file_damaged", "file": path.name})

    def _begin(self, first: int) -> None:
        row = self._partitions
        if row:
            # If the next partition fails half-way its file may be there already, and would make void what is
            # appended here: so nothing is, until a next partition was begun.
            row[-1].is_usable = False
        fresh = Partition.create(self.directory, first, self._timeline.now())
        if row and row[-1].first == first:
            row = row[:-1]  # it held nothing, and its file was just replaced
        elif row:
            row[-1].last = first - 1
        self._partitions = (*row, fresh)

    def _rotate(self) -> None:
        self._begin(self.last + 1)

    def _append(self, events: Sequence[Event], size_bytes: int) -> range:
        if limits.should_rotate(
            _stock(self._partitions[-1], None), self.limits, size_bytes, self._timeline.now()
        ):
            self._rotate()
        current = self._partitions[-1]
        try:
            positions = current.append(events)
        except OSError:
            # What reached the file is unknown; a new partition makes it void.
            current.give_up()
            raise
        self.counters.appended_bytes += size_bytes
        self.counters.commits += 1
        return positions

    def _make_room(self, size_bytes: int) -> None:
        if not self._partitions[-1].is_usable:
            self._rotate()
        if self.size_bytes + size_bytes <= self.limits.max_bytes:
            return
        self._forget(limits.done(self.stocks(), self._passed()))
        if self.size_bytes + size_bytes > self.limits.max_bytes and self._passed() == self.last:
            self._rotate()
            self._forget(limits.done(self.stocks(), self._passed()))
        count = limits.excess(self.stocks(), self.limits, size_bytes)
        if count and self.limits.when_full == "refuse":
            raise _full(self.directory, self.limits)
        if count == len(self._partitions):
            if not self._partitions[-1].count:
                raise _full(self.directory, self.limits)
            self._rotate()
        self._expire(count, "bytes")
        if limits.excess(self.stocks(), self.limits, size_bytes):
            raise _full(self.directory, self.limits)

    def _expire(self, count: int, reason: Literal["age", "bytes"]) -> None:
        for gone in self._partitions[:count]:
            for mark in self._marks.values():
                mark.expire_up_to(gone.last)
            expiry = Expiry(gone.first, gone.last, gone.size_bytes, reason)
            self.counters.expired_events += gone.count
            self.counters.expired_bytes += gone.size_bytes
            about = {"action": "journal_expired", **msgspec.structs.asdict(expiry)}
            _log.warning("expired %d records", gone.count, extra=about)
            self._on_expiry(expiry)
        self._forget(count)

    def _forget(self, count: int) -> None:
        if not count:
            return
        gone, self._partitions = self._partitions[:count], self._partitions[count:]
        for each in gone:
            each.path.unlink(missing_ok=True)
        durable.sync_directory(self.directory)

    def _passed(self) -> int | None:
        return min((mark.settled.total for mark in self._marks.values()), default=None)


def _claim(directory: Path) -> Claim:
    try:
        with translating(directory):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            return Claim(directory)
    except Taken as taken:
        raise Unavailable(
            "journal.owned",
            f"the journal in {directory} is written by process {taken.pid}",
            advice="Stop that process, or give this one a state directory of its own.",
        ) from None


def _full(directory: Path, given: Limits) -> Unavailable:
    return Unavailable(
        "journal.full",
        f"the journal in {directory} holds {given.max_bytes} bytes that are not delivered",
        advice="Bring the slowest destination back, raise max_bytes, or let it expire the oldest.",
    )


def _stock(each: Partition, ended_at: datetime | None) -> Stock:
    return Stock(each.first, each.last, each.size_bytes, each.head.created_at, ended_at)
