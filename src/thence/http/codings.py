"""Undoes the Content-Encoding of a body: gzip, zstd, and deflate with or without the zlib header.

The limit counts decompressed bytes, and a step gives at most as many as it is asked for: a few kilobytes that stand for
gigabytes stop at the limit, with memory flat. A body that ends early, goes on after its end or is damaged is refused.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from thence.http.exchange import Refused, refusal

if TYPE_CHECKING:
    from backports.zstd import ZstdDecompressor

STEP_BYTES = 64 << 10
"""How much one step gives: a fraction of a millisecond's work."""

_MEMBERS = 1000
_ZSTD_WINDOW_LOG = 23  # 8 MB, the largest that RFC 9659 lets a server be asked for


class Damaged(Exception):
    """What came is not what its coding says."""


class Decompressor(Protocol):
    """One stream of one coding."""

    def step(self, data: bytes, most: int) -> bytes:
        """Up to `most` bytes out of what came before and `data`."""
        ...

    @property
    def waits(self) -> bool:
        """Whether nothing more comes out without more data."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether the stream has ended where the data did."""
        ...


class Inflater:
    """Decompresses one body in steps and counts what comes out. Both sides of a step are small, so all steps are."""

    def __init__(self, coding: str, limit_bytes: int) -> None:
        self._decompressor = _CODINGS[coding]()
        self._coding = coding
        self._limit = limit_bytes
        self._given = 0
        self._data = b""
        self._at = 0

    def feed(self, data: bytes) -> None:
        """More of the compressed body; what came before has been used up."""
        self._data, self._at = data, 0

    def step(self) -> bytes:
        """The next decompressed bytes, at most `STEP_BYTES`."""
        piece = b""
        if self._decompressor.waits:
            piece = self._data[self._at : self._at + STEP_BYTES]
            self._at += len(piece)
        try:
            found = self._decompressor.step(piece, STEP_BYTES)
        except Damaged as error:
            raise _damaged(self._coding) from error
        self._given += len(found)
        if self._given > self._limit:
            raise too_large(self._limit)
        return found

    @property
    def waits(self) -> bool:
        """Whether nothing more comes out without more data."""
        return self._at >= len(self._data) and self._decompressor.waits

    def end(self) -> None:
        """Nothing more comes: refuse what is incomplete."""
        if not self._decompressor.is_complete:
            raise _damaged(self._coding)


def inflate(inflater: Inflater, found: bytearray, *, most_steps: int | None = None) -> bool:
    """Decompress what was fed, a whole body, into `found`. False when the steps did not suffice."""
    count = 0
    while not inflater.waits:
        if count == most_steps:
            return False
        found += inflater.step()
        count += 1
    inflater.end()
    return True


def known(content_encoding: str) -> str:
    """The coding that a header names, empty for none; several, or one that is not known, are refused."""
    coding = content_encoding.strip().lower()
    if coding in ("", "identity"):
        return ""
    if coding not in _CODINGS:
        raise _unknown(content_encoding)
    return coding


def too_large(limit_bytes: int) -> Refused:
    """The answer to a body above the limit of its route."""
    message = f"the body is larger than {limit_bytes} bytes, which are allowed here"
    return Refused(refusal(413, "http.body_too_large", message, "Send less at a time."), reason="body")


class _Zlib:
    def __init__(self, window: int) -> None:
        self._window = window
        self._stream = zlib.decompressobj(window)
        self._member_count = 0
        self._may_hold_more = False

    def step(self, data: bytes, most: int) -> bytes:
        data = (self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail) + data
        if data and (self._stream.eof or not self._member_count):
            self._next()
        try:
            found = self._stream.decompress(data, most)
        except zlib.error as error:
            raise Damaged from error
        self._may_hold_more = len(found) == most and not self._stream.eof
        return found

    def _next(self) -> None:
        # Only gzip may have several members, one after another.
        self._member_count += 1
        if self._member_count > (_MEMBERS if self._window == _GZIP else 1):
            raise Damaged
        self._stream = zlib.decompressobj(self._window)

    @property
    def waits(self) -> bool:
        if self._stream.eof:
            return not self._stream.unused_data
        return not (self._stream.unconsumed_tail or self._may_hold_more)

    @property
    def is_complete(self) -> bool:
        return (self._stream.eof and not self._stream.unused_data) or not self._member_count


class _Deflate:
    """Decides by the first two bytes whether a zlib header is there."""

    def __init__(self) -> None:
        self._beginning = b""
        self._inner: _Zlib | None = None

    def step(self, data: bytes, most: int) -> bytes:
        if self._inner is None:
            self._beginning += data
            if len(self._beginning) < 2:  # noqa: PLR2004 - the length of the header
                return b""
            self._inner = _Zlib(zlib.MAX_WBITS if _has_zlib_header(self._beginning) else -zlib.MAX_WBITS)
            data = self._beginning
        return self._inner.step(data, most)

    @property
    def waits(self) -> bool:
        return self._inner is None or self._inner.waits

    @property
    def is_complete(self) -> bool:
        return not self._beginning if self._inner is None else self._inner.is_complete


class _Zstd:
    def __init__(self) -> None:
        try:
            from compression import zstd  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            from backports import zstd
        self._zstd = zstd
        self._stream = self._new()
        self._frame_count = 0

    def step(self, data: bytes, most: int) -> bytes:
        if self._stream.eof:
            data = self._stream.unused_data + data
        if data and (self._stream.eof or not self._frame_count):
            self._frame_count += 1
            if self._frame_count > _MEMBERS:
                raise Damaged
            self._stream = self._new()
        try:
            return b"" if self._stream.eof else bytes(self._stream.decompress(data, most))
        except self._zstd.ZstdError as error:
            raise Damaged from error

    def _new(self) -> ZstdDecompressor:
        window = {self._zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG}
        stream: ZstdDecompressor = self._zstd.ZstdDecompressor(options=window)
        return stream

    @property
    def waits(self) -> bool:
        if self._stream.eof:
            return not self._stream.unused_data
        return bool(self._stream.needs_input)

    @property
    def is_complete(self) -> bool:
        return (self._stream.eof and not self._stream.unused_data) or not self._frame_count


def _has_zlib_header(beginning: bytes) -> bool:
    first, second = beginning[:2]
    return first & 0x0F == zlib.DEFLATED and first >> 4 <= 7 and (first << 8 | second) % 31 == 0  # noqa: PLR2004 - RFC 1950


def _gzip() -> Decompressor:
    return _Zlib(_GZIP)


_GZIP = 16 + zlib.MAX_WBITS
_CODINGS: dict[str, Callable[[], Decompressor]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _Deflate,
    "zstd": _Zstd,
}


def _damaged(coding: str) -> Refused:
    message = f"the body is damaged or incomplete {coding}"
    return Refused(
        refusal(400, "http.compressed", message, "Compress the whole body once, as Content-Encoding says."),
        reason="compressed",
    )


def _unknown(content_encoding: str) -> Refused:
    said = refusal(
        415,
        "http.coding",
        f"the Content-Encoding {content_encoding[:100]} is not known here",
        "Send gzip, deflate or zstd, one of them, or no coding.",
    )
    return Refused(
        msgspec.structs.replace(said, headers=(("accept-encoding", "gzip, deflate, zstd"),)), reason="coding"
    )
