"""The body of a request as it comes, for handlers that do not want it whole.

When the handler is slower than the client, reading from the connection pauses. A body that breaks off, is too slow or
too large ends the iteration with an error, which the handler lets pass.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from thence.http.codings import Inflater

_HIGH_BYTES = 256 << 10
_LOW_BYTES = 64 << 10


class BodyStream:
    """Iterated once, by one task."""

    def __init__(
        self, inflater: Inflater | None, pause: Callable[[], None], resume: Callable[[], None]
    ) -> None:
        self._inflater = inflater
        self._pause = pause
        self._resume = resume
        self._pieces: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._is_paused = False
        self._has_ended = False
        self._error: Exception | None = None
        self._arrival: asyncio.Future[None] | None = None

    def feed(self, data: bytes) -> None:
        """The next piece has come."""
        if data and self._error is None:
            self._pieces.append(data)
            self._waiting_bytes += len(data)
            if self._waiting_bytes > _HIGH_BYTES and not self._is_paused:
                self._is_paused = True
                self._pause()
            self._wake()

    def end(self) -> None:
        """The body has come whole."""
        self._has_ended = True
        self._wake()

    def fail(self, error: Exception) -> None:
        """The rest of the body will not come."""
        if not self._has_ended:
            self._error = error
            self._pieces.clear()
            self._wake()

    def __aiter__(self) -> BodyStream:
        return self

    async def __anext__(self) -> bytes:
        while True:
            if self._error is not None:
                raise self._error
            piece = self._inflated() if self._inflater is not None else self._next()
            if piece:
                return piece
            if self._has_ended and not self._pieces and (self._inflater is None or self._inflater.waits):
                self._close()
                raise StopAsyncIteration
            if not self._pieces and (self._inflater is None or self._inflater.waits):
                await self._arrive()

    def _inflated(self) -> bytes:
        assert self._inflater is not None  # noqa: S101 - asked by the only caller
        if self._inflater.waits:
            self._inflater.feed(self._next())
        return b"" if self._inflater.waits else self._inflater.step()

    def _next(self) -> bytes:
        if not self._pieces:
            return b""
        piece = self._pieces.popleft()
        self._waiting_bytes -= len(piece)
        if self._is_paused and self._waiting_bytes <= _LOW_BYTES:
            self._is_paused = False
            self._resume()
        return piece

    def _close(self) -> None:
        if self._inflater is not None:
            self._inflater.end()

    async def _arrive(self) -> None:
        self._arrival = asyncio.get_running_loop().create_future()
        try:
            await self._arrival
        finally:
            self._arrival = None

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
