"""What the server counts, as plain numbers. Only the thread of the server's loop touches them."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Durations:
    """A histogram: how many fell into each of `BUCKETS` or above them, and their sum in seconds."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds


class Counters:
    """Everything that one server has counted since it was made."""

    def __init__(self) -> None:
        self.requests: defaultdict[tuple[str, str, int], int] = defaultdict(int)
        """By method, route and status."""
        self.seconds: defaultdict[str, Durations] = defaultdict(Durations)
        """By route."""
        self.refused: defaultdict[str, int] = defaultdict(int)
        """By reason."""
        self.connections = 0
        self.received_bytes = 0
        self.sent_bytes = 0
