"""What happens to an event that breaks the specification: it goes to failed-event handlers, several at once.

`durable` handlers keep letters: the future that `submit` returns is done when each of them has, or has failed. The
`others` are told afterwards. Each works in a lane of its own, so that one that hangs or raises delays no other. What
they do never changes the answer to the client: it comes after `answer_within_seconds` at the latest, and what went
wrong is counted. What was submitted and is not handled yet dies with the process; its client has had no answer then.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from datetime import datetime

from thence.collect.lane import FailedEventHandler, Lane, LaneCounters, Waiter
from thence.core.clock import Clock, SystemClock
from thence.core.errors import Violation
from thence.core.event import Event
from thence.core.ports import DeadLetter

__all__ = [
    "STAGE",
    "FailedEventHandler",
    "FailedEvents",
    "LaneCounters",
    "Refusals",
    "letter_of",
    "reason_of",
]

STAGE = "collect"
ANSWER_WITHIN_SECONDS = 2.0
STOP_SECONDS = 5.0
_REASON_CHARACTERS = 300


class FailedEvents:
    """Hands letters to handlers. `submit` is called on an event loop; the rest from anywhere."""

    def __init__(
        self,
        durable: Sequence[FailedEventHandler],
        others: Sequence[FailedEventHandler] = (),
        *,
        answer_within_seconds: float = ANSWER_WITHIN_SECONDS,
    ) -> None:
        self._patience = answer_within_seconds
        self._durable = tuple(Lane(handler, self._on_batch) for handler in durable)
        self._others = tuple(Lane(handler) for handler in others)

    def submit(self, letter: DeadLetter) -> asyncio.Future[None]:
        """Hand a letter to all handlers. The future never fails."""
        loop = asyncio.get_running_loop()
        waiter = Waiter(letter, loop)
        # All of them before the first offer: a lane may be done with a letter before the next has it.
        waiter.lanes.update(self._durable)
        for lane in self._durable:
            taken = lane.offer(waiter)
            # Nobody waits for a handler that has kept others waiting and is still busy with them.
            if not taken or lane.is_late:
                lane.counters.late += taken
                waiter.lanes.discard(lane)
        if waiter.lanes:
            waiter.timer = loop.call_later(self._patience, self._give_up, waiter)
        else:
            self._finish(waiter)
        return waiter.future

    def counters(self) -> Mapping[str, LaneCounters]:
        """What became of the letters, for each handler by name."""
        return {lane.name: lane.counters for lane in (*self._durable, *self._others)}

    def close(self, seconds: float = STOP_SECONDS) -> None:
        """Let the handlers finish what they have, but no longer than that, and close them.

        Not on the event loop, which still has to pass letters on; best when nobody waits for an answer any more.
        """
        clock = SystemClock()
        deadline = clock.monotonic() + seconds
        for lanes in (self._durable, self._others):
            for lane in lanes:
                lane.finish()
            for lane in lanes:
                lane.join(max(deadline - clock.monotonic(), 0.0))

    # Inside

    def _on_batch(self, lane: Lane, batch: list[Waiter]) -> None:
        """In the thread of a lane: wake each loop once."""
        for loop in {waiter.loop for waiter in batch}:
            mine = [waiter for waiter in batch if waiter.loop is loop]
            # A loop that was closed meanwhile has nobody left who waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._settle, lane, mine)

    def _settle(self, lane: Lane, batch: list[Waiter]) -> None:
        for waiter in batch:
            if lane in waiter.lanes:
                waiter.lanes.discard(lane)
                if not waiter.lanes:
                    self._finish(waiter)

    def _give_up(self, waiter: Waiter) -> None:
        for lane in waiter.lanes:
            lane.is_late = True
            lane.counters.late += 1
        waiter.lanes.clear()
        self._finish(waiter)

    def _finish(self, waiter: Waiter) -> None:
        if waiter.timer is not None:
            waiter.timer.cancel()
        for lane in self._others:
            lane.offer(waiter)
        if not waiter.future.done():
            waiter.future.set_result(None)


class Refusals:
    """What the door for OpenLineage events needs: events that were refused become letters. The source is the key."""

    def __init__(self, failed: FailedEvents, clock: Clock | None = None) -> None:
        self._failed = failed
        self._clock = clock or SystemClock()

    def submit(self, event: Event, violations: Sequence[Violation], remote: str) -> asyncio.Future[None]:
        """Hand the letter of a refused event to all handlers; see FailedEvents."""
        at = self._clock.now()
        letter = letter_of(event, violations, failed_at=at, remote=remote, key_id=event.source)
        return self._failed.submit(letter)


def letter_of(
    event: Event,
    violations: Sequence[Violation],
    *,
    failed_at: datetime,
    remote: str = "",
    key_id: str = "",
) -> DeadLetter:
    """The letter for an event that the validator refused. It has the id of its event."""
    return DeadLetter(
        id=event.id,
        stage=STAGE,
        code=violations[0].rule if violations else "event.invalid",
        reason=reason_of(violations),
        failed_at=failed_at,
        event=event,
        remote=remote,
        key_id=key_id,
        violations=tuple(violations),
    )


def reason_of(violations: Sequence[Violation]) -> str:
    """The first fault in one line, without the value that stood there, and how many more there are."""
    if not violations:
        return "the event is invalid"
    first = violations[0]
    line = " ".join(f"{first.path} {first.message}".split())
    more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
    return _cut(line, _REASON_CHARACTERS - len(more)) + more


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
