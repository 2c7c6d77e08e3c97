"""What a forwarder tells about itself, for metrics and people."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from thence.core.tally import Tally
from thence.forward.breaker import State

TroubleKind = Literal["unavailable", "misconfigured", "blocked", "own_disk", "failed", "ended"]


class Trouble(msgspec.Struct, frozen=True):
    """Why a forwarder does not get on, and what to do about it."""

    kind: TroubleKind
    code: str
    message: str
    advice: str
    since: datetime


class Counters(msgspec.Struct):
    """What happened since this forwarder was made. Only its own thread writes here."""

    delivered: int = 0
    settled_bytes: int = 0
    parked: int = 0
    filtered: int = 0
    sends: int = 0
    retries: int = 0
    last_send_seconds: float | None = None


class Stats(msgspec.Struct, frozen=True):
    """One look at a forwarder. `tally` is what its cursor says: the conservation law holds in it.

    Lags leave out what was delivered and is not settled yet. `lag_bytes` is exact for what was read ahead and goes by
    the mean size of the events read so far for the rest. `lag_seconds` is the age of the oldest event that waits.
    """

    name: str
    tally: Tally
    lag_events: int
    lag_bytes: int
    lag_seconds: float
    counters: Counters
    breaker: State
    trouble: Trouble | None
