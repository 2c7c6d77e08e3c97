"""Forwarders with a real journal and a real server, while links break, answers are lost and processes die."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.receiver import Receiver, Told
from thence.core.errors import Unavailable
from thence.core.event import Event
from thence.core.ports import DeadLetter
from thence.forward.http import HttpBackend, HttpTarget
from thence.forward.loop import Forwarder
from thence.forward.parking import letter_id
from thence.forward.policy import Policy
from thence.forward.rules import Drop, Rules, Takes
from thence.forward.stats import Stats, Trouble
from thence.forward.wire import Timeouts
from thence.journal.limits import Limits
from thence.journal.log import FileJournal
from thence.testing.clock import ManualClock
from thence.testing.contracts.samples import event, events
from thence.testing.faults import FaultProxy
from thence.testing.memory import Disk, MemoryDeadLetters

QUICK = Policy(
    first_delay_seconds=0.01, longest_delay_seconds=0.05, blocked_delay_seconds=0.1, settle_seconds=0.05
)
PARKING = msgspec.structs.replace(QUICK, on_refusal="park")
SHORT = Timeouts(connect_seconds=2.0, answer_seconds=0.3)


def wait_until(check: Callable[[], bool], what: str, *, seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < until, f"waited {seconds} seconds for {what}"
        time.sleep(0.005)


def no_parking(letters: Sequence[DeadLetter]) -> None:
    raise AssertionError(f"nothing is to be parked: {letters}")


def payloads(count: int, *, first: int = 1) -> list[bytes]:
    return [each.payload for each in events(count, first=first)]


class Site:
    """A journal, a server, a proxy between, and what was parked."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.stack = ExitStack()
        self.receiver = self.stack.enter_context(Receiver())
        self.proxy = self.stack.enter_context(FaultProxy(self.receiver.address))
        self.journal = FileJournal(directory / "journal")
        self.stack.callback(self._close)
        self.letters = MemoryDeadLetters(Disk())

    def _close(self) -> None:
        self.journal.close()  # the one that is open then

    def target(self, *, batch: bool = False, timeouts: Timeouts = SHORT) -> HttpTarget:
        url = "http://{}:{}/api/v1/lineage".format(*self.proxy.address)
        return HttpTarget(url, f"{url}/batch" if batch else None, timeouts=timeouts)

    def forwarder(self, policy: Policy = QUICK, *, name: str = "lineage", **more: Any) -> Forwarder:
        batch = more.pop("batch", False)
        timeouts = more.pop("timeouts", SHORT)
        backend = HttpBackend(self.target(batch=batch, timeouts=timeouts))
        more.setdefault("parked", self.letters)
        return Forwarder(name, self.journal.cursor(name), backend, policy, **more)

    @contextmanager
    def running(self, policy: Policy = QUICK, **more: Any) -> Iterator[Forwarder]:
        forwarder = self.forwarder(policy, **more)
        forwarder.start()
        try:
            yield forwarder
        finally:
            forwarder.stop()

    def settled(self, forwarder: Forwarder) -> bool:
        return forwarder.stats().tally.waiting == 0

    @property
    def arrived(self) -> list[bytes]:
        return list(self.receiver.arrived)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    with site.stack:
        yield site


@pytest.mark.parametrize("batch", [False, True])
def test_what_waits_and_what_comes_arrives_in_order(site: Site, batch: bool) -> None:
    site.journal.append(events(250))
    with site.running(batch=batch) as forwarder:
        for number in range(251, 301):
            site.journal.append([event(number)])
            forwarder.notify()
        wait_until(lambda: site.settled(forwarder), "all to be settled")
        assert site.arrived == payloads(300)
        stats = forwarder.stats()
        assert stats.tally.holds
        assert stats.tally.settled.delivered == stats.counters.delivered == 300
        assert (stats.lag_events, stats.lag_bytes, stats.lag_seconds) == (0, 0, 0.0)
        assert (stats.breaker, stats.trouble) == ("closed", None)


def test_a_word_about_news_is_enough_to_wake_it(site: Site) -> None:
    never = Policy(poll_seconds=3600.0)
    with site.running(never) as forwarder:
        for number in range(1, 21):
            site.journal.append([event(number)])
            forwarder.notify()
            wait_until(lambda wanted=number: len(site.arrived) == wanted, "the event")  # type: ignore[misc]
            time.sleep(0.002 * (number % 3))  # so that it is found asleep, awake and in between


def test_without_a_word_it_looks_by_itself(site: Site) -> None:
    with site.running(Policy(poll_seconds=0.05)):
        for number in (1, 2):
            site.journal.append([event(number)])
            wait_until(lambda wanted=number: len(site.arrived) == wanted, "the event")  # type: ignore[misc]


def test_many_events_are_settled_by_few_syncs(site: Site) -> None:
    with site.running(Policy(settle_seconds=1.0)) as forwarder:
        for number in range(1, 101):
            site.journal.append([event(number)])
            forwarder.notify()
            wait_until(lambda wanted=number: len(site.arrived) == wanted, "the event")  # type: ignore[misc]
        wait_until(lambda: site.settled(forwarder), "all to be settled")
        assert site.journal._marks["lineage"].slot.number < 20


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("fault", ["cut", "lost_answers", "hang", "drop"])
def test_broken_links_lose_nothing_and_keep_the_order(site: Site, fault: str, batch: bool) -> None:
    site.journal.append(events(60))
    with site.running(
        msgspec.structs.replace(QUICK, max_events=20, first_delay_seconds=0.01, longest_delay_seconds=0.05),
        batch=batch,
    ) as forwarder:
        for round_ in range(3):
            wanted = len(site.arrived)
            if fault == "drop":
                site.proxy.drop(reset=bool(round_ % 2))
            else:
                with getattr(site.proxy, fault)():
                    site.journal.append(events(20, first=61 + 20 * round_))
                    forwarder.notify()
                    wait_until(lambda: forwarder.trouble() is not None, "the trouble to be seen")
            forwarder.retry()
            wait_until(lambda: forwarder.trouble() is None, "it to go on")
            assert len(site.arrived) >= wanted
        wait_until(lambda: site.settled(forwarder), "all to be settled")
        count = 60 if fault == "drop" else 120
        arrived = site.arrived
        assert list(dict.fromkeys(arrived)) == payloads(count)
        if fault == "cut" and not batch:
            # A cut may fall between the arrival of an event and its answer, once for each cut.
            assert len(arrived) - count <= 3
        assert forwarder.stats().tally.holds


def test_only_an_answer_that_was_lost_makes_a_duplicate(site: Site) -> None:
    with site.running() as forwarder:
        site.journal.append(events(10))
        forwarder.notify()
        wait_until(lambda: len(site.arrived) == 10, "the first ones")
        with site.proxy.lost_answers(1):
            site.journal.append(events(1, first=11))
            forwarder.notify()
            wait_until(lambda: len(site.arrived) == 12, "the repetition")
        site.journal.append(events(10, first=12))
        forwarder.notify()
        wait_until(lambda: site.settled(forwarder), "all to be settled")
    assert site.arrived == [*payloads(11), event(11).payload, *payloads(10, first=12)]
    assert forwarder.stats().counters.retries == 1


def test_a_failure_in_the_middle_repeats_nothing_that_was_confirmed(site: Site) -> None:
    whole = site.receiver._take_one
    failures = [event(5).payload, event(5).payload, event(8).payload]

    def take_one(payload: bytes) -> Told:
        if payload in failures:
            failures.remove(payload)
            return Told(503)
        return whole(payload)

    site.receiver._take_one = take_one  # type: ignore[method-assign]
    site.journal.append(events(10))
    with site.running() as forwarder:
        wait_until(lambda: site.settled(forwarder), "all to be settled")
    assert failures == []
    assert site.arrived == payloads(10)


def test_it_waits_as_long_as_it_is_asked_to(site: Site) -> None:
    clock = ManualClock()
    site.receiver.told.extend([Told(503, (("Retry-After", "600"),)), Told(429, (("Retry-After", "600"),))])
    site.journal.append(events(3))
    with site.running(Policy(breaker_failures=1), clock=clock) as forwarder:
        for count in (1, 2):
            wait_until(lambda wanted=count: is_waiting(site, forwarder, wanted), "the pause")  # type: ignore[misc]
            clock.advance(599.0)
            time.sleep(0.6)  # longer than it takes to look at the clock again
            assert len(site.receiver.requests) == count
            clock.advance(2.0)
        wait_until(lambda: site.arrived == payloads(3), "all of them")


def is_waiting(site: Site, forwarder: Forwarder, count: int) -> bool:
    return len(site.receiver.requests) == count and forwarder.stats().breaker == "open"


def test_after_failures_in_a_row_it_sends_single_probes(site: Site) -> None:
    site.journal.append(events(50))
    site.receiver.told.extend([Told(500)] * 8)
    with site.running(
        msgspec.structs.replace(
            QUICK, first_delay_seconds=0.01, longest_delay_seconds=0.02, breaker_failures=3
        ),
        batch=True,
    ) as forwarder:
        wait_until(lambda: site.settled(forwarder), "all to be settled")
    sizes = [request.body.count(b'"number"') for request in site.receiver.requests]
    assert sizes[:9] == [50] * 3 + [1] * 6
    assert sizes[9:] == [49]
    assert site.arrived == payloads(50)


def test_the_breaker_is_seen(site: Site) -> None:
    site.journal.append(events(2))
    with site.proxy.cut(), site.running(Policy(breaker_failures=2, first_delay_seconds=0.05)) as forwarder:
        wait_until(lambda: forwarder.stats().breaker == "open", "the breaker to open")
        trouble = forwarder.trouble()
        assert trouble is not None
        assert (trouble.kind, trouble.code) == ("unavailable", "forward.unreachable")
        assert forwarder.stats().lag_events == 2
        assert forwarder.stats().lag_bytes == len(b"".join(payloads(2)))
        assert forwarder.stats().lag_seconds > 0


def test_a_refused_event_blocks_and_says_why(site: Site) -> None:
    site.receiver.refused.add(event(3).payload)
    site.journal.append(events(5))
    with site.running(parked=no_parking) as forwarder:
        wait_until(lambda: forwarder.stats().counters.retries > 2, "some more tries")
        trouble = forwarder.trouble()
        assert trouble is not None
        assert (trouble.kind, trouble.code) == ("blocked", "forward.refused")
        assert str(event(3).id) in trouble.message
        assert "not this one" in trouble.message
        assert site.arrived == payloads(2)
        assert forwarder.stats().tally.settled.delivered == 2
        site.receiver.refused.clear()
        wait_until(lambda: site.settled(forwarder), "all to be settled")
        assert site.arrived == payloads(5)
        assert forwarder.trouble() is None


@pytest.mark.parametrize("batch", [False, True])
def test_a_refused_event_is_parked_where_that_is_wanted(site: Site, batch: bool) -> None:
    site.receiver.refused.update({event(3).payload, event(4).payload, event(9).payload})
    site.journal.append(events(10))
    with site.running(PARKING, batch=batch) as forwarder:
        wait_until(lambda: site.settled(forwarder), "all to be settled")
        settled = forwarder.stats().tally.settled
    assert [each for each in payloads(10) if each not in site.receiver.refused] == site.arrived
    assert (settled.delivered, settled.parked) == (7, 3)
    found = site.letters.find()
    assert [each.event for each in found] == [event(3), event(4), event(9)]
    assert {(each.stage, each.code) for each in found} == {("forward.lineage", "forward.refused")}
    assert "not this one" in found[0].reason


def test_a_batch_that_is_refused_as_a_whole_is_divided_until_the_culprit_is_found(site: Site) -> None:
    whole = site.receiver._take_batch

    def take_batch(body: bytes) -> Told:
        return Told(400, body=b"bad") if event(6).payload in body else whole(body)

    site.receiver._take_batch = take_batch  # type: ignore[method-assign]
    site.journal.append(events(20))
    with site.running(PARKING, batch=True) as forwarder:
        wait_until(lambda: site.settled(forwarder), "all to be settled")
    assert site.arrived == payloads(5) + payloads(14, first=7)
    assert [each.event for each in site.letters.find()] == [event(6)]


def test_a_batch_endpoint_that_goes_on_behind_a_refused_event_gets_nothing_twice(site: Site) -> None:
    site.receiver.stops_at_failure = False
    site.receiver.refused.update({event(3).payload, event(8).payload})
    site.receiver.later.add(event(5).payload)
    site.journal.append(events(10))
    with site.running(PARKING, batch=True) as forwarder:
        wait_until(lambda: forwarder.stats().counters.retries > 3, "some more tries")
        site.receiver.later.clear()
        wait_until(lambda: site.settled(forwarder), "all to be settled")
    assert sorted(site.arrived) == sorted(set(payloads(10)) - site.receiver.refused)
    assert [each.event for each in site.letters.find()] == [event(3), event(8)]


def test_what_a_destination_cannot_take_is_parked_at_once(site: Site) -> None:
    large = event(2, size_bytes=1000)
    site.journal.append([event(1), large, event(3)])
    with site.running(rules=Rules(takes=Takes(max_bytes=500))) as forwarder:
        wait_until(lambda: site.settled(forwarder), "all to be settled")
        settled = forwarder.stats().tally.settled
    assert site.arrived == [event(1).payload, event(3).payload]
    assert (settled.delivered, settled.parked) == (2, 1)
    (found,) = site.letters.find()
    assert (found.code, found.event) == ("forward.too_large", large)


def test_parking_is_durable_before_the_cursor_moves(site: Site) -> None:
    full = True
    order: list[str] = []

    def put(letters: Sequence[DeadLetter]) -> None:
        if full:
            raise Unavailable("journal.disk_full", "no space left")
        order.append("put")
        site.letters.put(letters)

    def settling(settled: Any) -> None:
        order.append(f"settle {settled.parked}")
        settle(settled)

    forwarder = site.forwarder(PARKING, parked=put)
    settle = forwarder._cursor.settle
    forwarder._cursor.settle = settling  # type: ignore[method-assign]
    site.receiver.refused.add(event(2).payload)
    site.journal.append(events(3))
    forwarder.start()
    try:
        wait_until(lambda: kind_of(forwarder.trouble()) == "own_disk", "the trouble to be seen")
        assert "settle 1" not in order
        full = False
        forwarder.retry()
        wait_until(lambda: site.settled(forwarder), "all to be settled")
    finally:
        forwarder.stop()
    assert order.index("put") < order.index("settle 1")
    assert site.arrived.count(event(1).payload) == 1


def kind_of(trouble: Trouble | None) -> str:
    return trouble.kind if trouble is not None else ""


def test_a_death_between_parking_and_settling_parks_no_second_letter(site: Site) -> None:
    site.receiver.refused.add(event(1).payload)
    site.journal.append(events(1))
    cursor = site.journal.cursor("lineage")

    class Death(BaseException):
        pass

    for _ in range(2):
        died: list[object] = []

        def dying(settled: Any, died: list[object] = died) -> None:
            died.append(settled)
            raise Unavailable("journal.disk", "it died here")

        forwarder = site.forwarder(PARKING)
        forwarder._cursor.settle = dying  # type: ignore[method-assign]
        forwarder.start()
        wait_until(lambda died=died: bool(died), "the parked event to be settled")  # type: ignore[misc]
        forwarder.stop()
        assert cursor.tally().waiting == 1
    with site.running(PARKING) as forwarder:
        wait_until(lambda: site.settled(forwarder), "all to be settled")
    assert [each.id for each in site.letters.find()] == [letter_id("lineage", event(1).id)]


@pytest.mark.parametrize(
    ("status", "code"),
    [(401, "forward.key_refused"), (404, "forward.wrong_address"), (302, "forward.wrong_address")],
)
def test_a_wrong_key_or_address_is_an_alarm_and_costs_no_event(site: Site, status: int, code: str) -> None:
    site.receiver.told.extend([Told(status)] * 3)
    site.journal.append(events(2))
    with site.running(PARKING) as forwarder:
        wait_until(lambda: forwarder.trouble() is not None, "the trouble to be seen")
        trouble = forwarder.trouble()
        assert trouble is not None
        assert (trouble.kind, trouble.code) == ("misconfigured", code)
        wait_until(lambda: site.settled(forwarder), "all to be settled")
    assert site.arrived == payloads(2)
    assert site.letters.count() == {}


def test_a_dead_destination_delays_no_other(site: Site) -> None:
    clock = ManualClock()
    with Receiver() as other, site.proxy.cut():
        alive = Forwarder(
            "alive", site.journal.cursor("alive"), HttpBackend(HttpTarget(other.url())), parked=no_parking, clock=clock
        )  # fmt: skip
        alive.start()
        try:
            with site.running(Policy(), name="dead", clock=clock, parked=no_parking) as dead:
                for minute in range(60):
                    site.journal.append(
                        [event_at(clock, number) for number in range(10 * minute, 10 * minute + 10)]
                    )
                    alive.notify()
                    dead.notify()
                    wait_until(lambda wanted=10 * minute + 10: len(other.arrived) == wanted, "the living one")  # type: ignore[misc]
                    assert alive.stats().lag_seconds == 0.0
                    clock.advance(60.0)
                assert alive.stats().lag_events == 0
                wait_until(lambda: later(clock, dead).breaker == "open", "the breaker")
                assert dead.stats().lag_events == 600
                assert dead.stats().lag_seconds >= 3600
                assert dead.stats().tally.holds
                site.proxy.heal()
                dead.retry()
                wait_until(lambda: len(site.arrived) == 600, "the dead one to catch up")
        finally:
            alive.stop()
    assert site.arrived == other.arrived


def later(clock: ManualClock, forwarder: Forwarder) -> Stats:
    clock.advance(1.0)
    return forwarder.stats()


def event_at(clock: ManualClock, number: int) -> Event:
    return msgspec.structs.replace(event(number + 1), received_at=clock.now())


def test_filtered_events_are_settled_and_told_apart(site: Site) -> None:
    site.journal.append([ol(number, "noise" if number % 3 else "job") for number in range(1, 31)])
    with site.running(rules=Rules(drop=(Drop("job.name", "noise"),))) as forwarder:
        wait_until(lambda: site.settled(forwarder), "all to be settled")
        settled = forwarder.stats().tally.settled
    assert (settled.delivered, settled.filtered) == (10, 20)
    assert site.arrived == [ol(number, "job").payload for number in range(3, 31, 3)]


def ol(number: int, job: str) -> Event:
    payload = b'{"run": {"runId": "%d"}, "job": {"namespace": "n", "name": "%s"}}' % (number, job.encode())
    return msgspec.structs.replace(event(number), payload=payload)


def test_records_that_expire_under_its_hands_break_nothing(tmp_path: Path, site: Site) -> None:
    site.journal.close()
    site.journal = FileJournal(tmp_path / "small", Limits(max_bytes=40_000, partition_bytes=4_000))
    with site.proxy.cut(), site.running() as forwarder:
        for number in range(1, 1001):
            site.journal.append([event(number)])
            forwarder.notify()
            if number == 50:
                wait_until(lambda: forwarder.trouble() is not None, "it to have some in hand")
        site.proxy.heal()
        wait_until(lambda: site.settled(forwarder), "all to be settled")
        tally = forwarder.stats().tally
    assert tally.holds
    assert tally.settled.expired > 0
    numbers = [payloads(1000).index(each) for each in site.arrived]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == tally.settled.delivered
    assert numbers[-1] == 999


def test_a_dropped_cursor_ends_its_forwarder_and_says_so(site: Site) -> None:
    with site.running() as forwarder:
        site.journal.drop_cursor("lineage")
        site.journal.append(events(1))
        forwarder.notify()
        wait_until(lambda: forwarder.trouble() is not None, "the trouble to be seen")
        trouble = forwarder.trouble()
        assert trouble is not None
        assert (trouble.kind, trouble.code) == ("ended", "journal.cursor_dropped")


def test_stopping_settles_what_was_delivered(site: Site) -> None:
    site.journal.append(events(20))
    with site.running(Policy(settle_seconds=3600.0, settle_events=1 << 30)):
        wait_until(lambda: len(site.arrived) == 20, "all of them")
    assert site.journal.cursor("lineage").tally().waiting == 0
    with site.running() as forwarder:
        site.journal.append(events(1, first=21))
        forwarder.notify()
        wait_until(lambda: len(site.arrived) == 21, "the next one")
    assert site.arrived == payloads(21)


def test_stopping_with_a_drain_sends_what_waits(site: Site) -> None:
    site.journal.append(events(500))
    forwarder = site.forwarder()
    forwarder.start()
    forwarder.stop(seconds=30.0, drain=True)
    assert site.arrived == payloads(500)
    assert site.journal.cursor("lineage").tally().waiting == 0


@pytest.mark.parametrize("drain", [False, True])
def test_stopping_does_not_wait_for_a_destination_that_hangs(site: Site, drain: bool) -> None:
    site.journal.append(events(3))
    with site.proxy.hang():
        forwarder = site.forwarder(timeouts=Timeouts(answer_seconds=3600.0))
        forwarder.start()
        wait_until(lambda: forwarder.stats().counters.sends == 1, "the send")
        forwarder.stop(seconds=0.1, drain=drain)
    assert forwarder._thread is not None
    assert not forwarder._thread.is_alive
    assert site.journal.cursor("lineage").tally().waiting == 3


def test_what_was_delivered_before_it_was_cut_off_is_settled(site: Site) -> None:
    forwarder = site.forwarder(Policy(settle_seconds=3600.0), timeouts=Timeouts(answer_seconds=3600.0))
    site.journal.append(events(3))
    forwarder.start()
    wait_until(lambda: forwarder.stats().counters.delivered == 3, "the first ones")
    with site.proxy.hang():
        site.journal.append(events(2, first=4))
        forwarder.notify()
        wait_until(lambda: forwarder.stats().counters.sends == 2, "the next send")
        forwarder.stop(seconds=0.1)
    assert site.journal.cursor("lineage").tally().settled.delivered == 3


def test_a_defect_of_a_backend_is_told_and_survived(site: Site) -> None:
    site.journal.append(events(3))
    forwarder = site.forwarder(Policy(longest_delay_seconds=0.05))
    whole = forwarder._backend.send
    failures = [ValueError("a defect"), KeyError("another")]

    async def send(batch: Sequence[Event]) -> Any:
        if failures:
            raise failures.pop()
        return await whole(batch)

    forwarder._backend.send = send  # type: ignore[method-assign,assignment]
    forwarder.start()
    try:
        wait_until(lambda: site.settled(forwarder), "all to be settled")
    finally:
        forwarder.stop()
    assert site.arrived == payloads(3)
