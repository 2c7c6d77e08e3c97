"""A cursor of the journal: reads without waiting for writers, and moves its mark.

What a reader has seen stays with the object, so that records that expire under its hands and are settled all the same
are counted as settled.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Sequence
from typing import Protocol

from thence.core.errors import InvariantBroken
from thence.core.event import Record
from thence.core.tally import Settled, Tally
from thence.journal.mark import Mark
from thence.journal.partition import Partition
from thence.journal.trouble import translating

_log = logging.getLogger(__name__)
_READ_BYTES = 16 << 20


class Log(Protocol):
    """What a cursor needs of its journal."""

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The row of partitions now."""
        ...

    def note_damage(self, count: int) -> None:
        """So many records cannot be read."""
        ...


class FileCursor:
    """A `Cursor` of a FileJournal. See the port for what it promises."""

    def __init__(self, log: Log, mark: Mark) -> None:
        self._log = log
        self._mark = mark
        self._seen = mark.settled.total

    def read(self, limit: int, *, ahead: int = 0) -> Sequence[Record]:
        """See `Cursor.read`."""
        # The row first, the mark after it: what expires in between can still be read from this row.
        row = self._log.partitions
        passed = self._mark.live().total
        if ahead == 0:
            self._seen = passed
        position = max(self._seen + ahead, passed) + 1
        last = row[-1].last
        if limit <= 0 or position > last:
            return []
        with translating(row[-1].path.parent):
            found = _read(row, position, limit)
        if self._seen + 1 == position:
            self._count_gap(position, found[0].position if found else last + 1)
        return found

    def settle(self, settled: Settled) -> None:
        """See `Cursor.settle`."""
        self._mark.live()
        beyond = self._seen + settled.total - self._log.partitions[-1].last
        if beyond > 0:
            raise InvariantBroken(
                "journal.oversettled",
                f"{settled.total} records were settled at cursor {self._mark.slot.name!r}, {beyond} too many",
            )
        self._mark.settle(self._seen, settled)
        self._seen += settled.total

    def tally(self) -> Tally:
        """See `Cursor.tally`."""
        settled = self._mark.live()
        last = self._log.partitions[-1].last
        return Tally(last, settled, last - settled.total)

    def _count_gap(self, position: int, found: int) -> None:
        """Records that nobody can read any more are counted where the reader meets the hole."""
        if found > position and self._mark.skip_gap(position, found):
            self._seen = found - 1
            self._log.note_damage(found - position)
            about = {"action": "journal_records_damaged", "first": position, "count": found - position}
            _log.error("records cannot be read", extra=about)


def _read(row: Sequence[Partition], position: int, limit: int) -> list[Record]:
    found: list[Record] = []
    at = max(bisect_right(row, position, key=lambda each: each.first) - 1, 0)
    for each in row[at:]:
        found += each.read(position, limit - len(found), _READ_BYTES)
        if len(found) >= limit or (found and found[-1].position < each.last):
            break
    return _until_gap(found)


def _until_gap(found: list[Record]) -> list[Record]:
    # A reader settles by number, so what it is given has no hole in it; the next read begins at the hole.
    if not found or found[-1].position - found[0].position == len(found) - 1:
        return found
    first = found[0].position
    whole = next(index for index, record in enumerate(found) if record.position != first + index)
    return found[:whole]
