"""Puts one process together from its settings: which services run, in which order, and what answers over HTTP."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from prometheus_client import Metric

from thence import __version__, web
from thence.core.errors import ThenceError
from thence.http.exchange import Handler, Request, Response, Route, answer
from thence.http.routes import Routes
from thence.http.server import HttpServer
from thence.service.collector import Collector
from thence.service.forward import Forwarding
from thence.service.lifecycle import Lifecycle, Listener, Service
from thence.service.metrics import Metrics
from thence.service.openapi import ApiDescription
from thence.service.passage import Passage, destination
from thence.service.section import Secret
from thence.service.settings import MetricsSettings, Settings
from thence.service.statsd import Statsd

_log = logging.getLogger(__name__)
_REACH_SECONDS = 3.0
_FIXED = ("state", "store", "spark", "metrics", "log")


class Process:
    """One process of thence: the collector and its HTTP server, with whatever else is to run beside them."""

    def __init__(
        self,
        settings: Settings,
        state: Path,
        *,
        beside: Sequence[Service] = (),
        reread: Callable[[], Settings] | None = None,
        listener: Listener | None = None,
    ) -> None:
        self.collector = Collector(settings, state, on_commit=self._notify)
        self.forwarding = Forwarding(settings.forward, self.collector)
        self._passage = Passage(settings, self.collector)
        self.api = ApiDescription(lambda: self.collector.lineage)
        self._http = HttpServer(settings.collect.listen, self._routes(settings), on_end=self._passage.close)
        services = (*beside, self.collector, self.forwarding, *self._statsd(settings.metrics), self._http)
        self.lifecycle = Lifecycle(services, listener=listener, reload=self.reload)
        self._settings = settings
        self._reread = reread or (lambda: settings)
        self._metrics = Metrics(self._http.counters, self.collector, self.forwarding)

    async def run(self, *, until_ready: bool = False) -> None:
        """Take the port first, then start everything; see Lifecycle."""
        self._http.bind()
        await self.lifecycle.run(until_ready=until_ready)

    @property
    def url(self) -> str:
        """Where the page is."""
        return self._http.url

    def reload(self) -> None:
        """Read the settings again and use what can change while running; what is wrong changes nothing."""
        try:
            settings = self._reread()
            passed_to = destination(settings)
            self.forwarding.reconfigure(settings.forward)
            self.collector.reconfigure(settings)
        except ThenceError as error:
            _log.error(str(error), extra={"action": "reload_failed", "advice": error.advice})
            return
        fixed = sorted(key for key in _FIXED if getattr(settings, key) != getattr(self._settings, key))
        fixed += self._passage.lead_to(passed_to)
        _log.info("read the settings again", extra={"action": "reloaded", "needs_restart": fixed})

    def _statsd(self, settings: MetricsSettings) -> Iterator[Service]:
        if settings.statsd is not None:
            interval = settings.statsd_interval_seconds
            yield Statsd(settings.statsd, self._samples, tags=settings.statsd_tags, interval_seconds=interval)

    def _samples(self) -> Iterable[Metric]:
        return self._metrics.collect(self.lifecycle.statuses)

    def _notify(self) -> None:
        self.forwarding.notify()

    def _routes(self, settings: Settings) -> Routes:
        routes = {
            "/healthz": {"GET": Route(self._healthz)},
            "/readyz": {"GET": Route(self._readyz)},
            **{path: {"GET": Route(_page(name))} for path, name in web.PAGES.items()},
            **self.api.own_routes(),
            **self.collector.routes(),
        }
        if settings.metrics.prometheus:
            routes["/metrics"] = {"GET": Route(self._show_metrics)}
        self.api.routes = self._passage.beside(routes)
        return self.api.routes

    def _healthz(self, _: Request) -> Response:
        return answer({"status": "alive", "version": __version__})

    async def _readyz(self, _: Request) -> Response:
        statuses = await self.lifecycle.examine()
        ready = all(status.phase == "ready" for status in statuses)
        body = {"status": "ready" if ready else "unready", "version": __version__, "services": statuses}
        return answer(body, 200 if ready else 503)

    async def _show_metrics(self, request: Request) -> Response:
        statuses = await self.lifecycle.examine()
        body, content_type = self._metrics.render(request.headers.get("accept", ""), statuses)
        return Response(body, content_type=content_type)


class EmbeddedStore:
    """PostgreSQL that thence starts by itself, below the state directory."""

    name = "PostgreSQL"

    def __init__(self, directory: Path, port: int | None) -> None:
        from thence.servers.postgres import PostgresServer

        self.server = PostgresServer(directory, port=port)

    def start(self) -> str:
        """Make it on the first start, then run it."""
        self.server.start()
        return f"{self.server.version} on 127.0.0.1:{self.server.port}"

    def stop(self) -> None:
        """Let it write out what it has, and end it."""
        self.server.stop()

    def trouble(self) -> str:
        """What is wrong right now."""
        return "" if self.server.is_healthy() else "does not answer; it is started again by itself"


class OwnStore:
    """A PostgreSQL that somebody else runs: only asked whether it can be reached."""

    name = "PostgreSQL"

    def __init__(self, dsn: Secret) -> None:
        self._address = address_in(dsn)

    def start(self) -> str:
        """Where it is; that it is down now is no reason not to start."""
        return "yours, at {}:{}".format(*self._address)

    def stop(self) -> None:
        """Nothing of ours runs there."""

    def trouble(self) -> str:
        """What is wrong right now."""
        return unreachable(self._address)


def address_in(dsn: Secret) -> tuple[str, int]:
    """Host and port of a `postgresql://` address."""
    parts = urlsplit(dsn.reveal())
    return parts.hostname or "127.0.0.1", parts.port or 5432


def unreachable(address: tuple[str, int]) -> str:
    """Why nothing answers at an address; empty when something does."""
    try:
        socket.create_connection(address, timeout=_REACH_SECONDS).close()
    except OSError as error:
        return "{}:{} cannot be reached: {}".format(*address, error.strerror or error)
    return ""


def everything(
    settings: Settings, state: Path, reread: Callable[[], Settings], listener: Listener
) -> Process:
    """What `thence up` runs."""
    return Process(settings, state, beside=(_store(settings, state),), reread=reread, listener=listener)


def sidecar(settings: Settings, state: Path, reread: Callable[[], Settings], listener: Listener) -> Process:
    """What `thence collect` runs: no database, no Java."""
    return Process(settings, state, reread=reread, listener=listener)


def _store(settings: Settings, state: Path) -> EmbeddedStore | OwnStore:
    if settings.store.dsn is not None:
        return OwnStore(settings.store.dsn)
    return EmbeddedStore(state / "postgres", settings.store.port)


def _page(name: str) -> Handler:
    body, content_type = web.read(name)

    def show(_: Request) -> Response:
        return Response(body, content_type=content_type, headers=web.HEADERS)

    return show
