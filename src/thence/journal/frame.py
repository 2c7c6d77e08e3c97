"""How one record lies in a partition file: a head that can be checked, then the event.

    magic 4 | length 4 | checksum 4 | position 8 | id 16 | received 8 | kind 2 | source 2 | trace 1 | texts | payload

The checksum covers everything after it and starts from a salt of the partition's own, which nobody outside knows: an
event cannot contain bytes that pass for a record. A frame that was cut off or changed does not pass; the next one can
still be found by its magic, so that damage costs the records that it touches and no others.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID
from zlib import crc32

from thence.core.errors import Rejected
from thence.core.event import Event, Record

MAGIC = b"\xd7TH\x01"
_HEAD = struct.Struct("<4sII")
_FIXED = struct.Struct("<Q16sqHHB")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LONGEST_TEXT = 0xFFFF
_LONGEST_TRACE = 0xFF
_SHORTEST = _HEAD.size + _FIXED.size
_CHUNK_BYTES = 1 << 20


def encode(event: Event, position: int, salt: int) -> tuple[bytes, bytes]:
    """The head with the texts, and the payload, which is not copied."""
    kind, source = event.kind.encode(), event.source.encode()
    trace = (event.traceparent or "").encode()
    if len(kind) > _LONGEST_TEXT or len(source) > _LONGEST_TEXT or len(trace) > _LONGEST_TRACE:
        raise Rejected(
            "journal.text_too_long",
            f"kind ({len(kind)} bytes), source ({len(source)}) or traceparent ({len(trace)}) is too long",
            advice=f"The longest are {_LONGEST_TEXT}, {_LONGEST_TEXT} and {_LONGEST_TRACE} bytes.",
        )
    received = (event.received_at - _EPOCH) // _MICROSECOND
    sizes = (len(kind), len(source), len(trace) if event.traceparent is not None else _LONGEST_TRACE)
    body = _FIXED.pack(position, event.id.bytes, received, *sizes) + kind + source + trace
    checksum = crc32(event.payload, crc32(body, salt))
    return _HEAD.pack(MAGIC, len(body) + len(event.payload), checksum) + body, event.payload


def size_of(event: Event) -> int:
    """How many bytes the frame of an event takes, or a little more."""
    texts = len(event.kind) + len(event.source) + len(event.traceparent or "")
    return _HEAD.size + _FIXED.size + 4 * texts + len(event.payload)


def decode(body: memoryview) -> Record:
    """The record in a frame whose checksum was right."""
    position, identifier, received, kind, source, trace = _FIXED.unpack_from(body)
    at = _FIXED.size
    kind_text = str(body[at : at + kind], "utf-8")
    at += kind
    source_text = str(body[at : at + source], "utf-8")
    at += source
    traceparent = None
    if trace != _LONGEST_TRACE:
        traceparent = str(body[at : at + trace], "utf-8")
        at += trace
    received_at = _EPOCH + received * _MICROSECOND
    event = Event(UUID(bytes=identifier), received_at, kind_text, source_text, bytes(body[at:]), traceparent)
    return Record(position, event)


def scan(
    read: Callable[[int, int], bytes], start: int, end: int, salt: int
) -> Iterator[tuple[int, int, memoryview]]:
    """Every sound frame between two offsets: where it begins, where it ends, its body.

    `read(size, offset)` gives bytes. Damage is stepped over: the search goes on at the next magic.
    """
    at, size = start, _CHUNK_BYTES
    while at + _SHORTEST <= end:
        view = memoryview(read(min(size, end - at), at))
        begin, size = at, _CHUNK_BYTES
        for opens, closes, body in _sound(view, salt):
            yield begin + opens, begin + closes, body
            at = begin + closes
        if at > begin:
            continue
        needed = _length_at(view)
        if len(view) < needed <= end - at:
            size = needed
            continue
        following = bytes(view).find(MAGIC, 1)
        at += following if following > 0 else max(len(view) - len(MAGIC) + 1, 1)


def _sound(view: memoryview, salt: int) -> Iterator[tuple[int, int, memoryview]]:
    at = 0
    while at + _SHORTEST <= len(view):
        magic, length, checksum = _HEAD.unpack_from(view, at)
        close = at + _HEAD.size + length
        if magic == MAGIC and length >= _FIXED.size and close <= len(view):
            body = view[at + _HEAD.size : close]
            if crc32(body, salt) == checksum:
                yield at, close, body
                at = close
                continue
        at = view.obj.find(MAGIC, at + 1)  # type: ignore[attr-defined] # it is a view of bytes
        if at < 0:
            return


def _length_at(view: memoryview) -> int:
    if len(view) < _SHORTEST or view[:4] != MAGIC:
        return 0
    return _HEAD.size + int(_HEAD.unpack_from(view)[1])


def position_in(body: memoryview) -> int:
    """The position alone."""
    return int.from_bytes(body[:8], "little")
