"""Takes the framing off a chunked body, piece by piece, as strictly as llhttp does (a property test compares the two).

Extensions and trailers are read past. All that is kept between pieces is the beginning of a line, so memory stays flat
whatever is sent.
"""

from __future__ import annotations

import re

from thence.http.exchange import Refused
from thence.http.head import check_trailers, malformed

_LINE_BYTES = 1024
_TRAILER_BYTES = 8 << 10
_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_QUOTED = rb'"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t \x21-\x7e\x80-\xff])*"'
_SIZE = re.compile(rb"([0-9a-fA-F]{1,15})(?:;%b(?:=(?:%b|%b))?)*" % (_TOKEN, _TOKEN, _QUOTED)).fullmatch


class Chunked:
    """The state of one chunked body. `is_complete` once its end was seen; what follows the end is in `rest`."""

    __slots__ = ("_line", "_remaining", "_step", "is_complete", "rest")

    def __init__(self) -> None:
        self._step = _SIZE_LINE
        self._remaining = 0
        self._line = b""
        self.is_complete = False
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        """The part of the body that a piece holds."""
        found = bytearray()
        at = 0
        while at < len(data) and not self.is_complete:
            if self._step is _DATA:
                at = self._take_data(data, at, found)
            elif self._step is _SIZE_LINE:
                at = self._take_size(data, at)
            elif self._step is _DATA_END:
                at = self._take_data_end(data, at)
            else:
                at = self._take_trailers(data, at)
        self.rest = data[at:]
        return bytes(found)

    def _take_data(self, data: bytes, at: int, found: bytearray) -> int:
        piece = data[at : at + self._remaining]
        found += piece
        self._remaining -= len(piece)
        if self._remaining == 0:
            self._step = _DATA_END
        return at + len(piece)

    def _take_size(self, data: bytes, at: int) -> int:
        line, at = self._line_from(data, at)
        if line is None:
            return at
        match = _SIZE(line)
        if match is None:
            raise _broken("the size of a chunk is no number")
        self._remaining = int(match[1], 16)
        self._step = _DATA if self._remaining else _TRAILERS
        return at

    def _take_data_end(self, data: bytes, at: int) -> int:
        line, at = self._line_from(data, at, longest=0)
        if line is not None:
            self._step = _SIZE_LINE
        return at

    def _take_trailers(self, data: bytes, at: int) -> int:
        before = len(self._line)
        self._line += data[at : at + _TRAILER_BYTES + 4 - before]
        end = 0 if self._line.startswith(b"\r\n") else self._line.find(b"\r\n\r\n") + 2
        if end == 1:
            if len(self._line) > _TRAILER_BYTES or self._line.count(b"\n") != self._line.count(b"\r\n"):
                raise _broken("the fields after the last chunk are too large, or no fields")
            return len(data)
        end += 2
        check_trailers(self._line[:end])
        self.is_complete = True
        return at + end - before

    def _line_from(self, data: bytes, at: int, longest: int = _LINE_BYTES) -> tuple[bytes | None, int]:
        end = data.find(b"\n", at)
        line = self._line + (data[at:] if end < 0 else data[at : end + 1])
        if len(line) > longest + 2 or (len(line) == longest + 2 and end < 0):
            raise _broken("a chunk ends late, or its size is too long")
        if end < 0:
            if b"\r" in line[:-1]:
                raise _broken("a carriage return stands alone")
            self._line = line
            return None, len(data)
        if not line.endswith(b"\r\n"):
            raise _broken("a line ends without a carriage return")
        self._line = b""
        return line[:-2], end + 1


def _broken(message: str) -> Refused:
    return malformed(f"chunked body: {message}")


_SIZE_LINE, _DATA, _DATA_END, _TRAILERS = range(4)
