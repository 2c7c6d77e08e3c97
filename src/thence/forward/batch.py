"""A run of records, and what is to become of each: sent, parked or filtered.

Records are settled from the front, so what was delivered decides how far a batch may be settled; the records between
that are not sent go with those before them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from thence.core.event import Event, Record
from thence.core.tally import Settled
from thence.forward.rules import Filtered, Parked, Rules

Fate = Event | Filtered | Parked


class Batch(msgspec.Struct, frozen=True):
    """Records in order, each with its fate; `sends` are the events among the fates."""

    records: Sequence[Record]
    fates: Sequence[Fate]
    sends: Sequence[Event]

    @property
    def parked(self) -> list[tuple[Record, Parked]]:
        """The records that go to the dead letters."""
        pairs = zip(self.records, self.fates, strict=True)
        return [(record, fate) for record, fate in pairs if isinstance(fate, Parked)]

    def reach(self, delivered: int) -> int:
        """How many records are done with when so many events were delivered."""
        if delivered >= len(self.sends):
            return len(self.records)
        seen = 0
        for index, fate in enumerate(self.fates):
            if isinstance(fate, Event):
                if seen == delivered:
                    return index
                seen += 1
        return len(self.records)

    def settled(self, reach: int) -> Settled:
        """What became of the first so many records."""
        if len(self.sends) == len(self.records):
            return Settled(delivered=reach)
        fates = self.fates[:reach]
        parked = sum(isinstance(fate, Parked) for fate in fates)
        filtered = sum(isinstance(fate, Filtered) for fate in fates)
        return Settled(delivered=reach - parked - filtered, parked=parked, filtered=filtered)


def take(waiting: deque[Record], rules: Rules, *, max_events: int, max_bytes: int) -> Batch:
    """The next batch from the front of what was read: at least one record, and then as much as fits."""
    records: list[Record] = []
    fates: list[Fate] = []
    sends: list[Event] = []
    room = max_bytes
    while waiting and len(sends) < max_events and (room > len(waiting[0].event.payload) or not records):
        record = waiting.popleft()
        fate = rules.apply(record.event)
        records.append(record)
        fates.append(fate)
        room -= len(record.event.payload)
        if isinstance(fate, Event):
            sends.append(fate)
    return Batch(records, fates, sends)
