"""Reads a cursor ahead of what is settled, and settles late, several batches by one sync.

What was read stays here until it is settled, in one row: `unsettled` records that are done with, those that the
forwarder has in hand, and those that wait. When records expire or cannot be read, the row breaks; then everything in
hand is settled first, and reading begins anew at the cursor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from thence.core.clock import Clock
from thence.core.event import Record
from thence.core.ports import Cursor
from thence.core.tally import Settled
from thence.forward.policy import Policy


class Reader:
    """One cursor and the row of what was read from it."""

    def __init__(self, cursor: Cursor, policy: Policy, clock: Clock) -> None:
        self.waiting: deque[Record] = deque()
        self.unsettled = Settled()
        self._cursor = cursor
        self._policy = policy
        self._clock = clock
        self._in_hand = 0
        self._last = 0
        self._is_broken = False
        self._since = 0.0

    def fill(self) -> Sequence[Record]:
        """Read more when nothing waits; what is new."""
        ahead = self._in_hand + self.unsettled.total
        if self.waiting or (self._is_broken and ahead):
            return ()
        found = self._cursor.read(self._policy.max_events, ahead=ahead)
        if ahead and found and found[0].position != self._last + 1:
            self._is_broken = True
            return ()
        if found:
            self._is_broken = False
            self._last = found[-1].position
            self.waiting.extend(found)
        return found

    def take(self, count: int) -> None:
        """So many records were taken from the front of `waiting`."""
        self._in_hand += count

    def put_back(self, records: Sequence[Record]) -> None:
        """Records in hand that were not done with; the last ones taken go back first."""
        self._in_hand -= len(records)
        self.waiting.extendleft(reversed(records))

    def done(self, settled: Settled) -> None:
        """The first records in hand are done with; they are settled soon."""
        if not self.unsettled.total:
            self._since = self._clock.monotonic()
        self._in_hand -= settled.total
        self.unsettled += settled

    def is_due(self) -> bool:
        """Whether what is done with has to be settled now."""
        total = self.unsettled.total
        if not total:
            return False
        late = self._clock.monotonic() - self._since >= self._policy.settle_seconds
        return late or total >= self._policy.settle_events or self._is_broken

    def settle(self) -> None:
        """Move the cursor, durably."""
        if self.unsettled.total:
            self._cursor.settle(self.unsettled)
            self.unsettled = Settled()
