"""Identifiers that sort by time: UUID version 7 (RFC 9562), with the time injected.

Within one process ids strictly increase, also when the wall clock is set back: the last millisecond is kept and the
counter goes on. Between processes the order is that of the millisecond. After a fork the random part differs.
An id's time is a convenience for people; no decision is taken from it.
"""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime, timedelta
from uuid import UUID

from thence.core.clock import Clock, SystemClock

_COUNTER_BITS = 18
_RANDOM_BITS = 74 - _COUNTER_BITS
_NOISE_BYTES = 9
_POOL_BYTES = 512 * _NOISE_BYTES
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class _Generation:
    """Counts forks: a child must not go on with random bytes that its parent has as well."""

    number = 0

    @classmethod
    def next(cls) -> None:
        cls.number += 1


os.register_at_fork(after_in_child=_Generation.next)


class IdFactory:
    """Makes UUIDv7s that strictly increase. Safe to share between threads."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._milliseconds = 0
        self._counter = 0
        self._pool = b""
        self._used = 0
        self._generation = 0

    def __call__(self) -> UUID:
        """The next id."""
        now = (self._clock.now() - _EPOCH) // _MILLISECOND
        with self._lock:
            noise = self._noise()
            if now > self._milliseconds:
                # Half of the counter's range stays free, so that it cannot overflow soon after its random start.
                self._milliseconds = now
                self._counter = noise >> 56 & ((1 << (_COUNTER_BITS - 1)) - 1)
            else:
                self._counter += 1
                if self._counter >> _COUNTER_BITS:
                    self._milliseconds += 1
                    self._counter = 0
            head, counter = self._milliseconds, self._counter
        tail = counter << _RANDOM_BITS | noise & ((1 << _RANDOM_BITS) - 1)
        high, low = tail >> 62, tail & ((1 << 62) - 1)
        return UUID(int=head << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low)

    def _noise(self) -> int:
        # Random bytes are fetched in bulk: asking the kernel for a few costs more than all the rest of an id.
        if self._used >= len(self._pool) or self._generation != _Generation.number:
            self._pool, self._used = os.urandom(_POOL_BYTES), 0
            self._generation = _Generation.number
        at = self._used
        self._used = at + _NOISE_BYTES
        return int.from_bytes(self._pool[at : at + _NOISE_BYTES], "big")


def time_of(identifier: UUID) -> datetime:
    """The millisecond at which a version 7 id was made."""
    return _EPOCH + (identifier.int >> 80) * _MILLISECOND
