"""Signs requests as Amazon's services want it (Signature Version 4), for destinations such as DataZone.

The keys are given; where they come from and when they are renewed is the business of whoever wires this.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from hashlib import sha256
from urllib.parse import parse_qsl, quote

import msgspec

from thence.core.clock import Clock, SystemClock

_ALGORITHM = "AWS4-HMAC-SHA256"


class AwsKeys(msgspec.Struct, frozen=True):
    """Whose signature, and for which service of which region."""

    access_key: str
    secret_key: str
    region: str
    service: str
    session_token: str | None = None

    def __repr__(self) -> str:
        return f"AwsKeys(access_key={self.access_key!r}, region={self.region!r}, service={self.service!r})"

    __str__ = __repr__


class AwsSigner:
    """Makes the headers for one POST."""

    def __init__(self, keys: AwsKeys, clock: Clock | None = None) -> None:
        self._keys = keys
        self._clock = clock or SystemClock()

    def __call__(self, path: str, headers: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        """The date, the session's token and the signature."""
        keys = self._keys
        moment = self._clock.now().strftime("%Y%m%dT%H%M%SZ")
        added = {"X-Amz-Date": moment}
        if keys.session_token is not None:
            added["X-Amz-Security-Token"] = keys.session_token
        signed = {"host": headers["Host"], **{name.lower(): value for name, value in added.items()}}
        names = ";".join(sorted(signed))
        lines = [f"{name}:{signed[name].strip()}" for name in sorted(signed)]
        request = "\n".join(["POST", *_canonical(path), *lines, "", names, sha256(body).hexdigest()])
        scope = f"{moment[:8]}/{keys.region}/{keys.service}/aws4_request"
        text = "\n".join([_ALGORITHM, moment, scope, sha256(request.encode()).hexdigest()])
        signature = hmac.new(self._key(scope), text.encode(), "sha256").hexdigest()
        credential = f"{keys.access_key}/{scope}"
        added["Authorization"] = (
            f"{_ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}"
        )
        return added

    def _key(self, scope: str) -> bytes:
        key = f"AWS4{self._keys.secret_key}".encode()
        for part in scope.split("/"):
            key = hmac.new(key, part.encode(), "sha256").digest()
        return key


def _canonical(path: str) -> tuple[str, str]:
    path, _, query = path.partition("?")
    pairs = sorted((quote(key, "-_.~"), quote(value, "-_.~")) for key, value in parse_qsl(query, True))
    return quote(path, "/-_.~"), "&".join(f"{key}={value}" for key, value in pairs)
