"""Decides which partitions may go, and which must. Nothing is touched here.

A partition is *done* when every cursor has passed its last record. When a journal is over its limits, its oldest
partitions *expire*, whole and in order, the one that is written to at last.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """How much a journal keeps, and when it begins a new partition."""

    max_bytes: int = 10 << 30
    max_age_seconds: float | None = 72 * 3600
    when_full: Literal["expire_oldest", "refuse"] = "expire_oldest"
    partition_bytes: int = 256 << 20
    partition_age_seconds: float = 3600


class Stock(msgspec.Struct, frozen=True):
    """One partition as the decision sees it. `ended_at` is when the next one began; None for the last one."""

    first: int
    last: int
    size_bytes: int
    created_at: datetime
    ended_at: datetime | None


def done(stocks: Sequence[Stock], passed: int | None) -> int:
    """How many of the oldest partitions every cursor has passed; `passed` is the slowest, None without cursors."""
    if passed is None:
        return 0
    return _leading([stock.ended_at is not None and stock.last <= passed for stock in stocks])


def overdue(stocks: Sequence[Stock], limits: Limits, now: datetime) -> int:
    """How many of the oldest partitions hold nothing younger than the limit."""
    if limits.max_age_seconds is None or limits.when_full == "refuse":
        return 0
    oldest = limits.max_age_seconds
    return _leading(
        [stock.ended_at is not None and (now - stock.ended_at).total_seconds() > oldest for stock in stocks]
    )


def excess(stocks: Sequence[Stock], limits: Limits, incoming_bytes: int) -> int:
    """How many of the oldest partitions stand in the way of so many more bytes; all of them if even that is too few."""
    over = sum(stock.size_bytes for stock in stocks) + incoming_bytes - limits.max_bytes
    count = 0
    while over > 0 and count < len(stocks):
        over -= stocks[count].size_bytes
        count += 1
    return count


def should_rotate(stock: Stock, limits: Limits, incoming_bytes: int, now: datetime) -> bool:
    """Whether the next records go into a new partition."""
    if stock.last < stock.first:
        return False
    too_big = stock.size_bytes + incoming_bytes > limits.partition_bytes
    return too_big or (now - stock.created_at).total_seconds() > limits.partition_age_seconds


def _leading(answers: Sequence[bool]) -> int:
    return next((index for index, yes in enumerate(answers) if not yes), len(answers))
