"""Starting and stopping: what was asked is answered, idle clients are let go, and the end comes in time."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time

import pytest

from tests.integration.http.serving import WAIT, Client, get, post, serving, until
from thence.core.errors import ConfigError, Unavailable
from thence.http.exchange import Request, Response, Route, answer
from thence.http.limits import Limits
from thence.http.server import HttpServer
from thence.service.settings import Address


class Commits:
    """Answers requests in batches from a thread of its own, as a journal does."""

    def __init__(self) -> None:
        self.server = HttpServer(Address("127.0.0.1:0"), {"/events": {"POST": Route(self.take, "whole")}})
        self.taken: list[bytes] = []
        self._waiting: list[tuple[asyncio.Future[Response], bytes]] = []
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._work)
        self._thread.start()
        self.server.start()
        self.port = int(self.server.url.rsplit(":", 1)[1].strip("/"))

    def take(self, request: Request) -> asyncio.Future[Response]:
        future: asyncio.Future[Response] = self.server.loop.create_future()
        self._waiting.append((future, request.body))
        self._wake.set()
        return future

    def stop(self) -> None:
        self.server.stop()
        self._stopping = True
        self._wake.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._stopping:
            self._wake.wait()
            self._wake.clear()
            batch, self._waiting = self._waiting, []
            time.sleep(0.005)
            self.taken += [body for _, body in batch]
            if batch:
                self.server.loop.call_soon_threadsafe(_resolve, batch)


def _resolve(batch: list[tuple[asyncio.Future[Response], bytes]]) -> None:
    for future, body in batch:
        if not future.done():
            future.set_result(answer({"body": body.decode()}))


class Sender(threading.Thread):
    """Sends numbered events, one after another, until the server is gone, and remembers what became of each."""

    def __init__(self, port: int, name: str, pipelined: int) -> None:
        super().__init__(name=name)
        self.answered: list[bytes] = []
        self.unanswered: list[bytes] = []
        self._port = port
        self._pipelined = pipelined

    def run(self) -> None:
        number = 0
        try:
            with Client(self._port) as client:
                while True:
                    bodies = [f"{self.name}-{number + each}".encode() for each in range(self._pipelined)]
                    number += self._pipelined
                    self.unanswered = list(bodies)
                    client.send(b"".join(post("/events", body) for body in bodies))
                    for body in bodies:
                        assert json.loads(client.answer().body) == {"body": body.decode()}
                        self.answered.append(body)
                        self.unanswered.remove(body)
        except (EOFError, OSError):
            return


@pytest.mark.parametrize("pipelined", [1, 5])
def test_stopped_under_load_no_accepted_request_is_without_its_answer(pipelined: int) -> None:
    commits = Commits()
    senders = [Sender(commits.port, f"sender{number}", pipelined) for number in range(16)]
    for sender in senders:
        sender.start()
    try:
        until(lambda: len(commits.taken) > 1000)
    finally:
        commits.stop()
        for sender in senders:
            sender.join(WAIT)
    answered = [body for sender in senders for body in sender.answered]
    assert sorted(answered) == sorted(commits.taken)
    assert not set(commits.taken) & {body for sender in senders for body in sender.unanswered}


def test_stopping_waits_for_answers_and_says_so() -> None:
    with serving() as served, served.client() as asked, served.client() as idle, served.client() as fresh:
        idle.send(get("/echo"))
        idle.answer()
        asked.send(get("/later"))
        until(lambda: served.waiting and served.server.counters.connections == 3)
        loop = served.server.loop
        stopping = threading.Thread(target=served.server.stop)
        stopping.start()
        assert idle.is_closed()
        assert fresh.is_closed()
        assert stopping.is_alive()
        loop.call_soon_threadsafe(served._resolve, 1, 0)
        answer = asked.answer()
        assert (answer.json, answer.headers["connection"]) == ({"later": True}, "close")
        assert asked.is_closed()
        stopping.join(WAIT)


def test_a_body_under_way_is_taken_to_its_end() -> None:
    with serving() as served, served.client() as client:
        client.send(post("/echo", b"hello")[:-2])
        until(lambda: served.server.counters.received_bytes)
        stopping = threading.Thread(target=served.server.stop)
        stopping.start()
        time.sleep(0.2)
        client.send(b"lo")
        assert client.answer().body == b"hello"
        stopping.join(WAIT)


def test_what_does_not_end_is_cut() -> None:
    with serving(Limits(drain_seconds=0.3)) as served, served.client() as client:
        client.send(get("/later"))
        until(lambda: served.waiting)
        served.server.stop()
        assert client.is_closed()
        assert served.server.trouble()


def test_a_task_that_is_cut_is_cancelled() -> None:
    ended = threading.Event()

    async def forever(_: Request) -> Response:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return Response()

    server = HttpServer(
        Address("127.0.0.1:0"), {"/": {"GET": Route(forever)}}, limits=Limits(drain_seconds=0.2)
    )
    server.start()
    with Client(int(server.url.rsplit(":", 1)[1].strip("/"))) as client:
        client.send(get("/"))
        until(lambda: server.counters.received_bytes)
        server.stop()
    assert ended.wait(WAIT)


def test_it_can_start_again_on_the_same_port() -> None:
    with serving() as first, first.client() as client:
        client.send(get("/echo"))
        client.answer()
        port = first.port
        first.server.stop()
        with serving(listen=f"127.0.0.1:{port}") as second:
            assert second.ask(get("/echo?again")).body == b"again"


def test_a_taken_port_is_refused_before_anything_starts() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError) as caught:
            HttpServer(Address(f"127.0.0.1:{taken.getsockname()[1]}"), {}).bind()
    assert caught.value.code == "http.listen"


def test_stopping_twice_or_before_the_start_does_nothing() -> None:
    server = HttpServer(Address("127.0.0.1:0"), {})
    server.stop()
    server.start()
    server.stop()
    server.stop()
    with pytest.raises(Unavailable):
        _ = server.loop


def test_it_works_without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "uvloop", None)
    with serving() as served, served.client() as client:
        assert type(served.server.loop).__module__.startswith("asyncio")
        client.send(post("/echo", b"x" * 500_000) + get("/echo?b", "Connection: close"))
        assert len(client.answer().body) == 500_000
        assert client.answer().body == b"b"
        assert client.is_closed()
        with served.client() as other:
            other.send(post("/echo", b"x" * 5_000_000))
            assert other.answer().status == 413
