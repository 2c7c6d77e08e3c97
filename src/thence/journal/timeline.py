"""The journal's own time: it begins at the wall clock and then only counts seconds that passed.

Ages are measured on it, so that a wall clock that is set forward by two hours expires nothing. It never starts before
the newest time that the journal has written down.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from thence.core.clock import Clock


class Timeline:
    """A clock that does not jump."""

    def __init__(self, clock: Clock, not_before: datetime | None) -> None:
        self._clock = clock
        now = clock.now()
        self._origin = max(now, not_before) if not_before is not None else now
        self._started = clock.monotonic()

    def now(self) -> datetime:
        """The moment on the journal's own time."""
        return self._origin + timedelta(seconds=self._clock.monotonic() - self._started)
