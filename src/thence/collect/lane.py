"""One failed-event handler in a thread of its own, behind a bounded queue.

The thread takes whatever has gathered while it was busy and hands it over in one call, so that a durable handler pays
for one commit and not for each letter. Beyond the bound letters are dropped and counted: memory stays bounded when a
handler hangs. What waits here is lost when the process dies.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from thence.core.ports import DeadLetter

MAX_LETTERS = 10_000
MAX_BYTES = 64 << 20
_log = logging.getLogger(__name__)


class FailedEventHandler(Protocol):
    """Something that is given events that failed. All calls come from one thread, one at a time.

    `handle` returns when it has done what it promises (a durable handler: when the letters are on disk) and raises
    when it could not; it is not called again with the same letters. docs/failed.md shows how to write one.
    """

    name: str

    def handle(self, letters: Sequence[DeadLetter]) -> None:
        """Deal with letters, in the order in which the events came."""
        ...

    def close(self) -> None:
        """Let go of everything. No call follows."""
        ...


class LaneCounters(msgspec.Struct):
    """What became of the letters that one handler was to get.

    `late` letters are counted besides: their clients did not wait any longer, and they may be handled yet.
    """

    handled: int = 0
    failures: int = 0
    dropped: int = 0
    late: int = 0


class Waiter:
    """A letter on its way, and the future that is done when `lanes` have dealt with it."""

    __slots__ = ("future", "lanes", "letter", "loop", "timer")

    def __init__(self, letter: DeadLetter, loop: asyncio.AbstractEventLoop) -> None:
        self.letter = letter
        self.loop = loop
        self.future: asyncio.Future[None] = loop.create_future()
        self.lanes: set[Lane] = set()
        self.timer: asyncio.TimerHandle | None = None


class Lane:
    """A handler, its queue and its thread. `on_batch` is called in that thread after each call of the handler."""

    def __init__(
        self,
        handler: FailedEventHandler,
        on_batch: Callable[[Lane, list[Waiter]], None] = lambda lane, done: None,
    ) -> None:
        self.name = handler.name
        self.counters = LaneCounters()
        self.is_late = False
        self._handler = handler
        self._on_batch = on_batch
        self._changed = threading.Condition()
        self._pending: list[Waiter] = []
        self._pending_bytes = 0
        self._is_ending = False
        self._is_failing = False
        self._is_full = False
        self._thread = threading.Thread(target=self._run, name=f"failed-{self.name}", daemon=True)
        self._thread.start()

    def offer(self, waiter: Waiter) -> bool:
        """Queue a letter; False when it was dropped instead."""
        size_bytes = len(waiter.letter.event.payload)
        with self._changed:
            too_many = len(self._pending) >= MAX_LETTERS or self._pending_bytes + size_bytes > MAX_BYTES
            if self._is_ending or (too_many and self._pending):
                self.counters.dropped += 1
                self._note_full()
                return False
            self._pending.append(waiter)
            self._pending_bytes += size_bytes
            self._changed.notify()
        return True

    def finish(self) -> None:
        """Take nothing more; what is queued is still handled."""
        with self._changed:
            self._is_ending = True
            self._changed.notify()

    def join(self, seconds: float) -> None:
        """Wait for the end, but no longer than that."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            about = {"action": "failed_handler_abandoned", "handler": self.name, "count": len(self._pending)}
            _log.error("a handler of failed events does not end", extra=about)

    def _run(self) -> None:
        while batch := self._take():
            self._handle(batch)
            self.is_late = False
            self._on_batch(self, batch)
        try:
            self._handler.close()
        except Exception:  # boundary: a handler that cannot close holds up nobody
            about = {"action": "failed_handler_close_failed", "handler": self.name}
            _log.exception("a handler of failed events did not close", extra=about)

    def _take(self) -> list[Waiter]:
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._is_ending)
            batch, self._pending = self._pending, []
            self._pending_bytes = 0
            self._is_full = False
        return batch

    def _handle(self, batch: list[Waiter]) -> None:
        try:
            self._handler.handle([waiter.letter for waiter in batch])
        except Exception:  # boundary: a handler that fails costs its own letters, and is counted
            self.counters.failures += len(batch)
            self._note_failing()
            return
        self.counters.handled += len(batch)
        if self._is_failing:
            self._is_failing = False
            about = {"action": "failed_handler_recovered", "handler": self.name}
            _log.info("a handler of failed events works again", extra=about)

    def _note_failing(self) -> None:
        # Once for each run of failures: a flood of bad events makes no flood of logs.
        if not self._is_failing:
            self._is_failing = True
            about = {"action": "failed_handler_failing", "handler": self.name}
            _log.exception("a handler of failed events fails", extra=about)

    def _note_full(self) -> None:
        if not self._is_full:
            self._is_full = True
            about = {"action": "failed_handler_behind", "handler": self.name, "count": len(self._pending)}
            _log.error("a handler of failed events is behind; letters are dropped", extra=about)
