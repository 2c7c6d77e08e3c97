"""The incoming half of a connection: bytes become requests, and requests go to their handlers.

Several requests of one client may be under way at a time, up to a limit; handlers are called in the order in which the
requests came. What breaks the rules is answered once, and then the connection is closed. On a crash of the process,
what was not answered was not accepted.
"""

from __future__ import annotations

import asyncio
from functools import partial

from thence.core.errors import Unavailable
from thence.http.body import Body
from thence.http.codings import Inflater, inflate, known, too_large
from thence.http.connection import BODY, DEAF, ENDING, FULL, HEAD, IDLE, INFLATING, STREAMING, Connection
from thence.http.exchange import Refused, Request, Response, Route, refusal
from thence.http.failures import answer_to
from thence.http.head import END, Head, check_beginning, malformed, read_head
from thence.http.head import too_large as head_too_large
from thence.http.routes import OTHER, Match
from thence.http.state import ServerState
from thence.http.stream import BodyStream
from thence.http.turn import Turn

_STEPS_AT_ONCE = 4
_LINE_ENDS = b"\r\n"


class HttpProtocol(Connection):
    """HTTP/1.1 and HTTP/1.0 as a server reads them."""

    __slots__ = ("_body", "_body_began")

    def __init__(self, state: ServerState) -> None:
        super().__init__(state)
        self._body: Body | None = None
        self._body_began = 0.0

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        self._state.counters.received_bytes += len(data)
        if self._rest:
            data = self._rest + data
            self._rest = b""
        self._advance(data)

    def eof_received(self) -> bool:
        """The client sends nothing more, but may wait for answers."""
        if self._phase in (HEAD, BODY):
            self._state.counters.refused["client_gone"] += 1
            self.give_up_body()
            self._phase = DEAF
        self._rest = b""
        self._is_half_closed = bool(self._turns or self._turn)
        return self._is_half_closed

    def give_up_body(self) -> None:
        """The rest of the body under way will not come."""
        if self._body is not None:
            self._state.let_go(self._body.held_bytes)
        if self._turn is not None and self._turn.stream is not None:
            self._turn.stream.fail(
                Unavailable("http.client_gone", "the client went away before the body was whole")
            )
        self._turn = self._body = None

    def _advance(self, data: bytes) -> None:
        try:
            while data and not self._pauses:
                if self._phase <= HEAD:
                    rest = self._take_head(data)
                    if rest is None:
                        break
                    data = rest
                elif self._phase == BODY:
                    data = self._take_body(data)
                else:
                    self._has_unread = True
                    return
        except Refused as refused:
            self._refuse(refused)
            return
        self._rest = data

    def _take_head(self, data: bytes) -> bytes | None:
        limits = self._state.limits
        if data[0] in _LINE_ENDS:
            data = _without_empty_lines(data)
        end = data.find(END)
        if end < 0:
            check_beginning(data, limits)
            if self._phase == IDLE:
                self._phase = HEAD
                self._since = self._state.monotonic()
            return None
        if end + 4 > limits.head_bytes:
            raise head_too_large(f"the head is larger than {limits.head_bytes} bytes")
        return self._open(read_head(data[: end + 4], limits), data[end + 4 :])

    def _open(self, head: Head, rest: bytes) -> bytes:
        state = self._state
        self._phase = IDLE
        turn = Turn(self, head, state.routes.find(head.method, head.path), state.monotonic())
        length = head.body_bytes
        if length == 0:
            self._start(turn, b"")
        elif 0 < length <= len(rest) and self._is_plain(turn, length):
            # Most requests come in one piece, and this is the short way for them.
            turn.held_bytes = length
            self._start(turn, rest[:length])
            return rest[length:]
        else:
            self._open_body(turn, turn.match.route)
        return rest

    def _is_plain(self, turn: Turn, length: int) -> bool:
        route, headers = turn.match.route, turn.head.headers
        return (
            route.body == "whole"
            and length <= route.max_body_bytes
            and "content-encoding" not in headers
            and "expect" not in headers
            and self._state.try_hold(length)
        )

    def _open_body(self, turn: Turn, route: Route) -> None:
        self._turn = turn
        head, state = turn.head, self._state
        expects = _expects(head)
        limit = route.max_body_bytes if route.body != "none" else state.limits.unread_body_bytes
        if route.body == "none" and (expects or head.body_bytes > limit):
            self._start_unread(turn)
            return
        if head.body_bytes > limit:
            raise too_large(limit)
        if route.body != "none":
            turn.coding = known(head.headers.get("content-encoding", ""))
        if route.body == "stream":
            turn.stream = self._stream(turn.coding, limit)
        self._body = Body(head.body_bytes, limit, state, sink=turn.stream or route.body == "whole")
        self._phase = BODY
        self._since = self._body_began = turn.began
        if turn.stream is not None:
            self._start(turn, b"")
        if expects:
            self._must_invite = True
            self._invite()

    def _take_body(self, data: bytes) -> bytes:
        body, turn = self._body, self._turn
        assert body is not None  # noqa: S101 - both are there in this phase
        assert turn is not None  # noqa: S101
        rest = body.feed(data)
        if body.is_complete:
            self._complete(turn, body)
        else:
            self._since = self._state.monotonic()
        return rest

    def _complete(self, turn: Turn, body: Body) -> None:
        self._turn = self._body = None
        self._must_invite = False
        self._phase = IDLE
        if turn.stream is not None:
            self._phase = DEAF if turn.is_last else IDLE
            turn.stream.end()
            return
        turn.held_bytes = body.held_bytes
        if turn.coding:
            self._inflate(turn, body.content)
        else:
            self._start(turn, body.content)

    def _start(self, turn: Turn, content: bytes) -> None:
        head = turn.head
        request = Request(
            head.method,
            head.path,
            head.query,
            head.headers,
            self._remote,
            turn.traceparent,
            content,
            turn.stream,
            turn.match.params,
        )
        self._turns.append(turn)
        if turn.is_last and turn.stream is None:
            self._phase = DEAF
        turn.start(request, self._state)
        if turn.response is not None:
            self.flush()
        elif len(self._turns) >= self._state.limits.pipelined_count:
            self._pause(FULL)

    def _start_unread(self, turn: Turn) -> None:
        # The answer does not depend on the body, and the body is too large to be read past.
        self._turn = None
        turn.is_last = self._has_unread = True
        self._start(turn, b"")

    def _refuse(self, refused: Refused) -> None:
        """Answer what cannot go on, after what came before, and read no further."""
        self._state.counters.refused[refused.reason] += 1
        turn, has_started = self._turn, False
        self._turn = None
        if self._body is not None:
            self._state.let_go(self._body.held_bytes)
            self._body = None
        if turn is None:
            turn = Turn(self, _NO_HEAD, _NO_MATCH, self._state.monotonic())
        elif turn.stream is not None:
            has_started = turn in self._turns
            turn.stream.fail(refused)
        turn.is_last = self._has_unread = True
        self._rest = b""
        self._phase = DEAF
        if not has_started:
            self._turns.append(turn)
        turn.end_with(refused.response)

    def _refuse_alone(self, turn: Turn, refused: Refused) -> None:
        """Answer one request whose body was read to its end; the connection goes on."""
        self._state.counters.refused[refused.reason] += 1
        self._turns.append(turn)
        if turn.is_last:
            self._phase = DEAF
        turn.end_with(refused.response)

    def _inflate(self, turn: Turn, content: bytes) -> None:
        inflater, found = Inflater(turn.coding, turn.match.route.max_body_bytes), bytearray()
        inflater.feed(content)
        try:
            is_done = inflate(inflater, found, most_steps=_STEPS_AT_ONCE)
        except Refused as refused:
            self._refuse_alone(turn, refused)
            return
        if is_done:
            self._start_inflated(turn, found)
            return
        # Later requests wait, so that handlers are called in order.
        self._turn = turn
        self._pause(INFLATING)
        future = self._state.loop.run_in_executor(None, inflate, inflater, found)
        self._state.keep(future)
        future.add_done_callback(partial(self._inflated, turn, found))

    def _inflated(self, turn: Turn, found: bytearray, future: asyncio.Future[bool]) -> None:
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        self._turn = None
        if self._phase == ENDING:
            self._state.let_go(turn.held_bytes)
            return
        if error is None:
            self._start_inflated(turn, found)
        elif isinstance(error, Refused):
            self._refuse_alone(turn, error)
        else:
            self._refuse_alone(turn, Refused(answer_to(error, turn.match.template), reason="internal"))
        self._resume(INFLATING)

    def _start_inflated(self, turn: Turn, found: bytearray) -> None:
        try:
            self._state.hold(len(found))
        except Refused as refused:
            self._refuse_alone(turn, refused)
            return
        turn.held_bytes += len(found)
        self._start(turn, bytes(found))

    def _stream(self, coding: str, limit: int) -> BodyStream:
        inflater = Inflater(coding, limit) if coding else None
        return BodyStream(inflater, partial(self._pause, STREAMING), partial(self._resume, STREAMING))

    def _is_body_slow(self, now: float) -> bool:
        seconds, limits = now - self._body_began, self._state.limits
        return (
            self._body is not None
            and seconds > limits.body_idle_seconds
            and self._body.received_bytes < seconds * limits.body_bytes_per_second
        )

    def _resume(self, reason: int) -> None:
        if self._pauses == reason:
            # The time in which we did not read is not the client's.
            self._body_began += self._state.monotonic() - self._paused_at
        super()._resume(reason)


def _expects(head: Head) -> bool:
    expectation = head.headers.get("expect")
    if expectation is None or not head.is_latest:
        return False
    if expectation.lower() != "100-continue":
        message = f"the expectation {expectation[:100]} is not known"
        raise Refused(refusal(417, "http.expectation", message, "Leave Expect out."), reason="expectation")
    return True


def _without_empty_lines(data: bytes) -> bytes:
    # Some clients send an empty line after a body.
    stripped = data.lstrip(_LINE_ENDS)
    if data[: len(data) - len(stripped)] not in (b"\r", b"\r\n", b"\r\n\r", b"\r\n\r\n"):
        raise malformed("there are empty lines before the request line")
    return stripped


def _never(_: Request) -> Response:
    raise NotImplementedError


_NO_HEAD = Head(OTHER, "", "", {}, 0, keep_alive=False, is_latest=True)
_NO_MATCH = Match(Route(_never), OTHER, OTHER)
