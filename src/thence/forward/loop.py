"""The forwarder: sends what one cursor has not passed, in order, for ever.

While a batch is on its way, the next one is read and judged. Whatever a batch's end is, the cursor follows it:

1. An event that the destination cannot take is put to the dead letters, durably, before its batch is sent.
2. The batch is sent. What was confirmed is done with; the rest is sent again, from the first that was not.
3. What is done with is settled by one sync for many batches, at most `settle_seconds` later.

A death anywhere repeats what was not settled, with the same ids, and passes over nothing. All this, files included,
happens in a thread and an event loop of the forwarder's own: nobody waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from thence.core.clock import Clock, SystemClock
from thence.core.errors import InvariantBroken, Rejected, ThenceError, Unavailable
from thence.core.event import Record
from thence.core.ports import Backend, Cursor, DeadLetter, DeadLetters
from thence.core.tally import Settled
from thence.forward.batch import Batch, take
from thence.forward.bell import Bell
from thence.forward.breaker import Breaker
from thence.forward.condition import Condition
from thence.forward.failure import Misconfigured
from thence.forward.flight import Departures, Flight, Outcome
from thence.forward.parking import letter
from thence.forward.policy import Policy
from thence.forward.reader import Reader
from thence.forward.rules import Rules
from thence.forward.stats import Counters, Stats, Trouble
from thence.forward.thread import LoopThread

_log = logging.getLogger(__name__)
_FIRST_ALLOWANCE = 100


class Forwarder:
    """One destination. `start` and `stop` run it in a thread; `run` is for an event loop that nobody else needs.

    `parked` takes dead letters durably, as `DeadLetters.put` does.
    """

    def __init__(
        self,
        name: str,
        cursor: Cursor,
        backend: Backend,
        policy: Policy | None = None,
        *,
        parked: DeadLetters | Callable[[Sequence[DeadLetter]], None],
        rules: Rules | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.policy = policy or Policy()
        self.rules = rules or Rules()
        self._cursor = cursor
        self._backend = backend
        self._put = parked if callable(parked) else parked.put
        self._clock = clock or SystemClock()
        self._bell = Bell(self._clock)
        self._breaker = Breaker(self.policy)
        self._reader = Reader(cursor, self.policy, self._clock)
        self._counters = Counters()
        self._condition = Condition(name, self._clock)
        self._departures = Departures(name, backend, self._counters, self._clock)
        self._allowance = min(_FIRST_ALLOWANCE, self.policy.max_events)
        self._parked_to = 0
        self._attempts = 0
        self._flight: Flight | None = None
        self._thread: LoopThread | None = None

    # For everybody, from any thread

    def start(self) -> None:
        """Run in a thread of its own."""
        self._thread = LoopThread(self.name, self.run, self._end)
        self._thread.start()

    def notify(self) -> None:
        """Something was appended. Cheap: call it after every commit."""
        self._bell.notify()

    def retry(self) -> None:
        """Try again now what waits for a destination or is blocked."""
        self._bell.retry()

    def stop(self, *, seconds: float = 5.0, drain: bool = False) -> None:
        """End: what is on its way may arrive within so many seconds; with `drain`, all that waits may."""
        self._bell.stop(drain=drain)
        if self._thread is not None:
            self._thread.end(seconds)

    def stats(self) -> Stats:
        """Where it stands."""
        tally = self._cursor.tally()
        events, size_bytes = self._reader.lag(tally.waiting)
        oldest = self._reader.oldest_at() if events else None
        age = (self._clock.now() - oldest).total_seconds() if oldest is not None else 0.0
        counters = msgspec.structs.replace(self._counters)
        return Stats(
            self.name,
            tally,
            events,
            size_bytes,
            max(0.0, age),
            counters,
            self._breaker.state,
            self._condition.trouble,
        )

    def trouble(self) -> Trouble | None:
        """Why it does not get on; None when all is well."""
        return self._condition.trouble

    # The loop

    async def run(self) -> None:
        """Forward until `stop` is called. Blocks its event loop while files are read and synced."""
        self._bell.attach()
        try:
            while not self._is_over():
                try:
                    await self._forward()
                except (InvariantBroken, Rejected):
                    raise
                except Exception as error:  # boundary: nothing that goes wrong here may end forwarding
                    self._condition.note_failure("failed", error)
                    await self._drop_flight()
                    self._reader.start_over()
                    await self._bell.pause(self._in(self.policy.longest_delay_seconds))
            self._reader.settle()
        finally:
            with suppress(ThenceError):
                self._reader.settle()
            await self._drop_flight()
            await self._backend.close()

    async def _forward(self) -> None:
        while not self._is_over():
            if self._flight is None:
                batch = self._next()
                if batch is None:
                    await self._rest()
                    continue
                await self._launch(batch)
            is_steady = self._breaker.failures == 0 and not self._bell.is_stopping
            await self._land(self._next() if is_steady else None)

    def _is_over(self) -> bool:
        if not self._bell.is_stopping or self._flight is not None:
            return False
        return not self._bell.drains or not (self._reader.waiting or self._reader.fill())

    def _next(self) -> Batch | None:
        """Read and judge the next batch."""
        if not self._reader.fill():
            return None
        many = 1 if self._breaker.probes_only else self._allowance
        batch = take(self._reader.waiting, self.rules, max_events=many, max_bytes=self.policy.max_bytes)
        self._reader.take(batch.records)
        return batch

    async def _rest(self) -> None:
        """Nothing is new: settle what is due, and wait."""
        due = self._reader.due_in()
        if due == 0.0:
            await self._persist(self._reader.settle)
            return
        self._bell.listen()
        if not self._reader.fill():
            poll = self.policy.poll_seconds
            await self._bell.wait_for_news(poll if due is None else min(poll, due))

    async def _launch(self, batch: Batch) -> None:
        fresh = [(record, fate) for record, fate in batch.parked if record.position > self._parked_to]
        if fresh:
            letters = [self._letter(record, fate.code, fate.reason) for record, fate in fresh]
            await self._persist(lambda: self._put(letters))
            self._parked_to = fresh[-1][0].position
        self._flight = self._departures.launch(batch)

    async def _land(self, following: Batch | None) -> None:
        """Wait for what is on its way, let the next batch follow, and settle what is due."""
        flight = self._flight
        assert flight is not None  # noqa: S101 - _forward has launched it
        outcome = await flight.task
        self._flight = None
        batch = flight.batch
        reach = batch.reach(outcome.delivered)
        rest = batch.records[reach:]
        if rest:
            self._reader.put_back(following.records if following is not None else ())
            self._reader.put_back(rest)
        self._count(batch.settled(reach))
        self._adapt(len(batch.sends), reach)
        if following is not None and not rest:
            await self._launch(following)
        if self._reader.due_in() == 0.0:
            await self._persist(self._reader.settle)
        if rest:
            await self._stumble(outcome, rest[0])
        elif batch.sends:
            self._recover()

    async def _stumble(self, outcome: Outcome, record: Record) -> None:
        """Something was not delivered: park it, or wait before it is sent again."""
        if outcome.delivered:
            self._recover()
        self._counters.retries += 1
        self._attempts += 1
        if outcome.refusal is not None and self.policy.on_refusal == "park":
            await self._park(record, outcome.refusal)
            return
        if outcome.refusal is not None:
            self._condition.note_refusal(record, outcome.refusal)
        elif outcome.error is not None:
            is_ours = isinstance(outcome.error, Misconfigured)
            self._condition.note("misconfigured" if is_ours else "unavailable", outcome.error)
        elif outcome.delivered:
            return
        seconds = self._breaker.fail(outcome.error)
        if self._reader.unsettled.total and seconds:
            await self._persist(self._reader.settle)
        until, self._breaker.is_waiting = self._in(seconds), True
        await self._bell.pause(until)
        self._breaker.is_waiting = False

    async def _park(self, record: Record, refusal: str) -> None:
        reason = self._letter(record, "forward.refused", refusal)
        await self._persist(lambda: self._put([reason]))
        self._reader.waiting.popleft()
        self._reader.take([record])
        self._count(Settled(parked=1))
        self._recover()
        about = {"action": "forward_parked", "destination": self.name, "event": str(record.event.id)}
        _log.warning("parked an event that was refused: %s", refusal, extra=about)

    async def _persist(self, action: Callable[[], None]) -> None:
        """Do something that must become durable, until our own disk takes it."""
        while True:
            try:
                action()
            except Unavailable as error:
                self._condition.note("own_disk", error)
                if self._bell.is_stopping:
                    raise
                await self._bell.pause(self._in(self.policy.poll_seconds))
            else:
                return

    async def _drop_flight(self) -> None:
        flight, self._flight = self._flight, None
        if flight is not None:
            await flight.cancel()

    # Bookkeeping

    def _in(self, seconds: float) -> float:
        return self._clock.monotonic() + seconds

    def _count(self, settled: Settled) -> None:
        if not settled.total:
            return
        size_bytes = self._reader.done(settled)
        self._counters.delivered += settled.delivered
        self._counters.settled_bytes += size_bytes
        self._counters.parked += settled.parked
        self._counters.filtered += settled.filtered

    def _adapt(self, sent: int, reach: int) -> None:
        """Aim at calls of about `send_seconds`."""
        seconds = self._counters.last_send_seconds
        if not sent or not reach or seconds is None:
            return
        wanted = self.policy.send_seconds
        if seconds > wanted:
            self._allowance = max(1, int(reach * wanted / seconds))
        elif seconds < wanted / 2 and sent >= self._allowance:
            self._allowance = min(self.policy.max_events, self._allowance * 2)

    def _letter(self, record: Record, code: str, reason: str) -> DeadLetter:
        attempts = max(1, self._attempts)
        return letter(
            self.name, record.event, code=code, reason=reason, now=self._clock.now(), attempts=attempts
        )

    def _recover(self) -> None:
        self._breaker.succeed()
        self._attempts = 0
        self._condition.well()

    def _end(self, error: Exception) -> None:
        self._condition.note_failure("ended", error)
