"""Signs requests, so that the receiver knows who sent them and that nobody changed or repeated them.

    X-Thence-Timestamp: 1700000000
    X-Thence-Signature: v1=<hex of HMAC-SHA256(key, timestamp + "." + body)>

The body is signed as it is sent, packed if it is packed. A receiver compares in constant time, refuses what is older
than a few minutes, and tells repetitions by `X-Thence-Event`, the event's id.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

import msgspec

from thence.core.clock import Clock, SystemClock
from thence.core.errors import ConfigError
from thence.forward.http import HttpBackend, HttpTarget

TIMESTAMP = "X-Thence-Timestamp"
SIGNATURE = "X-Thence-Signature"
EVENT = "X-Thence-Event"
_SHORTEST_KEY = 16


class Signer:
    """Makes the headers for one body."""

    def __init__(self, key: bytes, clock: Clock | None = None) -> None:
        if len(key) < _SHORTEST_KEY:
            raise ConfigError(
                "forward.webhook_key",
                f"the signing key has {len(key)} bytes, too few to be safe",
                advice=f"Use at least {_SHORTEST_KEY} random bytes, 32 for instance.",
            )
        self._key = key
        self._clock = clock or SystemClock()

    def __call__(self, path: str, headers: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        """The time, and the signature over it and the body."""
        timestamp = str(int(self._clock.now().timestamp()))
        return {TIMESTAMP: timestamp, SIGNATURE: f"v1={signature(self._key, timestamp, body)}"}


def signature(key: bytes, timestamp: str, body: bytes) -> str:
    """What both sides compute."""
    return hmac.new(key, timestamp.encode() + b"." + body, "sha256").hexdigest()


def webhook(target: HttpTarget, key: bytes, *, clock: Clock | None = None) -> HttpBackend:
    """An HTTP backend that signs."""
    headers = {**target.headers, EVENT: "{event_id}"}
    signed = msgspec.structs.replace(target, headers=headers)
    return HttpBackend(signed, sign=Signer(key, clock), clock=clock)
