"""Starts services in order, keeps them until told to stop, and stops them in the opposite order.

A service that cannot start stops those that run already, so that nothing is left half-started. The first SIGTERM or
SIGINT drains and stops within `STOP_SECONDS`; a second one ends the process at once. What a service writes must
stand that, as it must stand kill -9. SIGHUP reads the settings again.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from thence.core.clock import Clock, SystemClock
from thence.core.errors import ThenceError, Unhealthy
from thence.service.systemd import notify

STOP_SECONDS = 10.0
_OBJECTS_BETWEEN_COLLECTIONS = 20_000

_log = logging.getLogger(__name__)

Phase = Literal["waiting", "starting", "ready", "failed", "stopping", "stopped"]


class Service(Protocol):
    """Something that `thence up` starts. Its methods may block: they run in threads of their own."""

    name: str

    def start(self) -> str:
        """Become ready, and return one line that says where it can be found."""
        ...

    def stop(self) -> None:
        """Finish what is under way and let go of everything. Stopping what never started does nothing."""
        ...

    def trouble(self) -> str:
        """What is wrong right now; empty when it is healthy."""
        ...


class Status(msgspec.Struct, frozen=True):
    """How one service is doing."""

    name: str
    phase: Phase
    detail: str = ""
    seconds: float = 0.0


Listener = Callable[[Status], None]


class Lifecycle:
    """The services of one process, and what became of each."""

    def __init__(
        self,
        services: Sequence[Service],
        *,
        listener: Listener | None = None,
        reload: Callable[[], None] = lambda: None,
        clock: Clock | None = None,
    ) -> None:
        self._services = services
        self._listener = listener or (lambda status: None)
        self._reload = reload
        self._clock = clock or SystemClock()
        self._stop = asyncio.Event()
        self._statuses = {service.name: Status(service.name, "waiting") for service in services}
        self._entered: list[Service] = []

    async def run(self, *, until_ready: bool = False) -> None:
        """Start everything, then stay until a signal comes, or until ready and no longer."""
        with _Signals(
            {signal.SIGTERM: self._on_stop, signal.SIGINT: self._on_stop, signal.SIGHUP: self._on_hup}
        ):
            try:
                await self._start()
                if self.ready:
                    notify("READY=1")
                if until_ready:
                    await self._insist()
                else:
                    await self._stop.wait()
            finally:
                notify("STOPPING=1")
                await self._stop_all()

    async def _insist(self) -> None:
        unwell = [status for status in await self.examine() if status.phase != "ready"]
        if unwell:
            what = "; ".join(f"{status.name}: {status.detail or status.phase}" for status in unwell)
            raise Unhealthy(
                "service.not_ready", what, advice="thence doctor says what to do about this machine."
            )

    def request_stop(self) -> None:
        """Ask for an orderly end."""
        self._stop.set()

    @property
    def ready(self) -> bool:
        """Whether everything has started and nothing is stopping."""
        return all(status.phase == "ready" for status in self.statuses)

    @property
    def statuses(self) -> list[Status]:
        """The last known status of each service, without asking it."""
        return list(self._statuses.values())

    async def examine(self) -> list[Status]:
        """The status of each service, asking those that should be ready whether they are."""
        return [await self._examine(service) for service in self._services]

    async def _examine(self, service: Service) -> Status:
        status = self._statuses[service.name]
        if status.phase != "ready":
            return status
        trouble = await asyncio.to_thread(service.trouble)
        return msgspec.structs.replace(status, phase="failed", detail=trouble) if trouble else status

    async def _start(self) -> None:
        for service in self._services:
            if self._stop.is_set():
                return
            began = self._clock.monotonic()
            self._tell(Status(service.name, "starting"))
            self._entered.append(service)
            try:
                detail = await asyncio.to_thread(service.start)
            except ThenceError as error:
                self._tell(Status(service.name, "failed", str(error)))
                raise
            self._tell(Status(service.name, "ready", detail, self._clock.monotonic() - began))
        _spare_the_collector()

    async def _stop_all(self) -> None:
        deadline = self._clock.monotonic() + STOP_SECONDS
        while self._entered:
            service = self._entered.pop()
            failed = self._statuses[service.name].phase == "failed"
            if not failed:
                self._tell(Status(service.name, "stopping"))
            try:
                async with asyncio.timeout(max(deadline - self._clock.monotonic(), 0.5)):
                    await asyncio.to_thread(service.stop)
            except TimeoutError:
                _log.error(
                    "did not stop in time", extra={"action": "service_stop_late", "service": service.name}
                )
            except ThenceError as error:
                _log.error(str(error), extra={"action": "service_stop_failed", "service": service.name})
            if not failed:
                self._tell(Status(service.name, "stopped"))

    def _tell(self, status: Status) -> None:
        self._statuses[status.name] = status
        _log.info(status.detail, extra={"action": f"service_{status.phase}", "service": status.name})
        self._listener(status)

    def _on_hup(self, _: int) -> None:
        if self.ready:
            threading.Thread(target=self._reload, name="reload", daemon=True).start()

    def _on_stop(self, number: int) -> None:
        if self._stop.is_set():
            os._exit(128 + number)
        _log.info("stopping", extra={"action": "stop_requested", "signal": signal.Signals(number).name})
        self._stop.set()


def _spare_the_collector() -> None:
    # What was made to start stays; Python need not look through it again for each few hundred events.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, 20, 50)


class _Signals:
    """Signals go to their handlers while the block lasts."""

    def __init__(self, handlers: Mapping[signal.Signals, Callable[[int], None]]) -> None:
        self._handlers = handlers

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        for number, handler in self._handlers.items():
            loop.add_signal_handler(number, handler, number)

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in self._handlers:
            loop.remove_signal_handler(number)
