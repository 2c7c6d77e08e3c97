"""The identity of some content: which algorithm, its digest, and how many uncompressed bytes there were.

Two contents are the same when all three agree. The text form is `algorithm:hex:bytes`.
"""

from __future__ import annotations

import re

import msgspec

from thence.core.errors import Rejected

_TEXT = re.compile(r"([a-z0-9-]+):([0-9a-f]{16,128}):([0-9]{1,19})")


class Fingerprint(msgspec.Struct, frozen=True):
    """A digest with the size of what was digested."""

    algorithm: str
    digest: str
    size_bytes: int

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.digest}:{self.size_bytes}"

    @classmethod
    def parse(cls, text: str) -> Fingerprint:
        """Read the text form."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise Rejected(
                "fingerprint.malformed",
                f"{text[:80]!r} is not a fingerprint",
                advice="Write it as algorithm:hex:bytes, as `str(fingerprint)` does.",
            )
        return cls(match[1], match[2], int(match[3]))
