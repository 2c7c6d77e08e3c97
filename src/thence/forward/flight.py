"""A batch on its way to a backend, and how that ended.

Whatever a backend raises that the port does not name is let through; the forwarder's loop answers it.
"""

from __future__ import annotations

import asyncio

import msgspec

from thence.core.clock import Clock
from thence.core.errors import OutcomeUnknown, Rejected, Unavailable
from thence.core.ports import Backend
from thence.forward.batch import Batch
from thence.forward.stats import Counters


class Outcome(msgspec.Struct, frozen=True):
    """How a send ended."""

    delivered: int = 0
    refusal: str | None = None
    error: Unavailable | OutcomeUnknown | None = None


class Flight(msgspec.Struct, frozen=True):
    """A batch on its way."""

    batch: Batch
    task: asyncio.Task[Outcome]

    async def cancel(self) -> None:
        """Take it back as far as that is possible."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Departures:
    """Sends batches through one backend, and measures."""

    def __init__(self, name: str, backend: Backend, counters: Counters, clock: Clock) -> None:
        self._name = name
        self._backend = backend
        self._counters = counters
        self._clock = clock

    def launch(self, batch: Batch) -> Flight:
        """Send a batch; nothing of it leaves before the event loop's next turn."""
        return Flight(batch, asyncio.create_task(self._send(batch)))

    async def _send(self, batch: Batch) -> Outcome:
        if not batch.sends:
            return Outcome()
        began = self._clock.monotonic()
        self._counters.sends += 1
        try:
            sent = await self._backend.send(batch.sends)
        except (Unavailable, OutcomeUnknown) as error:
            return Outcome(error=error)
        except Rejected as error:
            return Outcome(refusal=error.message)
        finally:
            self._counters.last_send_seconds = self._clock.monotonic() - began
        if not sent.delivered and sent.refusal is None:
            return Outcome(error=_silent(self._name))
        return Outcome(sent.delivered, sent.refusal)


def _silent(name: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        "forward.nothing_said",
        f"the destination {name!r} delivered nothing and gave no reason",
        advice="This is a defect of the backend. Events wait and are sent again.",
    )
