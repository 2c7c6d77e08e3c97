"""A TCP proxy that breaks links: put it between a client and a server on this machine, and let it misbehave.

    with FaultProxy(("127.0.0.1", port)) as proxy:
        client = connect(proxy.address)
        with proxy.lost_answers():
            client.send(...)  # arrives, and the client gets an error instead of the answer

Each fault is a context manager and heals at its end; faults that are open at the same time act together. Everything
that the proxy does happens in one thread of its own, so a fault is in force for all links when `with` has been entered.
Nothing is kept: when the proxy ends, so do its links.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, TypeVar

from thence.testing.links import Direction, Fault, Link, Switchboard, bound

Result = TypeVar("Result")

_PATIENCE_SECONDS = 30.0


class FaultProxy:
    """A proxy in front of one server, on a free port of the loopback interface."""

    address: tuple[str, int]

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self._board = Switchboard()
        self._links: set[Link] = set()
        self._listener: socket.socket | None = None
        self._connections = 0

    def __enter__(self) -> FaultProxy:
        # Bound and never listening, this keeps the port ours while connections are refused.
        self._reservation = bound(("127.0.0.1", 0))
        self.address = self._reservation.getsockname()
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(self, *exc: object) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE_SECONDS)
        self._loop.close()
        self._reservation.close()

    @property
    def connections(self) -> int:
        """How many connections were accepted so far."""
        return self._connections

    @property
    def bytes_to_server(self) -> int:
        """How many bytes were passed on to the server so far."""
        return self._board.passed["to_server"]

    @property
    def bytes_to_client(self) -> int:
        """How many bytes were passed on to clients so far."""
        return self._board.passed["to_client"]

    # Faults

    def latency(self, seconds: float, direction: Direction | None = None) -> AbstractContextManager[None]:
        """Each piece of up to 64 KiB waits so long, in both directions unless one is named."""
        return self._in_force(Fault(direction, latency_seconds=seconds))

    def bandwidth(
        self, bytes_per_second: float, direction: Direction | None = None
    ) -> AbstractContextManager[None]:
        """Each link passes on no more than so many bytes in a second."""
        return self._in_force(Fault(direction, bytes_per_second=bytes_per_second))

    def cut(self) -> AbstractContextManager[None]:
        """All links are closed in both directions, and new connections are refused."""
        return self._in_force(Fault(refuses=True), self._close_links)

    def reset_after(self, count: int, direction: Direction) -> AbstractContextManager[None]:
        """Each link passes on that many more bytes in one direction; then both its ends see a reset."""
        return self._in_force(Fault(direction, resets_after=count))

    def hang(self, after: int = 0, direction: Direction | None = None) -> AbstractContextManager[None]:
        """Connections are accepted, and nothing more is passed on, or nothing after so many bytes of a direction.

        What was held back goes on when the fault has healed.
        """
        return self._in_force(Fault(direction, hangs_after=after))

    def lost_answers(self, count: int | None = None) -> AbstractContextManager[None]:
        """What the server says next on a link is thrown away, and both ends see a reset; always, or so many times."""
        return self._in_force(Fault("to_client", loses_answers=-1 if count is None else count))

    def drop(self, *, reset: bool = False) -> None:
        """Close all links now, by a reset if wanted. New connections are accepted."""
        self._run(self._close_links(reset=reset))

    def heal(self) -> None:
        """End all faults now, also those whose `with` has not ended."""
        self._run(self._put_in_force([]))

    @contextmanager
    def _in_force(
        self, fault: Fault, then: Callable[[], Coroutine[Any, Any, None]] | None = None
    ) -> Iterator[None]:
        self._run(self._put_in_force([*self._board.faults, fault]))
        try:
            if then is not None:
                self._run(then())
            yield
        finally:
            if not self._loop.is_closed():
                self._run(self._put_in_force([other for other in self._board.faults if other is not fault]))

    # What follows runs in the proxy's own thread.

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_SECONDS)

    async def _put_in_force(self, faults: list[Fault]) -> None:
        self._board.change(faults)
        if any(fault.refuses for fault in faults):
            await self._refuse()
        elif self._listener is None:
            await self._listen()

    async def _listen(self) -> None:
        listener = bound(self.address)
        listener.setblocking(False)
        listener.listen(128)
        self._listener = listener
        self._loop.add_reader(listener, self._accept, listener)

    async def _refuse(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        # Accepted and handed on in one step, so that no connection is lost between the two when listening ends.
        try:
            client, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        client.setblocking(False)
        self._connections += 1
        link = Link(self._board, client, self._server)
        self._links.add(link)
        link.ended.add_done_callback(partial(self._forget, link))

    def _forget(self, link: Link, _: asyncio.Task[None]) -> None:
        self._links.discard(link)

    async def _close_links(self, *, reset: bool = False) -> None:
        for link in list(self._links):
            await link.close(reset=reset)

    async def _end(self) -> None:
        await self._refuse()
        await self._close_links()
