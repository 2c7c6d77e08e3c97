"""Time comes from a Clock, never from the standard library, so that tests can move it.

`now` is for records and people; it may jump when the machine's clock is corrected. `monotonic` is for ages and
deadlines; it never goes back.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """The three things that code may ask of time."""

    def now(self) -> datetime:
        """The wall clock, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed point; never decreases."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """The wall clock, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since some fixed point; never decreases."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""
        time.sleep(seconds)
