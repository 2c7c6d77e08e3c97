"""Both clocks are clocks."""

from __future__ import annotations

from thence.core.clock import Clock, SystemClock
from thence.testing.clock import ManualClock
from thence.testing.contracts.clock import ClockContract


class TestSystemClock(ClockContract):
    def make(self) -> Clock:
        return SystemClock()


class TestManualClock(ClockContract):
    def make(self) -> Clock:
        return ManualClock()
