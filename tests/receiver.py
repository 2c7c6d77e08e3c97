"""An OpenLineage backend for tests: a real HTTP server in a thread that remembers what arrived and answers as told."""

from __future__ import annotations

import gzip
import json
import ssl
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self


class Told(NamedTuple):
    """An answer that the server gives instead of its own; what came is thrown away."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


class Received(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes
    raw: bytes
    """The body before it was unpacked."""


class Receiver:
    """`refused` holds payloads that it refuses; `told` answers that it gives first, one by one.

    `pages` is what it shows, by path and query.
    """

    def __init__(self, *, tls: ssl.SSLContext | None = None, stops_at_failure: bool = True) -> None:
        self.arrived: list[bytes] = []
        self.requests: list[Received] = []
        self.refused: set[bytes] = set()
        self.later: set[bytes] = set()
        self.told: deque[Told] = deque()
        self.pages: dict[str, Told] = {}
        self.stops_at_failure = stops_at_failure
        self.arrived_at: dict[bytes, float] = {}
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = raw = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                headers = {name.lower(): value for name, value in self.headers.items()}
                self.say(receiver.take(Received(self.path, headers, body, raw)))

            def do_GET(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                self.say(receiver.show(Received(self.path, headers, b"", b"")))

            do_HEAD = do_GET  # noqa: N815 - http.server calls it so

            def say(self, answer: Told) -> None:
                self.send_response(answer.status)
                for name, value in answer.headers:
                    self.send_header(name, value)
                if answer.status not in (204, 304):
                    self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.body)

            def log_message(self, format: str, *args: object) -> None:
                """Be quiet."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Clients vanish in these tests."""

        self._server = Server(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.scheme = "https" if tls is not None else "http"
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self._server.server_address[1]

    def url(self, path: str = "/api/v1/lineage") -> str:
        return f"{self.scheme}://127.0.0.1:{self.address[1]}{path}"

    def take(self, request: Received) -> Told:
        with self._lock:
            self.requests.append(request)
            if self.told:
                return self.told.popleft()
            if request.path.endswith("/batch"):
                return self._take_batch(request.body)
            return self._take_one(request.body)

    def show(self, request: Received) -> Told:
        with self._lock:
            self.requests.append(request)
            return self.pages.get(request.path, Told(404, body=b'{"code": 404}'))

    def _take_one(self, payload: bytes) -> Told:
        if payload in self.refused:
            return Told(422, body=b'{"errors": ["not this one"]}')
        self._keep(payload)
        return Told(201)

    def _take_batch(self, body: bytes) -> Told:
        failed: list[dict[str, object]] = []
        events = split(body)
        for index, payload in enumerate(events):
            if failed and self.stops_at_failure:
                failed.append({"index": index, "reason": "not tried", "retriable": True})
            elif payload in self.refused or payload in self.later:
                retriable = payload in self.later
                failed.append({"index": index, "reason": "not this one", "retriable": retriable})
            else:
                self._keep(payload)
        if not failed:
            return Told(204)
        content = {"status": "partial_success", "failed_events": failed}
        return Told(200, body=json.dumps(content).encode())

    def _keep(self, payload: bytes) -> None:
        self.arrived.append(payload)
        self.arrived_at.setdefault(payload, time.monotonic())


def split(body: bytes) -> list[bytes]:
    """The elements of a JSON array, byte for byte."""
    text, decoder, found = body.decode(), json.JSONDecoder(), []
    at = text.index("[") + 1
    while text[at] != "]":
        _, end = decoder.raw_decode(text, at)
        found.append(text[at:end].encode())
        at = end + (text[end] == ",")
    return found
