"""A clock that moves when a test says so.

Sleeping, by default, moves the clock by itself and returns at once: a loop that retries with pauses runs through in no
time, in one thread. With `waits=True` a sleeping thread stands still until another one has advanced the clock far
enough; that is for tests which want to see what happens between.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

_START = datetime(2024, 2, 29, 12, 0, 0, tzinfo=UTC)


class ManualClock:
    """A `Clock` for tests, safe to share between threads."""

    def __init__(self, start: datetime = _START, *, waits: bool = False) -> None:
        self._now = start
        self._seconds = 0.0
        self._waits = waits
        self._sleeping = 0
        self._moved = threading.Condition()

    def now(self) -> datetime:
        """The wall clock, as the test has set it."""
        with self._moved:
            return self._now

    def monotonic(self) -> float:
        """The seconds by which the clock was advanced in all."""
        with self._moved:
            return self._seconds

    def sleep(self, seconds: float) -> None:
        """Advance the clock, or wait until somebody has."""
        if not self._waits:
            self.advance(seconds)
            return
        with self._moved:
            until = self._seconds + seconds
            self._sleeping += 1
            self._moved.notify_all()
            try:
                self._moved.wait_for(lambda: self._seconds >= until)
            finally:
                self._sleeping -= 1

    def advance(self, seconds: float) -> None:
        """Let time pass: both the wall clock and the monotonic one go forward."""
        if seconds < 0:
            raise ValueError(f"time cannot pass backwards ({seconds} s); use set_back")
        with self._moved:
            self._now += timedelta(seconds=seconds)
            self._seconds += seconds
            self._moved.notify_all()

    def set_back(self, seconds: float) -> None:
        """Correct the wall clock backwards, as an operator or NTP does; the monotonic clock does not notice."""
        with self._moved:
            self._now -= timedelta(seconds=seconds)

    def wait_for_sleepers(self, count: int = 1, *, timeout_seconds: float = 30.0) -> None:
        """Return when that many threads sleep, so that a test advances the clock after they began and not before."""
        with self._moved:
            if not self._moved.wait_for(lambda: self._sleeping >= count, timeout_seconds):
                raise TimeoutError(f"{self._sleeping} threads sleep, {count} were expected")
