"""Collects the body of one request, by its declared length or by chunks, and counts what comes.

Nothing is reserved for a length that is only declared. A body of unknown length stops at the limit of its route.
"""

from __future__ import annotations

from thence.http.chunks import Chunked
from thence.http.codings import too_large
from thence.http.head import CHUNKED
from thence.http.state import ServerState
from thence.http.stream import BodyStream


class Body:
    """One body on its way in: kept whole, handed on to a stream, or dropped."""

    __slots__ = (
        "_chunks",
        "_kept",
        "_limit",
        "_remaining",
        "_state",
        "_stream",
        "content",
        "held_bytes",
        "is_complete",
        "received_bytes",
    )

    def __init__(self, length: int, limit: int, state: ServerState, *, sink: BodyStream | bool) -> None:
        self._chunks = Chunked() if length == CHUNKED else None
        self._remaining = length
        self._limit = limit
        self._state = state
        self._stream = sink if isinstance(sink, BodyStream) else None
        self._kept = bytearray() if sink is True else None
        self.content = b""
        self.held_bytes = 0
        self.received_bytes = 0
        self.is_complete = False

    def feed(self, data: bytes) -> bytes:
        """Take what belongs to the body, and return what does not."""
        if self._chunks is not None:
            return self._feed_chunks(data, self._chunks)
        piece, rest = data[: self._remaining], data[self._remaining :]
        self._remaining -= len(piece)
        self._take(piece, is_complete=self._remaining == 0)
        return rest

    def _feed_chunks(self, data: bytes, chunks: Chunked) -> bytes:
        piece = chunks.feed(data)
        if self.received_bytes + len(piece) > self._limit:
            raise too_large(self._limit)
        self._take(piece, is_complete=chunks.is_complete)
        return chunks.rest

    def _take(self, piece: bytes, *, is_complete: bool) -> None:
        self.received_bytes += len(piece)
        self.is_complete = is_complete
        if self._stream is not None:
            self._stream.feed(piece)
        elif self._kept is not None:
            self._keep(piece)

    def _keep(self, piece: bytes) -> None:
        assert self._kept is not None  # noqa: S101 - asked by the only caller
        self._state.hold(len(piece))
        self.held_bytes += len(piece)
        if self.is_complete and not self._kept:
            self.content = piece
            return
        self._kept += piece
        if self.is_complete:
            self.content = bytes(self._kept)
