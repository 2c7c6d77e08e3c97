"""Journal records on a terminal or as lines of JSON."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from thence.cli.context import harmless, put, put_json
from thence.cli.moment import moment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from thence.core.event import Record

_SHOWN_CHARACTERS = 160


def chosen(
    records: Iterable[Record], since: str | None, until: str | None, kind: str | None
) -> Iterator[Record]:
    """Those of a time and a kind."""
    begin, end = moment(since), moment(until)
    return (record for record in records if _is_chosen(record, begin, end, kind))


def _is_chosen(record: Record, begin: datetime | None, end: datetime | None, kind: str | None) -> bool:
    at = record.event.received_at
    return (
        (begin is None or at >= begin)
        and (end is None or at < end)
        and (kind is None or record.event.kind == kind)
    )


def printer(*, as_json: bool, full: bool) -> Callable[[Record], None]:
    """What prints one record: JSON, or a line for people."""
    if as_json:
        return put_record

    def show(record: Record) -> None:
        event = record.event
        size = None if full else _SHOWN_CHARACTERS
        text = re.sub(r"\s+", " ", event.payload[: size and 4 * size].decode("utf-8", "backslashreplace"))
        cut = text if size is None or len(text) <= size else f"{text[:size]}…"
        put(f"{record.position}  {event.received_at:%Y-%m-%dT%H:%M:%S.%fZ}  {event.kind}  {harmless(cut)}")

    return show


def put_record(record: Record) -> None:
    """One line of JSON."""
    from thence.collect.handlers.readable import payload_of

    event = record.event
    put_json(
        {
            "position": record.position,
            "id": event.id,
            "received_at": event.received_at,
            "kind": event.kind,
            "source": event.source,
            "traceparent": event.traceparent,
            **payload_of(event.payload),
        }
    )
