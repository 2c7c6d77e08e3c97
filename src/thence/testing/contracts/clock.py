"""What a `Clock` promises. A clock keeps nothing, so there is nothing that it could lose in a crash."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest

from thence.core.clock import Clock
from thence.testing.contracts.together import together


class ClockContract:
    """The suite of `thence.core.clock.Clock`."""

    def make(self) -> Clock:
        """A clock."""
        raise NotImplementedError

    @pytest.fixture
    def clock(self) -> Clock:
        """The clock of a test."""
        return self.make()

    def test_now_is_in_utc(self, clock: Clock) -> None:
        """The wall clock is aware, and in UTC."""
        assert clock.now().utcoffset() == timedelta(0)

    def test_monotonic_never_decreases(self, clock: Clock) -> None:
        """Readings of one thread never go back, whatever the others do."""

        def read(_: int) -> list[float]:
            return [clock.monotonic() for _ in range(500)]

        for readings in together([partial(read, number) for number in range(4)]):
            assert readings == sorted(readings)

    def test_sleeping_takes_time(self, clock: Clock) -> None:
        """After a sleep, at least that much time is over on both clocks."""
        wall, seconds = clock.now(), clock.monotonic()
        clock.sleep(0.01)
        assert clock.monotonic() - seconds >= 0.01
        assert clock.now() > wall

    def test_a_sleep_of_nothing_returns(self, clock: Clock) -> None:
        """To sleep for no time is no error."""
        clock.sleep(0)
