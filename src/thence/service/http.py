"""The HTTP side of the service: a table of routes as a bare ASGI application, and the server that runs it.

Every answer carries the `traceparent` of its request, or a fresh one. Errors are JSON with code, message and advice,
and never show what is inside. A crash of a handler costs its own request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from thence.core.clock import Clock, SystemClock
from thence.core.errors import ConfigError, Unavailable
from thence.service.logs import trace_id
from thence.service.metrics import Metrics
from thence.service.settings import Address

if TYPE_CHECKING:
    import uvicorn

_log = logging.getLogger(__name__)
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_DRAIN_SECONDS = 5

Asgi = Callable[..., Awaitable[None]]


class Request(msgspec.Struct, frozen=True):
    """What a handler needs to know."""

    method: str
    path: str
    headers: Mapping[str, str]


class Response(msgspec.Struct, frozen=True):
    """What a handler answers."""

    body: bytes = b""
    status: int = 200
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


Handler = Callable[[Request], Awaitable[Response]]
Routes = Mapping[str, Mapping[str, Handler]]


def answer(content: object, status: int = 200) -> Response:
    """An answer in JSON."""
    return Response(msgspec.json.encode(content), status)


class Application:
    """Finds the handler of a path and method and turns its answer into ASGI messages."""

    def __init__(self, routes: Routes, metrics: Metrics, clock: Clock | None = None) -> None:
        self._routes = routes
        self._metrics = metrics
        self._clock = clock or SystemClock()

    async def __call__(self, scope: dict[str, Any], receive: Asgi, send: Asgi) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        began = self._clock.monotonic()
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        request = Request(scope["method"], scope["path"], headers)
        parent = _traceparent(headers.get("traceparent", ""))
        token = trace_id.set(parent.split("-")[1])
        try:
            response = await self._respond(request)
        finally:
            trace_id.reset(token)
        await _send(send, response, parent, with_body=request.method != "HEAD")
        route = request.path if request.path in self._routes else "other"
        method = request.method if request.method in ("GET", "HEAD", "POST") else "other"
        self._metrics.requests.labels(method, route, str(response.status)).inc()
        self._metrics.seconds.labels(route).observe(self._clock.monotonic() - began)

    async def _respond(self, request: Request) -> Response:
        methods = self._routes.get(request.path)
        if methods is None:
            return _error(
                404, "http.not_found", f"there is nothing at {request.path[:200]}", "GET / lists what is."
            )
        handler = methods.get("GET" if request.method == "HEAD" else request.method)
        if handler is None:
            allowed = ", ".join(sorted({*methods, *(["HEAD"] if "GET" in methods else [])}))
            refused = _error(
                405, "http.method", f"{request.path} takes {allowed}", "Use one of these methods."
            )
            return msgspec.structs.replace(refused, headers=(("allow", allowed),))
        try:
            return await handler(request)
        except Exception:  # boundary: one request fails, the server goes on
            _log.exception("a request failed", extra={"action": "request_failed", "route": request.path})
            return _error(
                500, "http.internal", "something went wrong here", "The log has the trace id of this answer."
            )


class HttpServer:
    """Runs an application on an address, in a thread with an event loop of its own.

    The socket is bound by `bind`, before anything else starts, so that a port that is taken is found first.
    """

    name = "HTTP"

    def __init__(self, address: Address, application: Asgi) -> None:
        self._address = address
        self._application = application
        self._socket: socket.socket | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where a person on this machine finds it."""
        if self._socket is None:
            return f"http://{self._address}/"
        host, port = self._socket.getsockname()[:2]
        shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
        return f"http://[{shown}]:{port}/" if ":" in shown else f"http://{shown}:{port}/"

    def bind(self) -> None:
        """Take the port, or say who cannot have it."""
        family = socket.AF_INET6 if ":" in self._address.host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((self._address.host, self._address.port))
            bound.listen(2048)
        except (OSError, OverflowError) as error:
            bound.close()
            raise _cannot_listen(self._address, error) from error
        self._socket = bound

    def start(self) -> str:
        """Answer requests; returns the address."""
        import uvicorn

        if self._socket is None:
            self.bind()
        config = uvicorn.Config(
            self._application,
            interface="asgi3",
            proxy_headers=False,
            loop="uvloop",
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_DRAIN_SECONDS,
        )
        self._server = _Server(config)
        self._thread = threading.Thread(target=self._serve, name="http", daemon=True)
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            self._thread.join(0.005)
        if not self._server.started:
            raise Unavailable("http.start", "the HTTP server did not start", advice="The log says why.")
        return self.url

    def stop(self) -> None:
        """Answer what was asked already, then close."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(_DRAIN_SECONDS + 2)
        if self._socket is not None:
            self._socket.close()
        self._server = self._thread = self._socket = None

    def trouble(self) -> str:
        """What is wrong right now."""
        return "" if self._thread is not None and self._thread.is_alive() else "the server thread ended"

    def _serve(self) -> None:
        assert self._server is not None  # noqa: S101 - set by start, read by its thread
        assert self._socket is not None  # noqa: S101
        with asyncio.Runner(loop_factory=self._server.config.get_loop_factory()) as runner:
            runner.run(self._server.serve(sockets=[self._socket]))


def _Server(config: uvicorn.Config) -> uvicorn.Server:  # noqa: N802 - stands for a class that is imported late
    import uvicorn

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            # Signals belong to the lifecycle of the whole process.
            yield

    return Server(config)


async def _send(send: Asgi, response: Response, parent: str, *, with_body: bool) -> None:
    headers = [
        (b"content-type", response.content_type.encode()),
        (b"content-length", str(len(response.body)).encode()),
        (b"traceparent", parent.encode()),
        (b"x-content-type-options", b"nosniff"),
        *((name.encode(), value.encode()) for name, value in response.headers),
    ]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body if with_body else b""})


def _error(status: int, code: str, message: str, advice: str) -> Response:
    return answer({"error": {"code": code, "message": message, "advice": advice}}, status)


def _traceparent(given: str) -> str:
    if _TRACEPARENT.fullmatch(given) and given.split("-")[1].strip("0"):
        return given
    return f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"


def _cannot_listen(address: Address, error: Exception) -> ConfigError:
    reason = getattr(error, "strerror", None) or str(error)
    return ConfigError(
        "http.listen",
        f"cannot listen on {address}: {reason}",
        advice="Stop what uses that port, or choose another: --listen 127.0.0.1:0 takes any free one.",
    )
