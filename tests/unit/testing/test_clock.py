"""The clock that tests move."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest

from thence.testing.clock import ManualClock

NOON = datetime(2024, 2, 29, 12, 0, tzinfo=UTC)


def test_it_stands_until_it_is_moved() -> None:
    clock = ManualClock(NOON)
    assert (clock.now(), clock.monotonic()) == (NOON, 0)
    clock.advance(1.5)
    assert (clock.now(), clock.monotonic()) == (NOON + timedelta(seconds=1.5), 1.5)


def test_setting_it_back_leaves_the_monotonic_clock() -> None:
    clock = ManualClock(NOON)
    clock.advance(10)
    clock.set_back(7200)
    assert (clock.now(), clock.monotonic()) == (NOON - timedelta(seconds=7190), 10)


def test_time_does_not_pass_backwards() -> None:
    with pytest.raises(ValueError, match="set_back"):
        ManualClock().advance(-1)


def test_sleeping_moves_it() -> None:
    clock = ManualClock(NOON)
    clock.sleep(3600)
    assert clock.now() == NOON + timedelta(hours=1)


def test_a_waiting_sleeper_wakes_when_its_time_has_come_and_not_before() -> None:
    clock = ManualClock(waits=True)
    woken: list[float] = []

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        woken.append(seconds)

    threads = [threading.Thread(target=sleep, args=(seconds,)) for seconds in (1, 5)]
    for thread in threads:
        thread.start()
    clock.wait_for_sleepers(2)
    clock.advance(1)
    threads[0].join(20)
    assert woken == [1]
    clock.wait_for_sleepers(1)
    clock.advance(4)
    threads[1].join(20)
    assert woken == [1, 5]


def test_waiting_for_sleepers_that_do_not_come_ends() -> None:
    with pytest.raises(TimeoutError, match="0 threads sleep, 1 were expected"):
        ManualClock(waits=True).wait_for_sleepers(1, timeout_seconds=0.01)
