"""A server with some routes, and a client that writes bytes."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from thence.core.errors import (
    ConfigError,
    InvalidEvent,
    InvariantBroken,
    OutcomeUnknown,
    Rejected,
    Unavailable,
    Violation,
)
from thence.http.exchange import Request, Response, Route, answer
from thence.http.limits import Limits
from thence.http.server import HttpServer
from thence.http.trace import trace_id
from thence.service.settings import Address

WAIT = 30.0
MAX_BODY = 1 << 20
MAX_STREAM = 32 << 20


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        return str(json.loads(self.body)["error"]["code"])

    @property
    def json(self) -> dict[str, object]:
        said = json.loads(self.body)
        assert isinstance(said, dict)
        return said


class Client:
    """One connection on which a test writes what it likes."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection((host, port), timeout=WAIT)
        self._read = b""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self, *, to_head: bool = False) -> Answer:
        while b"\r\n\r\n" not in self._read:
            self._more()
        head, _, self._read = self._read.partition(b"\r\n\r\n")
        line, *fields = head.decode("latin-1").split("\r\n")
        headers = dict(field.split(": ", 1) for field in fields)
        length = 0 if to_head else int(headers.get("content-length", 0))
        while len(self._read) < length:
            self._more()
        body, self._read = self._read[:length], self._read[length:]
        return Answer(int(line.split(" ")[1]), headers, body)

    def is_closed(self) -> bool:
        """Waits for the end: nothing more may come before it."""
        try:
            return not self._read and self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _more(self) -> None:
        data = self.socket.recv(1 << 16)
        if not data:
            raise EOFError(f"closed after {self._read!r}")
        self._read += data

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Served:
    """The routes under test, and what they saw."""

    def __init__(self, limits: Limits | None = None, listen: str = "127.0.0.1:0") -> None:
        self.seen: list[Request] = []
        self.traces: list[str] = []
        self.waiting: list[asyncio.Future[Response]] = []
        self.stream_errors: list[str] = []
        self.opened = threading.Event()
        echo = Route(self.echo, "whole", MAX_BODY)
        routes = {
            "/": {"GET": Route(self.echo)},
            "/echo": {"POST": echo, "GET": Route(self.echo)},
            "/stream": {"POST": Route(self.stream, "stream", MAX_STREAM)},
            "/early": {"POST": Route(self.early, "stream", MAX_BODY)},
            "/later": {"GET": Route(self.later), "POST": Route(self.later, "whole")},
            "/task": {"GET": Route(self.task)},
            "/large/{count}": {"GET": Route(self.large)},
            "/fail/{how}": {"GET": Route(self.fail)},
            "/empty": {"GET": Route(lambda _: Response(status=204))},
            "/cors": {
                "OPTIONS": Route(lambda _: Response(status=204, headers=(("allow", "POST"),))),
                "POST": echo,
            },
        }
        self.server = HttpServer(Address(listen), routes, limits=limits)
        self.server.start()
        self.port = int(self.server.url.rsplit(":", 1)[1].strip("/"))

    def client(self) -> Client:
        return Client(self.port)

    def ask(self, raw: bytes) -> Answer:
        with self.client() as client:
            client.send(raw)
            return client.answer()

    def refused(self, reason: str) -> int:
        return self.server.counters.refused[reason]

    def resolve(self, count: int = 1, *, oldest: bool = False) -> None:
        """Answer requests to /later that wait."""
        self.server.loop.call_soon_threadsafe(self._resolve, count, 0 if oldest else -1)

    def _resolve(self, count: int, which: int) -> None:
        for _ in range(count):
            future = self.waiting.pop(which)
            if not future.done():
                future.set_result(answer({"later": True}))

    # Handlers

    def echo(self, request: Request) -> Response:
        self.seen.append(request)
        self.traces.append(trace_id.get())
        return Response(request.body or request.query.encode(), content_type="text/plain")

    def later(self, request: Request) -> asyncio.Future[Response]:
        self.seen.append(request)
        future: asyncio.Future[Response] = self.server.loop.create_future()
        self.waiting.append(future)
        return future

    async def task(self, request: Request) -> Response:
        await asyncio.sleep(0.001)
        self.traces.append(trace_id.get())
        return answer({"query": request.query})

    async def stream(self, request: Request) -> Response:
        assert request.stream is not None
        assert request.body == b""
        count = 0
        if request.query == "slow":
            self.opened.set()
            while not self.waiting:
                await asyncio.sleep(0.001)
        try:
            async for piece in request.stream:
                count += len(piece)
        except Exception as error:
            self.stream_errors.append(type(error).__name__)
            raise
        return answer({"count": count})

    async def early(self, _: Request) -> Response:
        return answer({"early": True})

    def large(self, request: Request) -> Response:
        return Response(b"x" * int(request.params["count"]), content_type="text/plain")

    def fail(self, request: Request) -> Response:
        how = request.params["how"]
        if how == "header":
            return Response(headers=(("x-evil", "a\r\nset-cookie: b"),))
        if how == "nothing":
            return None  # type: ignore[return-value] # what a handler must not do
        raise {
            "invalid": InvalidEvent(
                "t.invalid", "no", violations=(Violation("/run", "required", "", "is missing"),)
            ),
            "rejected": Rejected("t.rejected", "never"),
            "unavailable": Unavailable("t.unavailable", "not now"),
            "unknown": OutcomeUnknown("t.unknown", "perhaps"),
            "config": ConfigError("t.config", "wrong"),
            "invariant": InvariantBroken("t.invariant", "a bug"),
            "secret": RuntimeError("password=hunter2"),
        }[how]


@contextmanager
def serving(limits: Limits | None = None, listen: str = "127.0.0.1:0") -> Iterator[Served]:
    served = Served(limits, listen)
    try:
        yield served
    finally:
        served.server.stop()


def post(path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: t", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def get(path: str, *headers: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: t", *headers]).encode() + b"\r\n\r\n"


def until(condition: Callable[[], object]) -> None:
    """Wait for something that happens in the thread of the server."""
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, "did not happen"
        time.sleep(0.005)
