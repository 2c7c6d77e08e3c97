"""The outgoing half of a connection: answers in the order of the requests, pauses, deadlines and the end.

Reading pauses while a client is ahead of us: too many requests, a body faster than its reader, answers that are not
fetched. A connection that ends while the client still sends is closed in two steps, so that the client can read its
last answer. When the client has gone, what is under way for it ends by itself and nothing is kept.
"""

from __future__ import annotations

import asyncio
from typing import cast

from thence.http.answers import CONTINUE
from thence.http.exchange import Refused, refusal
from thence.http.state import ServerState, busy
from thence.http.trace import kept_or_made
from thence.http.turn import Turn

IDLE, HEAD, BODY, DEAF, ENDING = range(5)
"""Nothing asked; part of a head is there; part of a body; what comes is not read; the last answer is written."""

FULL, INFLATING, STREAMING, UNSENT = 1, 2, 4, 8
"""Why reading pauses."""


class Connection(asyncio.Protocol):
    """What is under way for one client. `check` is called by the sweep of the server."""

    __slots__ = (
        "_has_unread",
        "_is_half_closed",
        "_must_invite",
        "_paused_at",
        "_pauses",
        "_phase",
        "_remote",
        "_rest",
        "_since",
        "_state",
        "_transport",
        "_turn",
        "_turns",
        "_unsent_bytes",
    )

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._phase = IDLE
        self._pauses = 0
        self._rest = b""
        self._turn: Turn | None = None
        self._turns: list[Turn] = []
        self._has_unread = self._is_half_closed = self._must_invite = False
        self._since = self._paused_at = 0.0
        self._unsent_bytes = 0
        self._remote = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there; above the limit it is told so and let go."""
        self._transport = cast("asyncio.Transport", transport)
        state = self._state
        if len(state.connections) >= state.connection_limit:
            self._turn_away()
            return
        state.connections.add(self)
        state.counters.connections += 1
        peer = transport.get_extra_info("peername")
        self._remote = str(peer[0]) if isinstance(peer, tuple) else ""
        self._since = state.monotonic()

    def connection_lost(self, _: Exception | None) -> None:
        """The client has gone, or we have closed."""
        state = self._state
        if self not in state.connections:
            return
        state.connections.discard(self)
        state.counters.connections -= 1
        if self._turns or self._phase in (HEAD, BODY):
            state.counters.refused["client_gone"] += 1
        self.give_up_body()
        for turn in self._turns:
            state.let_go(turn.held_bytes)
        self._turns.clear()
        self._rest = b""
        self._phase = ENDING

    def pause_writing(self) -> None:
        """The client does not fetch its answers: take no more requests."""
        self._unsent_bytes = self._transport.get_write_buffer_size()
        self._since = self._state.monotonic()
        self._pause(UNSENT)

    def resume_writing(self) -> None:
        """It does again."""
        self._resume(UNSENT)

    @property
    def is_idle(self) -> bool:
        """Whether nothing was asked that is not answered."""
        return self._phase == IDLE and not (self._turns or self._turn or self._rest)

    @property
    def is_done(self) -> bool:
        """Whether the last answer is with the client."""
        return self._phase == ENDING and not self._transport.get_write_buffer_size()

    def close(self) -> None:
        """Close once all that is written has been sent."""
        self._phase = ENDING
        self._since = self._state.monotonic()
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def flush(self) -> None:
        """Write the answers whose turn it is."""
        turns = self._turns
        while turns and turns[0].response is not None and self._phase != ENDING:
            self._write(turns.pop(0))
        if self._pauses & FULL and len(turns) < self._state.limits.pipelined_count:
            self._resume(FULL)
        if self._must_invite:
            self._invite()

    def check(self, now: float) -> None:
        """End what takes too long."""
        limits = self._state.limits
        quiet_seconds = now - self._since
        if self._pauses & UNSENT or (self._phase == ENDING and self._transport.get_write_buffer_size()):
            self._check_unsent(now)
        elif self._phase == ENDING:
            if quiet_seconds > limits.linger_seconds:
                self.abort()
        elif self._pauses:
            return
        elif self._phase == IDLE:
            if not self._turns and quiet_seconds > limits.idle_seconds:
                self.close()
        elif (self._phase == HEAD and quiet_seconds > limits.head_seconds) or (
            self._phase == BODY and (quiet_seconds > limits.body_idle_seconds or self._is_body_slow(now))
        ):
            self._refuse(_slow())

    def give_up_body(self) -> None:
        """The rest of the body under way will not come."""

    def _is_body_slow(self, now: float) -> bool:
        raise NotImplementedError

    def _advance(self, data: bytes) -> None:
        raise NotImplementedError

    def _refuse(self, refused: Refused) -> None:
        raise NotImplementedError

    def _write(self, turn: Turn) -> None:
        state = self._state
        is_unread = self._turn is turn
        if is_unread:
            self.give_up_body()
        is_newest = not self._turns and self._turn is None and not self._rest
        closes = turn.is_last or is_unread or (is_newest and (state.is_draining or self._is_half_closed))
        word = "close" if closes else "" if turn.head.is_latest else "keep-alive"
        written = turn.write(state, word)
        self._transport.write(written)
        state.counters.sent_bytes += len(written)
        state.let_go(turn.held_bytes)
        self._since = now = state.monotonic()
        turn.count(state.counters, now)
        if closes:
            self._end(is_unread=is_unread or self._has_unread)

    def _end(self, *, is_unread: bool) -> None:
        if not is_unread or self._is_half_closed:
            self.close()
            return
        # Closing now would reset the connection, and the client might lose the answer: drop what it still sends.
        self._phase = ENDING
        self._rest = b""
        self._pauses &= UNSENT
        if not self._transport.is_closing():
            self._transport.resume_reading()
            self._transport.write_eof()

    def _invite(self) -> None:
        if not self._turns or (len(self._turns) == 1 and self._turns[0] is self._turn):
            self._must_invite = False
            self._transport.write(CONTINUE)

    def _turn_away(self) -> None:
        state = self._state
        refused = busy("there are too many connections")
        state.counters.refused["connections"] += 1
        self._phase = ENDING
        self._transport.write(state.answers.write(refused.response, kept_or_made(None), "close"))
        self._transport.close()

    def _pause(self, reason: int) -> None:
        if not self._pauses:
            self._paused_at = self._state.monotonic()
            if not self._transport.is_closing():
                self._transport.pause_reading()
        self._pauses |= reason

    def _resume(self, reason: int) -> None:
        if not self._pauses & reason:
            return
        self._pauses &= ~reason
        if self._pauses or self._transport.is_closing():
            return
        self._since = self._state.monotonic()
        self._transport.resume_reading()
        if self._rest:
            self._state.loop.call_soon(self._continue)

    def _continue(self) -> None:
        data, self._rest = self._rest, b""
        if data:
            self._advance(data)

    def _check_unsent(self, now: float) -> None:
        unsent_bytes = self._transport.get_write_buffer_size()
        if unsent_bytes < self._unsent_bytes or not self._unsent_bytes:
            self._since = now
        elif now - self._since > self._state.limits.write_idle_seconds:
            self._state.counters.refused["unread_answer"] += 1
            self.abort()
        self._unsent_bytes = unsent_bytes


def _slow() -> Refused:
    message = "the request came too slowly"
    return Refused(
        refusal(408, "http.too_slow", message, "Send it at once; the connection is closed."),
        reason="too_slow",
    )
