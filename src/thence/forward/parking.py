"""Turns an event that a destination cannot or will not take into a dead letter.

The letter's id follows from the destination and the event, so that a crash between parking and settling parks the
same letter again and makes no second one. The event in it is the one received, before any rule changed it.
"""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256
from uuid import UUID

from thence.core.event import Event
from thence.core.ports import DeadLetter

_TIME_BITS = 48


def letter(
    name: str, event: Event, *, code: str, reason: str, now: datetime, attempts: int = 1
) -> DeadLetter:
    """The letter of one destination for one event."""
    return DeadLetter(
        id=letter_id(name, event.id),
        stage=f"forward.{name}",
        code=code,
        reason=reason,
        failed_at=now,
        event=event,
        attempts=attempts,
    )


def letter_id(name: str, event_id: UUID) -> UUID:
    """Sorts by the event's time as its own id does."""
    digest = int.from_bytes(sha256(name.encode() + b"\0" + event_id.bytes).digest()[:10], "big")
    time = event_id.int >> (128 - _TIME_BITS)
    rest = digest & ~(0xF << 76) & ~(0b11 << 62)
    return UUID(int=time << 80 | rest | 0x8 << 76 | 0b10 << 62)
