"""Events that the suites put through the ports: distinct, in order, and some of them unpleasant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from thence.core.event import Event

_START = datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=UTC)


def identifier(number: int) -> UUID:
    """A version 7 id; a higher number gives a higher id."""
    return UUID(int=(1_700_000_000_000 + number) << 80 | 0x7 << 76 | 0b10 << 62 | number)


def event(number: int, *, size_bytes: int = 0) -> Event:
    """An event that differs from that of every other number; its payload is a JSON object."""
    filling = "x" * size_bytes
    return Event(
        id=identifier(number),
        received_at=_START + timedelta(milliseconds=number),
        kind="sample",
        source=f"source-{number % 3}",
        payload=b'{"number": %d, "filling": "%s"}' % (number, filling.encode()),
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" if number % 2 else None,
    )


def events(count: int, *, first: int = 1) -> list[Event]:
    """That many events in a row."""
    return [event(number) for number in range(first, first + count)]


def awkward() -> list[Event]:
    """Payloads and names that a store could damage on the way."""
    payloads = [
        b"",
        b"\x00\xff\xfe\n",
        "Grüße, 世界 \N{PILE OF POO}".encode(),
        b"'; DROP TABLE x; --",
        b"\\x00\r\n\t",
        bytes(1 << 20),
    ]
    return [
        Event(
            id=identifier(number),
            received_at=_START,
            kind="o'dd \N{SNOWMAN}",
            source="",
            payload=payload,
        )
        for number, payload in enumerate(payloads, start=1)
    ]
