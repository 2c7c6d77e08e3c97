"""One request from the end of its head until its answer is written.

A handler's answer is taken at once, when its future is resolved, or when its task ends. What a handler raises becomes
an answer too. When the client has gone meanwhile, the answer is dropped, and nothing else happens.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from thence.http.counters import Counters
from thence.http.exchange import Request, Response
from thence.http.failures import answer_to, dropped
from thence.http.head import Head
from thence.http.routes import Match
from thence.http.stream import BodyStream
from thence.http.trace import id_in, kept_or_made, trace_id

if TYPE_CHECKING:
    from thence.http.connection import Connection
    from thence.http.state import ServerState

_log = logging.getLogger(__name__)


class Turn:
    """What is known of one request. `response` is there once it can be written."""

    __slots__ = (
        "_connection",
        "began",
        "coding",
        "head",
        "held_bytes",
        "is_last",
        "match",
        "response",
        "stream",
        "traceparent",
    )

    def __init__(self, connection: Connection, head: Head, match: Match, began: float) -> None:
        self._connection = connection
        self.head = head
        self.match = match
        self.began = began
        self.traceparent = kept_or_made(head.headers.get("traceparent"))
        self.is_last = not head.keep_alive
        self.response: Response | None = None
        self.stream: BodyStream | None = None
        self.coding = ""
        self.held_bytes = 0

    def start(self, request: Request, state: ServerState) -> None:
        """Call the handler."""
        token = trace_id.set(id_in(self.traceparent))
        try:
            outcome = self.match.route.handler(request)
            if isinstance(outcome, Response):
                self.response = outcome
            else:
                self._await(outcome, state)
        except Exception as error:  # boundary: one request fails, the server goes on
            self.response = answer_to(error, self.match.template)
        finally:
            trace_id.reset(token)

    def end_with(self, response: Response) -> None:
        """Answer this, unless there is an answer already."""
        if self.response is None:
            self.response = response
            self._connection.flush()

    def write(self, state: ServerState, connection: str) -> bytes:
        """The bytes of the answer."""
        response = self.response
        assert response is not None  # noqa: S101 - only answered turns are written
        with_body = self.head.method != "HEAD"
        try:
            written = state.answers.write(response, self.traceparent, connection, with_body=with_body)
        except ValueError as error:
            self.response = answer_to(error, self.match.template)
            written = state.answers.write(self.response, self.traceparent, connection, with_body=with_body)
        return written

    def count(self, counters: Counters, now: float) -> None:
        """Count the answer."""
        assert self.response is not None  # noqa: S101 - only answered turns are counted
        match = self.match
        counters.requests[match.method, match.template, self.response.status] += 1
        counters.seconds[match.template].add(now - self.began)

    def _await(self, outcome: Any, state: ServerState) -> None:
        if not isinstance(outcome, asyncio.Future):
            outcome = asyncio.ensure_future(outcome, loop=state.loop)
            state.keep(outcome)
        outcome.add_done_callback(self._settle)

    def _settle(self, future: asyncio.Future[Response]) -> None:
        try:
            response = future.result()
            if not isinstance(response, Response):
                raise TypeError(f"the handler of {self.match.template} answered {type(response).__name__}")
        except asyncio.CancelledError:
            response = dropped()
        except Exception as error:  # boundary: one request fails, the server goes on
            response = answer_to(error, self.match.template)
        self.end_with(response)
