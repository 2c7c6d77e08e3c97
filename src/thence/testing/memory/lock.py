"""Leases in memory. Two of them on one disk are two processes that compete."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from thence.core.clock import Clock, SystemClock
from thence.core.errors import Rejected, Unavailable
from thence.core.ports import Lease, Lock
from thence.testing.memory.disk import Disk


class _State(msgspec.Struct):
    leases: dict[str, Lease] = {}
    tokens: dict[str, int] = {}


class MemoryLock(Lock):
    """A `Lock` whose disk is an object."""

    def __init__(self, disk: Disk | None = None, clock: Clock | None = None) -> None:
        self._disk = disk or Disk()
        self._clock = clock or SystemClock()
        self._state = self._disk.state("locks", _State)

    def acquire(self, name: str, *, holder: str, seconds: float) -> Lease:
        """Take a free lock."""
        with self._disk.lock:
            held = self._state.leases.get(name)
            if held is not None and held.expires_at > self._clock.now():
                raise Unavailable(
                    "lock.held",
                    f"{name} is held by {held.holder} until {held.expires_at.isoformat()}",
                    advice="Wait until it is given back or its time is over.",
                )
            token = self._state.tokens.get(name, 0) + 1
            self._disk.reach()
            self._state.tokens[name] = token
            return self._keep(Lease(name, holder, token, self._end(seconds)))

    def renew(self, lease: Lease, *, seconds: float) -> Lease:
        """Move the end of a lease that is still held."""
        with self._disk.lock:
            held = self._state.leases.get(lease.name)
            if held is None or held.token != lease.token or held.expires_at <= self._clock.now():
                raise Rejected(
                    "lock.lost",
                    f"{lease.holder} no longer holds {lease.name} (token {lease.token})",
                    advice="Stop what the lease protected, and take the lock anew.",
                )
            return self._keep(msgspec.structs.replace(held, expires_at=self._end(seconds)))

    def release(self, lease: Lease) -> None:
        """Give a lease back."""
        with self._disk.lock:
            held = self._state.leases.get(lease.name)
            if held is not None and held.token == lease.token:
                self._disk.reach()
                del self._state.leases[lease.name]

    def _end(self, seconds: float) -> datetime:
        return self._clock.now() + timedelta(seconds=seconds)

    def _keep(self, lease: Lease) -> Lease:
        self._disk.reach()
        self._state.leases[lease.name] = lease
        return lease
