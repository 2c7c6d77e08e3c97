"""The conservation law of one cursor, kept across restarts.

    appended = delivered + parked + filtered + skipped + expired + waiting

It is what the metrics show and what every fault test asserts at its end.
"""

from __future__ import annotations

import msgspec

from thence.core.errors import InvariantBroken


class Settled(msgspec.Struct, frozen=True):
    """What became of a run of records: each is counted exactly once."""

    delivered: int = 0
    parked: int = 0
    filtered: int = 0
    skipped: int = 0
    expired: int = 0

    def __post_init__(self) -> None:
        # A negative count would let the law hold while records are lost.
        if min(self.delivered, self.parked, self.filtered, self.skipped, self.expired) < 0:
            raise InvariantBroken("tally.negative", f"a count below zero in {self}")

    @property
    def total(self) -> int:
        """How many records were settled."""
        return self.delivered + self.parked + self.filtered + self.skipped + self.expired

    def __add__(self, other: Settled) -> Settled:
        return Settled(
            self.delivered + other.delivered,
            self.parked + other.parked,
            self.filtered + other.filtered,
            self.skipped + other.skipped,
            self.expired + other.expired,
        )


class Tally(msgspec.Struct, frozen=True):
    """Everything appended to a journal, and where one cursor has it."""

    appended: int
    settled: Settled
    waiting: int

    @property
    def holds(self) -> bool:
        """Whether nothing was lost and nothing was counted twice."""
        return self.appended == self.settled.total + self.waiting
