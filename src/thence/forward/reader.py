"""Reads a cursor ahead of what is settled, and settles late, several batches by one sync.

What was read stays here until it is done with, in one row: records in hand, then those that wait. When records expire
or cannot be read, the row breaks; then everything in hand is settled first, and reading begins anew at the cursor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime

from thence.core.clock import Clock
from thence.core.event import Record
from thence.core.ports import Cursor
from thence.core.tally import Settled
from thence.forward.policy import Policy


class Reader:
    """One cursor and the row of what was read from it. Other threads may look at `lag` and `oldest_at`."""

    def __init__(self, cursor: Cursor, policy: Policy, clock: Clock) -> None:
        self.waiting: deque[Record] = deque()
        self.unsettled = Settled()
        self.read_events = 0
        self.read_bytes = 0
        self._cursor = cursor
        self._policy = policy
        self._clock = clock
        self._hand: deque[Record] = deque()
        self._row_bytes = 0
        self._last = 0
        self._is_broken = False
        self._since = 0.0

    def fill(self) -> bool:
        """Read more when nothing waits; whether anything waits now."""
        ahead = len(self._hand) + self.unsettled.total
        if self.waiting or (self._is_broken and ahead):
            return bool(self.waiting)
        found = self._cursor.read(self._policy.max_events, ahead=ahead)
        if ahead and found and found[0].position != self._last + 1:
            self._is_broken = True
            return False
        if found:
            self._extend(found)
        return bool(found)

    def take(self, records: Sequence[Record]) -> None:
        """These were taken from the front of `waiting`."""
        self._hand.extend(records)

    def put_back(self, records: Sequence[Record]) -> None:
        """The newest in hand, which are not done with, wait again."""
        for _ in records:
            self.waiting.appendleft(self._hand.pop())

    def done(self, settled: Settled) -> int:
        """The oldest in hand are done with, and settled soon; how many bytes they have."""
        if not self.unsettled.total:
            self._since = self._clock.monotonic()
        size_bytes = sum(len(self._hand.popleft().event.payload) for _ in range(settled.total))
        self._row_bytes -= size_bytes
        self.unsettled += settled
        return size_bytes

    def due_in(self) -> float | None:
        """In how many seconds what is done with has to be settled; None when there is nothing."""
        total = self.unsettled.total
        if not total:
            return None
        if total >= self._policy.settle_events or self._is_broken:
            return 0.0
        return max(0.0, self._policy.settle_seconds - (self._clock.monotonic() - self._since))

    def settle(self) -> None:
        """Move the cursor, durably."""
        if self.unsettled.total:
            self._cursor.settle(self.unsettled)
            self.unsettled = Settled()

    def start_over(self) -> None:
        """Forget what is not done with; it is read again."""
        self.waiting.clear()
        self._hand.clear()
        self._row_bytes = 0
        self._is_broken = True

    def lag(self, waiting: int) -> tuple[int, int]:
        """Events and bytes that are not done with, when so many are not settled."""
        events = max(0, waiting - self.unsettled.total)
        beyond = max(0, events - len(self._hand) - len(self.waiting))
        mean = self.read_bytes / self.read_events if self.read_events else 0.0
        return events, max(0, self._row_bytes + round(beyond * mean))

    def oldest_at(self) -> datetime | None:
        """When the oldest event came that is not done with, of those that were read."""
        for row in (self._hand, self.waiting):
            try:
                return row[0].event.received_at
            except IndexError:
                continue
        return None

    def _extend(self, found: Sequence[Record]) -> None:
        self._is_broken = False
        self._last = found[-1].position
        self.waiting.extend(found)
        size_bytes = sum(len(record.event.payload) for record in found)
        self._row_bytes += size_bytes
        self.read_events += len(found)
        self.read_bytes += size_bytes
