"""Ids strictly increase, whatever the clock and the threads do, and say when they were made."""

from __future__ import annotations

import itertools
import os
import time
import uuid
from datetime import UTC, datetime, timedelta
from uuid import UUID

from thence.core.clock import SystemClock
from thence.core.ids import IdFactory, time_of
from thence.testing.clock import ManualClock
from thence.testing.contracts.together import together

START = datetime(2024, 2, 29, 12, 0, 0, 123_000, tzinfo=UTC)


def test_version_and_variant() -> None:
    for identifier in [IdFactory()() for _ in range(1000)]:
        assert identifier.version == 7
        assert identifier.variant == uuid.RFC_4122


def test_an_id_says_when_it_was_made() -> None:
    clock = ManualClock(START + timedelta(microseconds=999))
    assert time_of(IdFactory(clock)()) == START
    # The example of RFC 9562, appendix A.6.
    example = UUID("017F22E2-79B0-7CC3-98C4-DC0C0C07398F")
    assert time_of(example) == datetime(2022, 2, 22, 19, 22, 22, tzinfo=UTC)


def test_a_system_clock_is_used_unless_another_is_given() -> None:
    before = SystemClock().now()
    made = time_of(IdFactory()())
    assert before - timedelta(milliseconds=1) <= made <= SystemClock().now()


def test_ids_strictly_increase_in_one_millisecond() -> None:
    factory = IdFactory(ManualClock(START))
    # More than the counter's 18 bits hold, so that it overflows into the next millisecond.
    made = [factory() for _ in range(300_000)]
    assert all(one < other for one, other in itertools.pairwise(made))
    assert made == sorted(set(made))
    assert time_of(made[0]) == START
    assert time_of(made[-1]) - START <= timedelta(milliseconds=3)


def test_ids_increase_when_the_clock_goes_back() -> None:
    clock = ManualClock(START)
    factory = IdFactory(clock)
    before = [factory() for _ in range(10)]
    clock.set_back(7200)
    during = [factory() for _ in range(10)]
    clock.advance(7201)
    after = factory()
    made = [*before, *during, after]
    assert made == sorted(set(made))
    assert {time_of(one) for one in during} == {START}
    assert time_of(after) == START + timedelta(seconds=1)


def test_ids_sort_by_time() -> None:
    clock = ManualClock(START)
    factory = IdFactory(clock)
    made = []
    for _ in range(100):
        made.append(factory())
        clock.advance(0.001)
    assert [time_of(one) for one in made] == [START + timedelta(milliseconds=n) for n in range(100)]


class Yielding(int):
    """A number that lets other threads run between being read and being written back."""

    def __add__(self, other: int) -> Yielding:
        time.sleep(0)
        return Yielding(int(self) + other)


def test_threads_share_a_factory() -> None:
    factory = IdFactory(ManualClock(START))
    factory()
    factory._counter = Yielding(factory._counter)

    def make() -> list[UUID]:
        return [factory() for _ in range(500)]

    shares = together([make] * 4)
    # The random part would hide a counter that was given out twice, so look at what stands before it.
    assert len({one.int >> 56 for share in shares for one in share}) == 2_000
    for share in shares:
        assert share == sorted(share)


def test_two_factories_do_not_make_the_same_id() -> None:
    clock = ManualClock(START)
    factories = [IdFactory(clock) for _ in range(200)]
    assert len({factory() for factory in factories}) == 200


def test_parent_and_child_go_different_ways() -> None:
    """The same factory, in the same millisecond, on both sides of a fork."""
    factory = IdFactory(ManualClock(START))
    factory()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b"".join(factory().bytes for _ in range(50)))
        os._exit(0)
    mine = {factory() for _ in range(50)}
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        raw = pipe.read()
    os.waitpid(child, 0)
    theirs = {UUID(bytes=raw[at : at + 16]) for at in range(0, len(raw), 16)}
    assert len(theirs) == 50
    assert mine.isdisjoint(theirs)
