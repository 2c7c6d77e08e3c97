"""The dispatcher: durable handlers before the answer, the others after it, and none in the way of another."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from thence.collect import lane
from thence.collect.failed import FailedEventHandler, FailedEvents, Refusals, letter_of, reason_of
from thence.collect.lineage import Failures
from thence.collect.validate import Validator
from thence.core.errors import Violation
from thence.core.event import Event
from thence.core.ports import DeadLetter
from thence.testing.clock import ManualClock
from thence.testing.contracts.deadletters import letter, numbers

LONG = 60.0


class Handler:
    """A handler whose calls wait until the test lets them go on."""

    def __init__(self, name: str = "kept", *, is_open: bool = True) -> None:
        self.name = name
        self.batches: list[list[int]] = []
        self.gate = threading.Event()
        self.entered = threading.Semaphore(0)
        self.error: Exception | None = None
        self.threads: set[str] = set()
        self.is_closed = False
        if is_open:
            self.gate.set()

    def handle(self, letters: Sequence[DeadLetter]) -> None:
        self.threads.add(threading.current_thread().name)
        self.batches.append(numbers(letters))
        self.entered.release()
        assert self.gate.wait(LONG)
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        self.is_closed = True


@contextmanager
def dispatching(
    durable: Sequence[FailedEventHandler], others: Sequence[FailedEventHandler] = (), seconds: float = LONG
) -> Iterator[FailedEvents]:
    events = FailedEvents(durable, others, answer_within_seconds=seconds)
    try:
        yield events
    finally:
        for handler in (*durable, *others):
            if isinstance(handler, Handler):
                handler.gate.set()
        events.close(LONG)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG):
        while not condition():
            await asyncio.sleep(0.005)


def flat(batches: Sequence[Sequence[int]]) -> list[int]:
    return [number for batch in batches for number in batch]


def entered(handler: Handler) -> None:
    assert handler.entered.acquire(timeout=LONG)


def test_the_answer_waits_for_every_durable_handler_and_for_no_other() -> None:
    first, second, other = Handler("a"), Handler("b", is_open=False), Handler("c", is_open=False)

    async def run() -> None:
        with dispatching([first, second], [other]) as events:
            future = events.submit(letter(1))
            entered(second)
            await until(lambda: events.counters()["a"].handled == 1)
            await asyncio.sleep(0.05)
            assert not future.done()
            assert other.batches == [], "the others are told afterwards"
            second.gate.set()
            await future
            entered(other)
            assert other.batches == [[1]]

    asyncio.run(run())
    assert first.is_closed
    assert second.is_closed
    assert other.is_closed


def test_what_gathers_meanwhile_is_one_batch_and_wakes_the_loop_once() -> None:
    handler = Handler(is_open=False)

    async def run() -> None:
        with dispatching([handler]) as events:
            first = events.submit(letter(0))
            entered(handler)
            rest = [events.submit(letter(number)) for number in range(1, 50)]
            loop = asyncio.get_running_loop()
            calls: list[object] = []
            real = loop.call_soon_threadsafe

            def counted(callback: Callable[..., object], *arguments: object) -> asyncio.Handle:
                calls.append(callback)
                return real(callback, *arguments)

            loop.call_soon_threadsafe = counted  # type: ignore[method-assign, assignment]
            handler.gate.set()
            await asyncio.gather(first, *rest)
            assert len(calls) == 2

    asyncio.run(run())
    assert handler.batches == [[0], list(range(1, 50))]
    assert len(handler.threads) == 1


def test_a_handler_that_raises_is_counted_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    bad, good, other = Handler("bad"), Handler("good"), Handler("other")
    bad.error = RuntimeError("no")
    other.error = ValueError("neither")

    async def run() -> None:
        with dispatching([bad, good], [other]) as events:
            for number in range(3):
                await events.submit(letter(number))
            await until(lambda: events.counters()["other"].failures == 3)
            counters = events.counters()
            assert (counters["bad"].handled, counters["bad"].failures) == (0, 3)
            assert (counters["good"].handled, counters["good"].failures) == (3, 0)
            bad.error = None
            await events.submit(letter(3))
            assert counters["bad"].handled == 1

    asyncio.run(run())
    actions = [getattr(record, "action", "") for record in caplog.records if "bad" in vars(record).values()]
    assert actions.count("failed_handler_failing") == 1, "a flood of failures is one record"


def test_a_handler_that_hangs_delays_the_first_answer_only_and_not_for_long() -> None:
    stuck, good = Handler("stuck", is_open=False), Handler("good")

    async def run() -> None:
        with dispatching([stuck, good], seconds=0.2) as events:
            async with asyncio.timeout(LONG):
                await events.submit(letter(0))
            assert events.counters()["stuck"].late == 1
            assert events.counters()["good"].late == 0
            # Whoever waited for it now would wait for longer than this test.
            events._patience = 10 * LONG
            later = [events.submit(letter(number)) for number in range(1, 20)]
            await until(lambda: events.counters()["good"].handled == 20)
            async with asyncio.timeout(LONG):
                await asyncio.gather(*later)
            assert events.counters()["stuck"].late == 20
            stuck.gate.set()
            await until(lambda: events.counters()["stuck"].handled == 20)
            # It is trusted again.
            stuck.gate.clear()
            future = events.submit(letter(20))
            await until(lambda: len(stuck.batches) == 3)
            assert not future.done()

    asyncio.run(run())


def test_queues_are_bounded_and_what_is_dropped_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "MAX_LETTERS", 5)
    stuck, other = Handler("stuck", is_open=False), Handler("other", is_open=False)

    async def run() -> None:
        with dispatching([stuck], [other], seconds=0.05) as events:
            futures = [events.submit(letter(0))]
            entered(stuck)
            futures += [events.submit(letter(number)) for number in range(1, 11)]
            async with asyncio.timeout(LONG):
                await asyncio.gather(*futures)
            assert events.counters()["stuck"].dropped == 5
            # How many its thread had taken already is chance; that not all of eleven fit is not.
            assert 1 <= events.counters()["other"].dropped <= 6

    asyncio.run(run())


def test_bytes_bound_a_queue_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "MAX_BYTES", 10)
    stuck = Handler("stuck", is_open=False)

    async def run() -> None:
        with dispatching([stuck], seconds=0.05) as events:
            events.submit(letter(0))
            entered(stuck)
            events.submit(letter(1))
            events.submit(letter(2))
            assert events.counters()["stuck"].dropped == 1, "one that is too big alone still goes"

    asyncio.run(run())


def test_closing_hands_over_what_is_queued() -> None:
    handler, other = Handler(is_open=False), Handler("other")

    async def run() -> FailedEvents:
        events = FailedEvents([handler], [other], answer_within_seconds=0.01)
        await asyncio.gather(*(events.submit(letter(number)) for number in range(5)))
        return events

    events = asyncio.run(run())
    threading.Timer(0.1, handler.gate.set).start()
    events.close(LONG)
    assert sorted(flat(handler.batches)) == [0, 1, 2, 3, 4]
    assert flat(other.batches) == [0, 1, 2, 3, 4]
    assert handler.is_closed


def test_closing_does_not_wait_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    handler = Handler(is_open=False)

    async def run() -> FailedEvents:
        events = FailedEvents([handler], answer_within_seconds=0.01)
        await events.submit(letter(1))
        return events

    events = asyncio.run(run())
    events.close(0.05)
    assert "failed_handler_abandoned" in [getattr(record, "action", "") for record in caplog.records]
    handler.gate.set()
    events.close(LONG)


def test_a_cancelled_wait_loses_no_letter() -> None:
    handler = Handler(is_open=False)

    async def run() -> None:
        with dispatching([handler]) as events:
            events.submit(letter(1)).cancel()
            handler.gate.set()
            await events.submit(letter(2))

    asyncio.run(run())
    assert flat(handler.batches) == [1, 2]


def test_without_handlers_the_answer_comes_at_once() -> None:
    async def run() -> None:
        with dispatching([]) as events:
            assert events.submit(letter(1)).done()

    asyncio.run(run())


def test_a_letter_says_what_the_validator_said() -> None:
    at = datetime(2026, 3, 4, tzinfo=UTC)
    payload = b'{"eventTime": "yesterday", "run": {"runId": 7}, "job": {"namespace": "n", "name": "j"}}'
    event = Event(letter(7).id, at, "", "key-1", payload)
    violations = Validator().check(payload).violations
    made = letter_of(event, violations, failed_at=at, remote="10.0.0.9", key_id="k")
    assert made.id == event.id
    assert made.event == event
    assert made.stage == "collect"
    assert made.code == violations[0].rule
    assert made.violations == violations
    assert (made.remote, made.key_id, made.failed_at) == ("10.0.0.9", "k", at)
    assert violations[0].path in made.reason
    assert f"and {len(violations) - 1} more" in made.reason
    assert "yesterday" not in made.reason, "the value is in the violations, not in the reason"


def test_a_reason_is_one_short_line() -> None:
    fault = Violation("run/" + "x" * 500 + "\n", "type", "7", "is\nwrong")
    assert len(reason_of([fault, fault])) <= 300
    assert "\n" not in reason_of([fault])
    assert reason_of([]) == "the event is invalid"
    assert letter_of(letter(1).event, (), failed_at=datetime.now(UTC)).code == "event.invalid"


def test_what_the_door_refuses_becomes_a_letter() -> None:
    handler = Handler()
    seen: list[DeadLetter] = []
    handle = handler.handle

    def keep(letters: Sequence[DeadLetter]) -> None:
        seen.extend(letters)
        handle(letters)

    handler.handle = keep  # type: ignore[method-assign]
    clock = ManualClock()
    fault = Violation("run/runId", "format.uuid", "7", "is not a uuid")

    async def run() -> None:
        with dispatching([handler]) as events:
            failures: Failures = Refusals(events, clock)
            await failures.submit(letter(1).event, (fault,), "10.0.0.9")

    asyncio.run(run())
    (made,) = seen
    assert made.event == letter(1).event
    assert (made.code, made.remote, made.key_id) == ("format.uuid", "10.0.0.9", letter(1).event.source)
    assert made.failed_at == clock.now()
