"""The named queries of queries.sql, and the values that go in and out of them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from typing import Any
from uuid import UUID

import msgspec

from thence.core.errors import Violation
from thence.core.event import Event
from thence.core.ports import DeadLetter

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# What a letter takes beside its texts and its payload, roughly.
_OVERHEAD_BYTES = 200

_violations = msgspec.json.Decoder(tuple[Violation, ...]).decode


class _Sender(msgspec.Struct):
    producer: str = ""


_sender = msgspec.json.Decoder(_Sender).decode


class Filters(msgspec.Struct, frozen=True):
    """Which letters: all that are left out do not matter. `producer` and `text` are found anywhere inside."""

    stage: str | None = None
    code: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    producer: str | None = None
    text: str | None = None

    def arguments(self, after: UUID | None = None) -> dict[str, Any]:
        """What the queries are given."""
        return {
            **msgspec.structs.asdict(self),
            "since": microseconds(self.since) if self.since is not None else None,
            "until": microseconds(self.until) if self.until is not None else None,
            "after": after.bytes if after is not None else b"",
        }


@cache
def query(name: str) -> str:
    """A query by its name."""
    return _queries()[name]


def schema() -> str:
    """What makes an empty file ready."""
    return _read("schema.sql")


def row_of(letter: DeadLetter) -> dict[str, Any]:
    """The arguments of `put`."""
    event = letter.event
    violations = msgspec.json.encode(letter.violations).decode()
    texts = (letter.stage, letter.code, letter.reason, violations, event.kind, event.source)
    return {
        "id": letter.id.bytes,
        "stage": letter.stage,
        "code": letter.code,
        "reason": letter.reason,
        "failed_at": microseconds(letter.failed_at),
        "attempts": letter.attempts,
        "remote": letter.remote,
        "key_id": letter.key_id,
        "producer": producer_of(event.payload),
        "violations": violations,
        "event_id": event.id.bytes,
        "received_at": microseconds(event.received_at),
        "kind": event.kind,
        "source": event.source,
        "traceparent": event.traceparent,
        "size_bytes": _OVERHEAD_BYTES + sum(map(len, texts)) + len(event.payload),
        "payload": event.payload,
    }


def letter_of(row: tuple[Any, ...]) -> DeadLetter:
    """The letter in a row of `find` or `get`."""
    identifier, stage, code, reason, failed_at, attempts, remote, key_id, violations, *rest = row
    event_id, received_at, kind, source, traceparent, payload = rest
    return DeadLetter(
        id=UUID(bytes=identifier),
        stage=stage,
        code=code,
        reason=reason,
        failed_at=_at(failed_at),
        event=Event(UUID(bytes=event_id), _at(received_at), kind, source, payload, traceparent),
        attempts=attempts,
        remote=remote,
        key_id=key_id,
        violations=_violations(violations),
    )


def producer_of(payload: bytes) -> str:
    """Who an event says that it is from; empty when it cannot be read."""
    try:
        return _sender(payload).producer
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""


def microseconds(at: datetime) -> int:
    """A time as it stands in the file."""
    return (at - _EPOCH) // _MICROSECOND


def _at(stored: int) -> datetime:
    return _EPOCH + stored * _MICROSECOND


@cache
def _queries() -> dict[str, str]:
    parts = re.split(r"^-- name: (\w+)\n", _read("queries.sql"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
