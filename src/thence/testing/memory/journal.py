"""A journal in memory, with a limit if wanted.

Records stay until the limit asks for their room, as in the journal on disk: so a cursor that is made late still finds
what others have passed, as long as it is there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Literal

import msgspec

from thence.core.errors import InvariantBroken, Rejected, Unavailable
from thence.core.event import Event, Record
from thence.core.ports import Cursor, Journal
from thence.core.tally import Settled, Tally
from thence.testing.memory.disk import Disk


class _State(msgspec.Struct):
    records: deque[Record] = msgspec.field(default_factory=deque)
    cursors: dict[str, Settled] = {}
    appended: int = 0

    @property
    def gone(self) -> int:
        return self.appended - len(self.records)


class MemoryJournal(Journal):
    """A `Journal` whose disk is an object. `max_records` limits it; `when_full` says what happens then."""

    def __init__(
        self,
        disk: Disk | None = None,
        *,
        name: str = "journal",
        max_records: int | None = None,
        when_full: Literal["refuse", "expire_oldest"] = "refuse",
    ) -> None:
        self._disk = disk or Disk()
        self._state = self._disk.state(name, _State)
        self._max_records = max_records
        self._when_full = when_full

    def append(self, events: Sequence[Event]) -> range:
        """Make events durable; return their positions."""
        with self._disk.lock:
            state = self._state
            first = state.appended + 1
            self._make_room(len(events))
            for position, event in enumerate(events, start=first):
                self._disk.reach()
                state.records.append(Record(position, event))
                state.appended = position
            self._expire()
            return range(first, first + len(events))

    def cursor(self, name: str, *, start: Literal["oldest", "newest"] = "oldest") -> Cursor:
        """Open a cursor, or make it durably."""
        with self._disk.lock:
            state = self._state
            skipped = state.gone if start == "oldest" else state.appended
            state.cursors.setdefault(name, Settled(skipped=skipped))
            return _MemoryCursor(self._disk, state, name)

    def drop_cursor(self, name: str) -> None:
        """Forget a cursor."""
        with self._disk.lock:
            self._state.cursors.pop(name, None)

    def cursors(self) -> Sequence[str]:
        """The names of all cursors, sorted."""
        with self._disk.lock:
            return sorted(self._state.cursors)

    def close(self) -> None:
        """Nothing is held that could be let go."""

    def _make_room(self, count: int) -> None:
        if self._max_records is None:
            return
        state = self._state
        passed = min((settled.total for settled in state.cursors.values()), default=0)
        excess = len(state.records) + count - self._max_records
        free = min(excess, passed - state.gone)
        if self._when_full == "refuse" and excess > max(free, 0):
            raise Unavailable(
                "journal.full",
                f"{len(state.records)} records are kept and {count} more would exceed {self._max_records}",
                advice="Let the slowest cursor catch up, drop it, or raise the limit.",
            )
        for _ in range(free):
            state.records.popleft()

    def _expire(self) -> None:
        state = self._state
        while self._max_records is not None and len(state.records) > self._max_records:
            lost = state.records.popleft().position
            for name, settled in state.cursors.items():
                if settled.total < lost:
                    state.cursors[name] = settled + Settled(expired=lost - settled.total)


class _MemoryCursor(Cursor):
    """One reader's place. `_expired` is what had expired when this reader last began to read."""

    def __init__(self, disk: Disk, state: _State, name: str) -> None:
        self._disk = disk
        self._state = state
        self._name = name
        self._expired = state.cursors[name].expired

    def read(self, limit: int, *, ahead: int = 0) -> Sequence[Record]:
        """The next records that are not settled."""
        with self._disk.lock:
            settled = self._settled()
            if ahead == 0:
                self._expired = settled.expired
            first = max(settled.total - self._overtaken(settled) + ahead, settled.total) - self._state.gone
            return list(islice(self._state.records, first, first + limit))

    def settle(self, settled: Settled) -> None:
        """Move past the next records and count them."""
        with self._disk.lock:
            counted = self._settled()
            overtaken = self._overtaken(counted)
            waiting = self._state.appended - counted.total + overtaken
            if settled.total > waiting:
                raise InvariantBroken(
                    "journal.oversettled",
                    f"the cursor {self._name} has {waiting} records waiting, not {settled.total}",
                )
            not_lost = min(settled.total, overtaken)
            self._disk.reach()
            self._state.cursors[self._name] = (
                msgspec.structs.replace(counted, expired=counted.expired - not_lost) + settled
            )
            self._expired += settled.expired

    def tally(self) -> Tally:
        """Where everything is that was ever appended."""
        with self._disk.lock:
            settled = self._settled()
            return Tally(self._state.appended, settled, self._state.appended - settled.total)

    def _overtaken(self, settled: Settled) -> int:
        return max(settled.expired - self._expired, 0)

    def _settled(self) -> Settled:
        try:
            return self._state.cursors[self._name]
        except KeyError:
            raise Rejected(
                "journal.cursor_dropped",
                f"the cursor {self._name} was dropped",
                advice="Open it anew if its destination is still wanted.",
            ) from None
