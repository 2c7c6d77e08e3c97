"""How a forwarder behaves, as data; each default is what an operator would choose who never wants to lose an event."""

from __future__ import annotations

from typing import Literal

import msgspec


class Policy(msgspec.Struct, frozen=True):
    """One destination's. Nothing in it ever gives up: retries are unlimited."""

    on_refusal: Literal["block", "park"] = "block"
    max_events: int = 1000
    max_bytes: int = 4 << 20
    send_seconds: float = 1.0
    """A call is cut so small that it takes about so long; what one call holds is sent again after a crash."""
    settle_events: int = 1000
    settle_seconds: float = 0.02
    """How far the cursor on disk may lag behind what was delivered; so much is sent again after a crash."""
    first_delay_seconds: float = 0.1
    longest_delay_seconds: float = 30.0
    longest_retry_after_seconds: float = 3600.0
    blocked_delay_seconds: float = 30.0
    """How often a refused event, or a destination that somebody must repair, is tried again."""
    breaker_failures: int = 5
    """After so many failures in a row, a single event is sent as a probe."""
    poll_seconds: float = 1.0
    """How often the journal is looked at when nobody says that there is something new."""
