"""What a `Backend` promises. The suite looks at the other side: an implementation tells it what arrived there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress

import pytest

from thence.core.errors import OutcomeUnknown, Unavailable
from thence.core.event import Event
from thence.core.ports import Backend, Sent
from thence.testing.contracts.place import Contract, Place
from thence.testing.contracts.samples import event

Scenario = Callable[[Backend], Awaitable[None]]


class BackendContract(Contract[Backend]):
    """The suite of `thence.core.ports.Backend`."""

    def arrived(self, place: Place[Backend]) -> Sequence[bytes]:
        """The payloads that the other side has taken, in order, repetitions included."""
        raise NotImplementedError

    def refuse(self, place: Place[Backend], refused: Event) -> None:
        """Make the other side refuse an event for good."""
        raise NotImplementedError

    def unreachable(self, place: Place[Backend]) -> AbstractContextManager[None]:
        """Cut the way to the other side for a while."""
        raise NotImplementedError

    def losing_answers(self, place: Place[Backend]) -> AbstractContextManager[None]:
        """Let events arrive, and lose the answers, for a while."""
        raise NotImplementedError

    def event(self, number: int) -> Event:
        """An event that the other side takes; another number gives another payload."""
        return event(number)

    def test_events_arrive_in_order(self, place: Place[Backend]) -> None:
        """All events arrive, in the order of the sequence, call after call."""

        async def scenario(backend: Backend) -> None:
            assert await backend.send(self.events(1, 5)) == Sent(5)
            assert await backend.send(self.events(6, 1)) == Sent(1)

        self.run(place, scenario)
        assert self.arrived(place) == self.payloads(1, 6)

    def test_sending_none_does_nothing(self, place: Place[Backend]) -> None:
        """No events are no error, and nothing arrives."""

        async def scenario(backend: Backend) -> None:
            assert await backend.send([]) == Sent(0)

        self.run(place, scenario)
        assert self.arrived(place) == []

    @pytest.mark.parametrize("before", [0, 1, 3])
    def test_a_refusal_keeps_what_came_before(self, place: Place[Backend], before: int) -> None:
        """Events before a refused one are confirmed, none after it arrives, and the reason is told."""
        batch = self.events(1, 5)
        self.refuse(place, batch[before])

        async def scenario(backend: Backend) -> None:
            sent = await backend.send(batch)
            assert sent.delivered == before
            assert sent.refusal, "the reason is missing"
            assert self.arrived(place) == self.payloads(1, before)
            assert await backend.send(batch[before + 1 :]) == Sent(4 - before)

        self.run(place, scenario)
        assert self.arrived(place) == [one.payload for one in batch if one is not batch[before]]

    def test_a_refusal_stands(self, place: Place[Backend]) -> None:
        """An event that was refused for good is refused again."""
        refused = self.event(1)
        self.refuse(place, refused)

        async def scenario(backend: Backend) -> None:
            for _ in range(2):
                sent = await backend.send([refused, self.event(2)])
                assert sent.delivered == 0
                assert sent.refusal

        self.run(place, scenario)
        assert self.arrived(place) == []

    def test_unavailable_means_that_nothing_arrived(self, place: Place[Backend]) -> None:
        """When the other side cannot be reached, nothing arrives; later the same events do, in order."""

        async def scenario(backend: Backend) -> None:
            assert await backend.send(self.events(1, 1)) == Sent(1)
            with self.unreachable(place), pytest.raises(Unavailable):
                await backend.send(self.events(2, 3))
            assert self.arrived(place) == self.payloads(1, 1)
            assert await backend.send(self.events(2, 3)) == Sent(3)

        self.run(place, scenario)
        assert self.arrived(place) == self.payloads(1, 4)

    def test_a_lost_answer_is_no_definite_failure(self, place: Place[Backend]) -> None:
        """When events may have arrived, the outcome is unknown; sent again, all are there and in order."""

        async def scenario(backend: Backend) -> None:
            with self.losing_answers(place), pytest.raises(OutcomeUnknown):
                await backend.send(self.events(1, 3))
            assert self.arrived(place), "this test needs a backend where the events did arrive"
            assert await backend.send(self.events(1, 3)) == Sent(3)

        self.run(place, scenario)
        arrived = self.arrived(place)
        assert list(dict.fromkeys(arrived)) == self.payloads(1, 3)
        assert arrived[-1] == self.event(3).payload

    def test_a_cancelled_send_leaves_a_prefix(self, place: Place[Backend]) -> None:
        """A send that was cancelled may have delivered a prefix, and the backend can be used afterwards."""

        async def scenario(backend: Backend) -> None:
            for turns in range(4):
                task = asyncio.ensure_future(backend.send(self.events(1, 3)))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            assert await backend.send(self.events(1, 3)) == Sent(3)

        self.run(place, scenario)
        arrived = self.arrived(place)
        assert list(dict.fromkeys(arrived)) == self.payloads(1, 3)
        assert arrived[-3:] == self.payloads(1, 3)

    def test_a_crash_takes_nothing_back(self, place: Place[Backend]) -> None:
        """What was confirmed has arrived: the sender's death changes nothing, and the next one goes on."""

        async def scenario(backend: Backend) -> None:
            assert await backend.send(self.events(1, 2)) == Sent(2)

        self.run(place, scenario, crash=True)
        assert self.arrived(place) == self.payloads(1, 2)

        async def successor(backend: Backend) -> None:
            assert await backend.send(self.events(3, 1)) == Sent(1)

        self.run(place, successor)
        assert self.arrived(place) == self.payloads(1, 3)

    def test_closing_twice_does_nothing(self, place: Place[Backend]) -> None:
        """Closing may be repeated, also when nothing was ever sent."""

        async def scenario(backend: Backend) -> None:
            await backend.close()
            await backend.close()

        self.run(place, scenario)

    def events(self, first: int, count: int) -> list[Event]:
        """Events in a row."""
        return [self.event(number) for number in range(first, first + count)]

    def payloads(self, first: int, count: int) -> list[bytes]:
        """Their payloads."""
        return [one.payload for one in self.events(first, count)]

    def run(self, place: Place[Backend], scenario: Scenario, *, crash: bool = False) -> None:
        """Run a scenario in an event loop of its own, in which the backend is opened and closed."""

        async def main() -> None:
            async with self._opened(place, crash) as backend:
                await scenario(backend)

        asyncio.run(main())

    @asynccontextmanager
    async def _opened(self, place: Place[Backend], crash: bool) -> AsyncIterator[Backend]:
        backend = self.open(place.directory, place.clock)
        try:
            yield backend
        finally:
            if crash:
                self.crash(backend)
            else:
                await backend.close()
