"""One client's link through a `FaultProxy`, and the faults that act on it.

Bytes go through two pumps, one for each direction. Before a pump passes a piece on, it asks the faults that are in
force at that moment how much of it may pass, after how long, and whether the link ends there.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

Direction = Literal["to_server", "to_client"]

_PIECE_BYTES = 64 * 1024
# Closing a socket that lingers for no time sends a reset instead of an end.
_RESET = struct.pack("ii", 1, 0)


@dataclass(eq=False)
class Fault:
    """One fault in force. Where a direction is given, it concerns only that one."""

    direction: Direction | None = None
    latency_seconds: float = 0.0
    bytes_per_second: float | None = None
    refuses: bool = False
    resets_after: int | None = None
    hangs_after: int | None = None
    loses_answers: int = 0
    passed: defaultdict[tuple[Link, Direction], int] = field(default_factory=lambda: defaultdict(int))


class Switchboard:
    """The faults in force, and what has passed in all. Used in the proxy's thread only."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.passed: dict[Direction, int] = {"to_server": 0, "to_client": 0}
        self._changed = asyncio.Event()

    def change(self, faults: list[Fault]) -> None:
        """Put other faults in force, and wake whoever waits because of the old ones."""
        self.faults = faults
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_for_change(self, seconds: float | None = None) -> None:
        """Return when the faults have changed, or the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def concerning(self, direction: Direction) -> list[Fault]:
        """The faults that concern a direction."""
        return [fault for fault in self.faults if fault.direction in {None, direction}]


class _Broken(Exception):
    """A fault ends this link with a reset."""


class Link:
    """A connection of a client and the one to the server that belongs to it."""

    def __init__(self, board: Switchboard, client: socket.socket, server: tuple[str, int]) -> None:
        self._board = board
        self._client = client
        self._server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._reset = False
        self._ending = False
        for end in (self._client, self._server):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ended = asyncio.create_task(self._serve(server))
        # A task that is cancelled before its first step runs no `finally` of its own.
        self.ended.add_done_callback(self._close_ends)

    async def close(self, *, reset: bool = False) -> None:
        """End the link now."""
        if not self._ending:
            self._reset = reset
            self.ended.cancel()
        await asyncio.wait([self.ended])

    async def _serve(self, server: tuple[str, int]) -> None:
        pumps: list[asyncio.Task[None]] = []
        try:
            await asyncio.get_running_loop().sock_connect(self._server, server)
            pumps += [
                asyncio.create_task(self._pump(self._client, self._server, "to_server")),
                asyncio.create_task(self._pump(self._server, self._client, "to_client")),
            ]
            await asyncio.gather(*pumps)
        except (_Broken, OSError):
            self._reset = True
        finally:
            # From here on nobody cancels this task: the pumps let go of the sockets before those are closed.
            self._ending = True
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    def _close_ends(self, _: asyncio.Task[None]) -> None:
        for end in (self._client, self._server):
            if self._reset:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            end.close()

    async def _pump(self, source: socket.socket, target: socket.socket, direction: Direction) -> None:
        loop = asyncio.get_running_loop()
        while piece := await loop.sock_recv(source, _PIECE_BYTES):
            await self._delay(direction)
            while piece:
                wanted = await self._throttle(direction, len(piece))
                allowed = await self._allowance(direction, wanted)
                await loop.sock_sendall(target, piece[:allowed])
                self._count(direction, allowed)
                piece = piece[allowed:]
        # The end of a stream is held back as its bytes are.
        await self._allowance(direction, 0)
        target.shutdown(socket.SHUT_WR)

    async def _delay(self, direction: Direction) -> None:
        clock = asyncio.get_running_loop().time
        arrived = clock()
        while (left := arrived + self._latency(direction) - clock()) > 0:
            await self._board.wait_for_change(left)

    def _latency(self, direction: Direction) -> float:
        return sum(fault.latency_seconds for fault in self._board.concerning(direction))

    async def _allowance(self, direction: Direction, wanted: int) -> int:
        """How many bytes may pass now; waits while none may."""
        while True:
            self._lose(direction, wanted)
            allowed = min([wanted, *self._limits(direction)])
            if allowed > 0 or (wanted == 0 and not self._hanging(direction)):
                return allowed
            await self._board.wait_for_change()

    def _limits(self, direction: Direction) -> list[int]:
        limits = []
        for fault in self._board.concerning(direction):
            passed = fault.passed[self, direction]
            limits += [stop - passed for stop in (fault.hangs_after, fault.resets_after) if stop is not None]
        return limits

    def _hanging(self, direction: Direction) -> bool:
        return any(
            fault.hangs_after is not None and fault.passed[self, direction] >= fault.hangs_after
            for fault in self._board.concerning(direction)
        )

    def _lose(self, direction: Direction, wanted: int) -> None:
        for fault in self._board.concerning(direction):
            if wanted and fault.loses_answers:
                fault.loses_answers -= 1
                raise _Broken
            if (
                wanted
                and fault.resets_after is not None
                and fault.passed[self, direction] >= fault.resets_after
            ):
                raise _Broken

    async def _throttle(self, direction: Direction, wanted: int) -> int:
        """How many bytes to pass on at once; waits as long as they take."""
        rates = [fault.bytes_per_second for fault in self._board.concerning(direction)]
        slowest = min((rate for rate in rates if rate is not None), default=None)
        if slowest is None:
            return wanted
        wanted = min(wanted, max(int(slowest / 20), 1))
        await self._board.wait_for_change(wanted / slowest)
        return wanted

    def _count(self, direction: Direction, count: int) -> None:
        self._board.passed[direction] += count
        for fault in self._board.concerning(direction):
            fault.passed[self, direction] += count
            if fault.resets_after is not None and fault.passed[self, direction] >= fault.resets_after:
                raise _Broken


def bound(address: tuple[str, int]) -> socket.socket:
    """A socket on an address that others of this process may be bound to as well."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setblocking(False)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(address)
    return bound
