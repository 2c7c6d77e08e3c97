"""An event is bytes that somebody sent, and what we know about their arrival.

The payload is kept as it came, byte for byte; nobody re-encodes it on the way.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec


class Event(msgspec.Struct, frozen=True):
    """What arrived: `kind` says how to read the payload, `source` which door or key it came through."""

    id: UUID
    received_at: datetime
    kind: str
    source: str
    payload: bytes
    traceparent: str | None = None


class Record(msgspec.Struct, frozen=True):
    """An event at its place in a journal. Positions start at 1 and leave no gaps."""

    position: int
    event: Event
