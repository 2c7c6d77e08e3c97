"""What all connections of one server have in common. Only the thread of the server's loop touches it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from thence.core.clock import Clock
from thence.http.answers import Answers
from thence.http.counters import Counters
from thence.http.exchange import Refused, refusal
from thence.http.failures import again
from thence.http.limits import Limits
from thence.http.routes import RouteTable

if TYPE_CHECKING:
    from thence.http.connection import Connection


class ServerState:
    """The table, the limits and what is under way."""

    def __init__(
        self,
        routes: RouteTable,
        limits: Limits,
        counters: Counters,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.routes = routes
        self.limits = limits
        self.counters = counters
        self.monotonic = clock.monotonic
        self.answers = Answers(clock)
        self.loop = loop
        self.connections: set[Connection] = set()
        self.connection_limit = limits.connection_count
        self.tasks: set[asyncio.Future[Any]] = set()
        self.is_draining = False
        self._held_bytes = 0
        self._held_limit = limits.held_body_bytes

    def try_hold(self, count: int) -> bool:
        """Account for bytes of a body in memory, unless there are too many."""
        held_bytes = self._held_bytes + count
        if held_bytes > self._held_limit:
            return False
        self._held_bytes = held_bytes
        return True

    def hold(self, count: int) -> None:
        """Account for bytes of a body in memory, or refuse them."""
        if not self.try_hold(count):
            raise busy("the bodies of too many requests are in memory")

    def let_go(self, count: int) -> None:
        """These bytes are no longer in memory."""
        self._held_bytes -= count

    def keep(self, task: asyncio.Future[Any]) -> None:
        """Hold a task until it is done: the loop itself does not."""
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


def busy(message: str) -> Refused:
    """The answer when there is too much at once."""
    return Refused(
        again(refusal(503, "http.busy", message, "Send it again later, or raise the limit.")), reason="busy"
    )
