"""CPU time of one request: a server that does nothing but HTTP, and one whose answers come in batches from a thread.

`*_us` is CPU time of the whole server process for each request, with POSTs of 2.3 KB from wrk (Debian: wrk) on 32 and
128 connections; `bare_*` is the least that a protocol in Python costs on the same event loop: it looks for the end of
the head and writes an answer that never changes.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import cast

from bench.harness import Spread, interleave, tree_cpu_seconds

_CONTENDERS = ("bare", "empty", "batch")
_REQUEST = """wrk.method = "POST"
wrk.body = string.rep("x", 2270)
wrk.headers["Content-Type"] = "application/json"
wrk.headers["User-Agent"] = "openlineage-python/1.54"
wrk.headers["Accept"] = "*/*"
wrk.headers["Accept-Encoding"] = "gzip, deflate"
wrk.headers["Authorization"] = "Bearer 0123456789abcdef"
"""


def measure(*, quick: bool) -> dict[str, Spread | float]:
    if shutil.which("wrk") is None:
        sys.exit("bench: wrk is missing. Debian: apt-get install -y wrk")
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "request.lua"
        script.write_text(_REQUEST)
        contenders = {
            f"{name}_{connections}_us": partial(_cost_us, name, connections, script, 2 if quick else 5)
            for connections in (32, 128)
            for name in _CONTENDERS
        }
        return dict(interleave(contenders, 2 if quick else 5))


def _cost_us(name: str, connections: int, script: Path, seconds: int) -> float:
    command = [sys.executable, "-c", f"from bench.http import serve; serve({name!r})"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        _load(url, connections, script, 1)
        before = tree_cpu_seconds(server.pid)
        count = _load(url, connections, script, seconds)
        return (tree_cpu_seconds(server.pid) - before) / count * 1e6
    finally:
        server.communicate("", timeout=30)


def _load(url: str, connections: int, script: Path, seconds: int) -> int:
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(script), url]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+) requests in", said)
    if found is None or "Non-2xx" in said:
        sys.exit(f"bench: {said}")
    return int(found[1])


def serve(name: str) -> None:
    """Run one contender until its standard input ends."""
    if name == "bare":
        _serve_bare()
        return
    from thence.http.exchange import Request, Response, Route, answer
    from thence.http.server import HttpServer
    from thence.service.settings import Address

    said = answer({"ok": True})
    waiting: list[asyncio.Future[Response]] = []
    wake = threading.Event()

    def at_once(_: Request) -> Response:
        return said

    def in_batches(_: Request) -> asyncio.Future[Response]:
        future: asyncio.Future[Response] = server.loop.create_future()
        waiting.append(future)
        wake.set()
        return future

    def resolve(batch: list[asyncio.Future[Response]]) -> None:
        for future in batch:
            if not future.done():
                future.set_result(said)

    def commit() -> None:
        while True:
            wake.wait()
            wake.clear()
            batch = waiting[:]
            del waiting[: len(batch)]
            time.sleep(0.001)  # about what a disk takes
            server.loop.call_soon_threadsafe(resolve, batch)

    handler = at_once if name == "empty" else in_batches
    server = HttpServer(Address("127.0.0.1:0"), {"/": {"POST": Route(handler, "whole")}})
    threading.Thread(target=commit, daemon=True).start()
    server.start()
    print(server.url, flush=True)
    sys.stdin.read()
    server.stop()


class _Bare(asyncio.Protocol):
    _ANSWER = b'HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{"ok":true}'

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if data.find(b"\r\n\r\n") > 0:
            self._transport.write(self._ANSWER)


def _serve_bare() -> None:
    import uvloop

    async def run() -> None:
        listener = await asyncio.get_running_loop().create_server(_Bare, "127.0.0.1", 0)
        print(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/", flush=True)
        await asyncio.to_thread(sys.stdin.read)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
