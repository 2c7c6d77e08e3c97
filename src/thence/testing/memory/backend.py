"""A backend that remembers what arrived, and fails as a test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from thence.core.errors import OutcomeUnknown, Unavailable
from thence.core.event import Event
from thence.core.ports import Backend, Sent
from thence.testing.memory.disk import Disk


class RecordingBackend(Backend):
    """A `Backend` that keeps what arrives, in order, on its disk: what the other side has.

    `refused` are the ids that it never takes. While it is not `reachable`, nothing arrives; while it is
    `losing_answers`, everything arrives and the sender does not learn of it.
    """

    def __init__(self, disk: Disk | None = None) -> None:
        self._disk = disk or Disk()
        self.arrived: list[Event] = self._disk.state("arrived", list)
        self.refused: set[UUID] = set()
        self.reachable = True
        self.losing_answers = False
        self.closed = False

    async def send(self, events: Sequence[Event]) -> Sent:
        """Take events up to the first that is refused."""
        if not self.reachable:
            raise Unavailable("backend.unreachable", "the recording backend is not reachable")
        sent = await self._take(events)
        if self.losing_answers:
            raise OutcomeUnknown("backend.answer_lost", f"no answer came for {len(events)} events")
        return sent

    async def close(self) -> None:
        """Note that the backend was closed."""
        self.closed = True

    async def _take(self, events: Sequence[Event]) -> Sent:
        for delivered, event in enumerate(events):
            await asyncio.sleep(0)
            if event.id in self.refused:
                return Sent(delivered, f"the event {event.id} is refused")
            self._disk.reach()
            self.arrived.append(event)
        return Sent(len(events))
