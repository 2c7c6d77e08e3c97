"""A backend that remembers what arrived, and fails as a test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

import msgspec

from thence.core.errors import OutcomeUnknown, Unavailable
from thence.core.event import Event
from thence.core.ports import Backend, Sent
from thence.testing.memory.disk import Disk


class _OtherSide(msgspec.Struct):
    arrived: list[Event] = []
    refused: set[UUID] = set()
    reachable: bool = True
    answers: bool = True


class RecordingBackend(Backend):
    """A `Backend` whose other side is on its disk: what arrived there, in order, and what it will do next."""

    def __init__(self, disk: Disk | None = None) -> None:
        self._other_side = (disk or Disk()).state("backend", _OtherSide)
        self.closed = False

    @property
    def arrived(self) -> list[Event]:
        """What has arrived, in order, repetitions included."""
        return self._other_side.arrived

    @property
    def refused(self) -> set[UUID]:
        """The ids of events that the other side refuses for good; add to it."""
        return self._other_side.refused

    @contextmanager
    def unreachable(self) -> Iterator[None]:
        """Nothing arrives for a while."""
        self._other_side.reachable = False
        try:
            yield
        finally:
            self._other_side.reachable = True

    @contextmanager
    def losing_answers(self) -> Iterator[None]:
        """For a while everything arrives, and the sender does not learn of it."""
        self._other_side.answers = False
        try:
            yield
        finally:
            self._other_side.answers = True

    async def send(self, events: Sequence[Event]) -> Sent:
        """Take events up to the first that is refused."""
        if not self._other_side.reachable:
            raise Unavailable("backend.unreachable", "the recording backend is not reachable")
        sent = await self._take(events)
        if not self._other_side.answers:
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
            self.arrived.append(event)
        return Sent(len(events))
