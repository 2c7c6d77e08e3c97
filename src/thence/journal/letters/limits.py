"""How many letters are kept, and which of them go when there are more. Nothing is touched here."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from thence.journal.letters.queries import microseconds


class LetterLimits(msgspec.Struct, frozen=True):
    """How much is kept, whichever is reached first."""

    max_bytes: int = 1 << 30
    max_count: int = 1_000_000
    max_age_seconds: float | None = None

    def cutoff(self, now: datetime) -> int:
        """What failed before this moment is too old."""
        if self.max_age_seconds is None:
            return -(1 << 62)
        return microseconds(now - timedelta(seconds=self.max_age_seconds))


class Totals(msgspec.Struct, frozen=True):
    """What is there, and what expired since the file was made."""

    letter_count: int = 0
    size_bytes: int = 0
    expired_count: int = 0
    expired_bytes: int = 0


class Expiry(msgspec.Struct, frozen=True):
    """The letters that go."""

    ids: tuple[bytes, ...] = ()
    size_bytes: int = 0


def excess(
    totals: Totals, limits: LetterLimits, now: datetime, oldest: Iterable[tuple[bytes, int, int]]
) -> Expiry:
    """Which of the oldest letters must go; `oldest` gives id, time of failure and size."""
    cutoff = limits.cutoff(now)
    count, size_bytes = totals.letter_count, totals.size_bytes
    gone: list[bytes] = []
    for identifier, failed_at, letter_bytes in oldest:
        if count <= limits.max_count and size_bytes <= limits.max_bytes and failed_at >= cutoff:
            break
        gone.append(identifier)
        count -= 1
        size_bytes -= letter_bytes
    return Expiry(tuple(gone), totals.size_bytes - size_bytes)
