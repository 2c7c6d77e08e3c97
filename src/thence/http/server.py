"""Runs HTTP on an address, in a thread with an event loop of its own.

The socket is bound by `bind`, before anything else starts, so that a port that is taken is found first. `stop` answers
what was asked, closes what is idle, and cuts off the rest when its time is over. Futures that handlers return belong to
`loop` and are resolved there, by `loop.call_soon_threadsafe`. `on_end` is awaited there last, for what handlers keep.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Protocol

from thence.core.clock import Clock, SystemClock
from thence.core.errors import ConfigError, Unavailable
from thence.http.counters import Counters
from thence.http.limits import Limits
from thence.http.protocol import HttpProtocol
from thence.http.routes import Routes, RouteTable
from thence.http.state import ServerState

_log = logging.getLogger(__name__)
_CUT_SECONDS = 2.0
_GRACE_SECONDS = 0.1
_OTHER_FILES = 256


class Address(Protocol):
    """Where to listen."""

    @property
    def host(self) -> str:
        """A name or number."""
        ...

    @property
    def port(self) -> int:
        """0 means any free one."""
        ...


class HttpServer:
    """One listening socket, its thread and its connections."""

    name = "HTTP"

    def __init__(
        self,
        address: Address,
        routes: Routes,
        *,
        limits: Limits | None = None,
        clock: Clock | None = None,
        counters: Counters | None = None,
        on_end: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.counters = counters or Counters()
        self._on_end = on_end
        self._address = address
        self._table = RouteTable(routes)
        self._limits = limits or Limits()
        self._clock = clock or SystemClock()
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

    @property
    def url(self) -> str:
        """Where a person on this machine finds it."""
        if self._socket is None:
            return f"http://{self._address}/"
        host, port = self._socket.getsockname()[:2]
        shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
        return f"http://[{shown}]:{port}/" if ":" in shown else f"http://{shown}:{port}/"

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop in which handlers run, while the server does."""
        if self._loop is None:
            raise Unavailable("http.not_running", "the HTTP server is not running", advice="Start it first.")
        return self._loop

    def bind(self) -> None:
        """Take the port, or say who cannot have it."""
        family = socket.AF_INET6 if ":" in self._address.host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((self._address.host, self._address.port))
            bound.listen(self._limits.backlog_count)
        except (OSError, OverflowError) as error:
            bound.close()
            raise _cannot_listen(self._address, error) from error
        self._socket = bound

    def start(self) -> str:
        """Answer requests; returns the address."""
        if self._socket is None:
            self.bind()
        self._started.clear()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._thread.start()
        while not self._started.wait(0.01) and self._thread.is_alive():
            pass
        if not self._started.is_set():
            raise Unavailable("http.start", "the HTTP server did not start", advice="The log says why.")
        return self.url

    def stop(self) -> None:
        """Answer what was asked already, then close."""
        loop, stopping, thread = self._loop, self._stopping, self._thread
        if loop is not None and stopping is not None and thread is not None:
            loop.call_soon_threadsafe(stopping.set)
            thread.join(self._limits.drain_seconds + _CUT_SECONDS)
        if self._socket is not None:
            self._socket.close()
        self._loop = self._stopping = self._thread = self._socket = None

    def trouble(self) -> str:
        """What is wrong right now."""
        return "" if self._thread is not None and self._thread.is_alive() else "the server thread ended"

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        assert self._socket is not None  # noqa: S101 - bound by start
        loop = asyncio.get_running_loop()
        state = ServerState(self._table, self._limits, self.counters, self._clock, loop)
        state.connection_limit = _connections_that_fit(self._limits.connection_count)
        listener = await loop.create_server(
            lambda: HttpProtocol(state), sock=self._socket, backlog=self._limits.backlog_count
        )
        sweep = asyncio.create_task(self._sweep(state))
        self._loop, self._stopping = loop, asyncio.Event()
        self._started.set()
        await self._stopping.wait()
        listener.close()
        await self._drain(state)
        sweep.cancel()
        if self._on_end is not None:
            await self._on_end()

    async def _sweep(self, state: ServerState) -> None:
        while True:
            await asyncio.sleep(self._limits.sweep_seconds)
            state.answers.refresh()
            now = state.monotonic()
            for connection in list(state.connections):
                connection.check(now)

    async def _drain(self, state: ServerState) -> None:
        state.is_draining = True
        deadline = state.monotonic() + self._limits.drain_seconds
        # What has arrived by now is read before idle connections are closed.
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        while (busy := _busy(state)) and state.monotonic() < deadline:
            await asyncio.sleep(0.01)
        if busy:
            _log.warning(
                "some clients did not finish in time", extra={"action": "http_cut", "connections": busy}
            )
        elif state.connections:
            await asyncio.sleep(_GRACE_SECONDS)
        for connection in list(state.connections):
            connection.abort()
        # Tasks that are still there are cancelled by the runner.
        await asyncio.sleep(0)


def _busy(state: ServerState) -> int:
    """How many connections still wait for an answer; closes those that do not."""
    for connection in list(state.connections):
        if connection.is_idle:
            connection.close()
    return sum(not connection.is_done for connection in state.connections)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # There is no wheel for this platform: slower, and otherwise the same.
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _connections_that_fit(wanted_count: int) -> int:
    """How many connections there can be: each needs an open file, and others need some too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted_count + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
        soft = max(soft, allowed)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted_count
    fitting = max(soft - _OTHER_FILES, soft // 2)
    _log.warning(
        "the limit of open files (ulimit -n) allows fewer connections than are set",
        extra={"action": "http_few_files", "connections": fitting, "wanted": wanted_count, "files": soft},
    )
    return fitting


def _cannot_listen(address: Address, error: Exception) -> ConfigError:
    reason = getattr(error, "strerror", None) or str(error)
    return ConfigError(
        "http.listen",
        f"cannot listen on {address}: {reason}",
        advice="Stop what uses that port, or choose another: --listen 127.0.0.1:0 takes any free one.",
    )
