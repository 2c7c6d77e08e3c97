"""What wakes a forwarder that waits: news in the journal, an operator, the end. Rung from any thread.

Ringing for news costs one look at a flag unless the forwarder waits for news, so it can be done after every commit.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from thence.core.clock import Clock

_LOOK_SECONDS = 0.25


class Bell:
    """One forwarder waits on it, in its event loop."""

    def __init__(self, clock: Clock) -> None:
        self.is_stopping = False
        self.drains = False
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rung = asyncio.Event()
        self._waits_for_news = False
        self._is_hurried = False

    def attach(self) -> None:
        """Wait in this event loop from now on."""
        self._loop = asyncio.get_running_loop()

    def notify(self) -> None:
        """There is something new."""
        if self._waits_for_news:
            self._waits_for_news = False
            self._ring()

    def retry(self) -> None:
        """End a pause now."""
        self._is_hurried = True
        self._ring()

    def stop(self, *, drain: bool) -> None:
        """End all waiting: at once, or when there is nothing new."""
        self.drains = drain
        self.is_stopping = True
        self._ring()

    def listen(self) -> None:
        """From now on news ring; whoever calls this looks once more, and then waits."""
        self._rung.clear()
        self._waits_for_news = True

    async def wait_for_news(self, seconds: float) -> None:
        """Wait until it rings, no longer than so many seconds."""
        if not self.is_stopping:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._rung.wait()
        self._waits_for_news = False

    async def pause(self, until: float) -> None:
        """Wait until the clock has come so far, unless somebody is in a hurry."""
        self._rung.clear()
        while not (self._is_hurried or (self.is_stopping and not self.drains)):
            left = until - self._clock.monotonic()
            if left <= 0:
                break
            # The clock may be one that a test moves, so it is looked at now and then.
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, _LOOK_SECONDS)):
                    await self._rung.wait()
        self._is_hurried = False

    def _ring(self) -> None:
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._rung.set)
