"""How much one client may take: sizes, times and numbers, with defaults that suit an open port.

Times are counted by a sweep about once a second, so that a connection costs no timer of its own.
"""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a server allows. What goes beyond is refused with a status of its own and counted by reason."""

    head_bytes: int = 64 << 10
    header_count: int = 100
    target_bytes: int = 16 << 10
    connection_count: int = 10_000
    pipelined_count: int = 16
    held_body_bytes: int = 512 << 20
    """Bodies in memory, of all requests together that are not answered yet."""

    unread_body_bytes: int = 64 << 10
    """What a route without a body reads and drops, to keep the connection."""

    head_seconds: float = 10.0
    idle_seconds: float = 75.0
    body_idle_seconds: float = 30.0
    body_bytes_per_second: int = 256
    """The least mean rate, looked at after `body_idle_seconds`."""

    write_idle_seconds: float = 30.0
    linger_seconds: float = 2.0
    drain_seconds: float = 5.0
    backlog_count: int = 2048

    @property
    def sweep_seconds(self) -> float:
        """How often times are looked at."""
        times = (self.head_seconds, self.idle_seconds, self.body_idle_seconds, self.write_idle_seconds)
        return min(1.0, self.linger_seconds / 2, *(each / 4 for each in times))
