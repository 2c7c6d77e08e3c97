"""A failed event as one line of JSON that a person can read and `jq` can search.

The event stands in it as JSON where it is JSON, byte for byte except for line breaks between its parts; else as text,
or as base64 where it is no text.
"""

from __future__ import annotations

import base64

import msgspec

from thence.collect.parse import parse
from thence.core.errors import InvalidEvent
from thence.core.ports import DeadLetter

_LINE_BREAKS = bytes.maketrans(b"\n\r", b"  ")


def line_of(letter: DeadLetter) -> bytes:
    """The line, with its end."""
    return msgspec.json.encode(content_of(letter)) + b"\n"


def content_of(letter: DeadLetter) -> dict[str, object]:
    """What the line says."""
    return {**summary_of(letter), **payload_of(letter.event.payload)}


def summary_of(letter: DeadLetter) -> dict[str, object]:
    """Everything but the event itself."""
    event = letter.event
    return {
        "id": letter.id,
        "failed_at": letter.failed_at,
        "stage": letter.stage,
        "code": letter.code,
        "reason": letter.reason,
        "violations": letter.violations,
        "attempts": letter.attempts,
        "remote": letter.remote,
        "key_id": letter.key_id,
        "source": event.source,
        "kind": event.kind,
        "received_at": event.received_at,
        "traceparent": event.traceparent,
        "size_bytes": len(event.payload),
    }


def payload_of(payload: bytes) -> dict[str, object]:
    """The event itself, under a key that says how it stands there."""
    try:
        parse(payload)
    except InvalidEvent:
        try:
            return {"event_text": payload.decode()}
        except UnicodeDecodeError:
            return {"event_base64": base64.b64encode(payload).decode()}
    return {"event": msgspec.Raw(one_line(payload))}


def one_line(payload: bytes) -> bytes:
    """A JSON text on one line: a raw line break can only stand between its parts, so a blank does as well."""
    return payload.translate(_LINE_BREAKS)
