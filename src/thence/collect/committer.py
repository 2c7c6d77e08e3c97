"""Many requests, one sync to disk.

Handlers on an event loop submit events and get a future. One thread takes whatever has gathered, appends it to the
journal in one go, and resolves all its futures with one call into the loop. There is no timer: while one batch is
synced, the next one gathers. A future resolves only after its events are durable; if the process dies before, nobody
was told that they are.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from thence.core.clock import Clock, SystemClock
from thence.core.errors import InvariantBroken, ThenceError, Unavailable
from thence.core.event import Event
from thence.core.ports import Journal

_log = logging.getLogger(__name__)

T = TypeVar("T")


class _Waiting(NamedTuple):
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    events: Sequence[Event]
    result: Any


class CommitCounters(msgspec.Struct):
    """What was committed since the start."""

    commits: int = 0
    events: int = 0
    bytes: int = 0
    failures: int = 0
    seconds: float = 0.0
    largest_batch: int = 0


class Committer:
    """The one writer of a journal."""

    def __init__(
        self,
        journal: Journal,
        *,
        on_commit: Callable[[], None] = lambda: None,
        max_waiting_bytes: int = 64 << 20,
        clock: Clock | None = None,
    ) -> None:
        self.counters = CommitCounters()
        self._journal = journal
        self._on_commit = on_commit
        self._max_waiting_bytes = max_waiting_bytes
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._gathered = threading.Event()
        self._waiting: list[_Waiting] = []
        self._waiting_bytes = 0
        self._stopping = False
        self._trouble = ""
        self._thread: threading.Thread | None = None

    @property
    def trouble(self) -> str:
        """Why the last commit failed; empty when it did not."""
        if self._thread is None or not self._thread.is_alive():
            return "nothing writes to the journal"
        return self._trouble

    def start(self) -> None:
        """Begin to commit."""
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Commit what was submitted, then end. Stopping twice does nothing."""
        self._stopping = True
        self._gathered.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def submit(self, events: Sequence[Event], result: T) -> asyncio.Future[T]:
        """A future that resolves to `result` when the events are durable. Called on the thread of an event loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        size_bytes = sum(len(event.payload) for event in events)
        with self._lock:
            if self._stopping or self._waiting_bytes + size_bytes > self._max_waiting_bytes:
                raise _busy(self._waiting_bytes)
            is_first = not self._waiting
            self._waiting.append(_Waiting(loop, future, events, result))
            self._waiting_bytes += size_bytes
        if is_first:
            self._gathered.set()
        return future

    def _run(self) -> None:
        while True:
            if not self._stopping:
                self._gathered.wait()
            self._gathered.clear()
            with self._lock:
                batch, self._waiting, self._waiting_bytes = self._waiting, [], 0
            if batch:
                self._commit(batch)
            elif self._stopping:
                return

    def _commit(self, batch: list[_Waiting]) -> None:
        events = [event for each in batch for event in each.events]
        began = self._clock.monotonic()
        error: ThenceError | None = None
        try:
            self._journal.append(events)
        except ThenceError as caught:
            error = caught
        except Exception as caught:  # boundary: this thread answers for all requests and must not end
            _log.exception("a commit failed", extra={"action": "commit_failed"})
            error = InvariantBroken("collect.commit", f"a commit failed: {type(caught).__name__}")
        self._trouble = "" if error is None else str(error)
        self._count(events, self._clock.monotonic() - began, failed=error is not None)
        for loop in {each.loop for each in batch}:
            settled = [each for each in batch if each.loop is loop]
            try:
                loop.call_soon_threadsafe(_settle, settled, error)
            except RuntimeError:
                # The loop was closed meanwhile: nobody is there to be told.
                continue
        if error is None:
            self._on_commit()

    def _count(self, events: Sequence[Event], seconds: float, *, failed: bool) -> None:
        self.counters.seconds += seconds
        if failed:
            self.counters.failures += 1
            return
        self.counters.commits += 1
        self.counters.events += len(events)
        self.counters.bytes += sum(len(event.payload) for event in events)
        self.counters.largest_batch = max(self.counters.largest_batch, len(events))


def _settle(batch: Sequence[_Waiting], error: ThenceError | None) -> None:
    for each in batch:
        if each.future.done():
            continue
        if error is None:
            each.future.set_result(each.result)
        else:
            each.future.set_exception(error)


def _busy(waiting_bytes: int) -> Unavailable:
    return Unavailable(
        "collect.busy",
        f"{waiting_bytes} bytes are waiting for the disk already",
        advice="Try again in a moment. If it lasts, look at the disk that holds the journal.",
    )
