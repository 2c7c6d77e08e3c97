"""What this process has no route for is answered by a destination, and is told apart when that one fails."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.integration.test_collector import RUN, Door, door
from tests.integration.test_http_client import certificate_in
from tests.receiver import Receiver, Told
from thence.core.errors import ConfigError
from thence.forward.http import HttpTarget
from thence.forward.pass_through import PassThrough
from thence.forward.wire import Timeouts, Tls
from thence.http.exchange import UNKNOWN, Request, Response, Route, answer
from thence.http.server import HttpServer
from thence.service import config
from thence.service.settings import Address
from thence.service.wire import Process
from thence.testing.faults import FaultProxy

SHORT = Timeouts(connect_seconds=2.0, answer_seconds=0.5)
JSON = (("Content-Type", "application/json"),)
LIMIT = 16 << 20
Asked = tuple[int, dict[str, str], bytes]


@pytest.fixture(scope="module")
def backend() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def open_door(backend: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    settings = (f"forward.behind.url={backend.url('')}", "forward.behind.token=hunter2", PASSING)
    with door(tmp_path_factory.mktemp("door") / "state", *settings) as running:
        yield running


PASSING = "collect.lineage.pass_through=behind"


def code(asked: Asked) -> str:
    return str(json.loads(asked[2])["error"]["code"])


def wait_until(check: Callable[[], bool], seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < until, "did not happen"
        time.sleep(0.01)


def test_path_query_and_headers_arrive_as_they_came(backend: Receiver, open_door: Door) -> None:
    path = "/api/v1/namespaces/s3%3A%2F%2Fbucket/jobs/a%20b?limit=5&q=%25+x&empty"
    backend.pages[path] = Told(200, (*JSON, ("ETag", '"1"')), b'{"jobs": []}')
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    status, headers, body = open_door.ask(
        "GET", path, accept="text/x", if_none_match='"0"', cookie="a=b", traceparent=trace
    )
    assert (status, body) == (200, b'{"jobs": []}')
    assert (headers["content-type"], headers["etag"]) == ("application/json", '"1"')
    request = backend.requests[-1]
    assert request.path == path
    assert (request.headers["accept"], request.headers["if-none-match"]) == ("text/x", '"0"')
    assert (request.headers["cookie"], request.headers["traceparent"]) == ("a=b", trace)
    assert request.headers["host"] == backend.url("").removeprefix("http://")
    assert request.headers["via"].startswith("1.1 thence")


def test_the_key_of_the_destination_goes_there_and_nowhere_else(backend: Receiver, open_door: Door) -> None:
    backend.pages["/api/v1/x"] = Told(200, JSON, b"{}")
    _, headers, body = open_door.ask("GET", "/api/v1/x", authorization="Bearer of-the-client")
    assert backend.requests[-1].headers["authorization"] == "Bearer hunter2"
    assert "hunter2" not in str(headers) + body.decode()


def test_headers_of_one_connection_stay_there(backend: Receiver, open_door: Door) -> None:
    said = (
        *JSON,
        ("Connection", "keep-alive, X-Own"),
        ("X-Own", "1"),
        ("Set-Cookie", "a=1"),
        ("Set-Cookie", "b=2"),
    )
    backend.pages["/api/v1/x"] = Told(200, said, b"{}")
    connection = http.client.HTTPConnection(open_door.address, timeout=60)
    sent = {"Connection": "X-Mine", "X-Mine": "1", "TE": "gzip", "Upgrade": "h2c", "Proxy-Authorization": "p"}
    connection.request("GET", "/api/v1/x", headers=sent)
    found = connection.getresponse()
    cookies = found.headers.get_all("set-cookie")
    assert found.read() == b"{}"
    connection.close()
    assert cookies == ["a=1", "b=2"]
    assert "x-own" not in found.headers
    assert len(found.headers.get_all("date") or ()) == len(found.headers.get_all("content-length") or ()) == 1
    gone = {"x-mine", "te", "upgrade", "proxy-authorization", "connection"}
    assert not gone & backend.requests[-1].headers.keys()


def test_our_own_routes_are_ours_and_reading_lineage_is_not(backend: Receiver, open_door: Door) -> None:
    backend.pages["/api/v1/lineage?nodeId=job:a:b"] = Told(200, JSON, b'{"graph": []}')
    assert open_door.ask("GET", "/api/v1/lineage?nodeId=job:a:b")[2] == b'{"graph": []}'
    assert open_door.post(RUN)[0] == 200
    wait_until(lambda: json.dumps(RUN).encode() in backend.arrived)
    before = len(backend.requests)
    assert open_door.ask("GET", "/healthz")[0] == 200
    for path in ("/api/v3/x", "/api/v1", "/other", "/api/v1x/y"):
        assert open_door.ask("GET", path)[0] == 404
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        status, headers, _ = open_door.ask(method, "/api/v1/namespaces/x")
        assert (status, headers["allow"]) == (405, "GET, HEAD")
    assert len(backend.requests) == before


def test_without_the_setting_nothing_is_passed(tmp_path: Path, backend: Receiver) -> None:
    before = len(backend.requests)
    with door(tmp_path / "state", f"forward.behind.url={backend.url('')}") as closed:
        assert closed.ask("GET", "/api/v1/namespaces")[0] == 404
        assert closed.ask("GET", "/api/v1/lineage")[0] == 405
    assert len(backend.requests) == before


@pytest.mark.parametrize("status", [200, 201, 204, 301, 304, 307, 401, 404, 422, 500, 503])
def test_every_status_is_handed_back_and_no_redirect_is_followed(
    backend: Receiver, open_door: Door, status: int
) -> None:
    backend.pages["/api/v2/x"] = Told(status, (*JSON, ("Location", "/api/v2/y")), b"")
    before = len(backend.requests)
    for method in ("GET", "HEAD"):
        found, headers, _ = open_door.ask(method, "/api/v2/x")
        assert (found, headers["location"]) == (status, "/api/v2/y")
    assert len(backend.requests) == before + 2


def test_head_says_the_length_and_sends_nothing(backend: Receiver, open_door: Door) -> None:
    backend.pages["/api/v1/x"] = Told(200, JSON, b"x" * 1234)
    for _ in range(3):
        status, headers, body = open_door.ask("HEAD", "/api/v1/x")
        assert (status, headers["content-length"], body) == (200, "1234", b"")
    assert open_door.ask("GET", "/api/v1/x")[2] == b"x" * 1234


@pytest.mark.parametrize(
    "path", ["/api/v1/../x", "/api/v1/%2e%2E/x", "/api/v1/a%2f..%2fb", "/api/v1/..%5Cx", "/api/v1/..;a/x", "/api/v1/."]
)  # fmt: skip
def test_paths_that_lead_out_are_refused(backend: Receiver, open_door: Door, path: str) -> None:
    before = len(backend.requests)
    asked = open_door.ask("GET", path)
    assert (asked[0], code(asked)) == (400, "forward.pass_path")
    assert len(backend.requests) == before


def test_an_answer_is_held_up_to_a_limit(backend: Receiver, open_door: Door) -> None:
    backend.pages["/api/v1/large"] = Told(200, JSON, b"x" * LIMIT)
    assert len(open_door.ask("GET", "/api/v1/large")[2]) == LIMIT
    backend.pages["/api/v1/large"] = Told(200, JSON, b"x" * (LIMIT + 1))
    asked = open_door.ask("GET", "/api/v1/large")
    assert (asked[0], code(asked)) == (502, "forward.pass_too_large")
    assert open_door.ask("HEAD", "/api/v1/large")[1]["content-length"] == str(LIMIT + 1)


def test_with_keys_only_those_may_read_that_may(backend: Receiver, tmp_path: Path) -> None:
    backend.pages["/api/v1/x"] = Told(200, JSON, b"{}")
    (tmp_path / "thence.yaml").write_text(
        "collect: {lineage: {pass_through: behind, keys: "
        "[{id: a, key: may-write}, {id: b, key: may-read, role: read}]}}\n"
        f"forward: {{behind: {{url: '{backend.url('')}'}}}}\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("THENCE_CONFIG", str(tmp_path / "thence.yaml"))
        with door(tmp_path / "state") as locked:
            before = len(backend.requests)
            for key in ("", "Bearer wrong", "Bearer may-write"):
                asked = locked.ask("GET", "/api/v1/x", authorization=key)
                assert (asked[0], code(asked)) == (401, "collect.key")
                assert asked[1]["www-authenticate"] == "Bearer"
            assert len(backend.requests) == before
            assert locked.ask("GET", "/api/v1/x", authorization="Bearer may-read")[0] == 200
            assert "authorization" not in backend.requests[-1].headers


def test_without_keys_of_ours_the_clients_own_reaches_the_destination(
    backend: Receiver, tmp_path: Path
) -> None:
    with door(tmp_path / "state", f"forward.behind.url={backend.url('')}/", PASSING) as running:
        running.ask("GET", "/api/v1/x", authorization="Basic abc")
    assert backend.requests[-1].headers["authorization"] == "Basic abc"
    assert backend.requests[-1].path == "/api/v1/x"


def test_a_destination_that_is_replaced_is_asked_at_once(tmp_path: Path) -> None:
    with Receiver() as first, Receiver() as second, pytest.MonkeyPatch.context() as patch:
        file = tmp_path / "thence.yaml"
        patch.setenv("THENCE_CONFIG", str(file))

        def lead_to(receiver: Receiver, name: str = "behind") -> None:
            settings = {"behind": {"url": receiver.url("")}}
            file.write_text(json.dumps({"forward": settings, "collect": {"lineage": {"pass_through": name}}}))

        lead_to(first)
        with door(tmp_path / "state") as running:
            assert running.ask("GET", "/api/v1/x")[0] == 404
            lead_to(second, "nobody")
            running.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "reload_failed" in (tmp_path / "state.log").read_text())
            running.ask("GET", "/api/v1/x")
            assert not second.requests
            lead_to(second)
            running.process.send_signal(signal.SIGHUP)
            wait_until(lambda: running.ask("GET", "/api/v1/x")[0] == 404 and len(second.requests) > 0)
        assert len(first.requests) >= 2


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ((PASSING,), "no destination"),
        ((PASSING, "forward.other.url=http://127.0.0.1:1"), "Name one of: other"),
        ((PASSING, "forward.behind.type=stdout"), "of type stdout"),
        ((PASSING, "forward.behind.type=marquez"), "needs url"),
        ((PASSING, "forward.behind.url=ftp://x"), "cannot be used"),
    ],
)
def test_a_name_that_cannot_be_asked_is_refused_at_the_start(
    tmp_path: Path, settings: tuple[str, ...], why: str
) -> None:
    flags = dict(setting.split("=", 1) for setting in settings)
    with pytest.raises(ConfigError) as raised:
        Process(config.load(flags=flags, environment={}).settings, tmp_path)
    assert why in f"{raised.value.message} {raised.value.advice}"


def test_the_command_ends_with_2_and_says_why(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "thence",
        "--state",
        str(tmp_path / "s"),
        "--set",
        PASSING,
        "collect",
        "--once",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "collect.pass_through" in done.stderr


class Site:
    """A server of ours in this process, a destination, and a link between them that breaks."""

    def __init__(self, receiver: Receiver, proxy: FaultProxy, server: HttpServer) -> None:
        self.receiver, self.proxy, self.server = receiver, proxy, server
        receiver.pages["/api/v1/x"] = Told(200, JSON, b"x" * 50_000)

    def ask(self, path: str = "/api/v1/x", method: str = "GET", seconds: float = 60) -> Asked:
        connection = http.client.HTTPConnection(self.server.url.split("/")[2], timeout=seconds)
        try:
            connection.request(method, path)
            found = connection.getresponse()
            return found.status, {name.lower(): value for name, value in found.getheaders()}, found.read()
        finally:
            connection.close()


@contextmanager
def site(
    timeouts: Timeouts = SHORT, context: ssl.SSLContext | None = None, **target: object
) -> Iterator[Site]:
    with Receiver(tls=context) as receiver, FaultProxy(receiver.address) as proxy:
        url = "{}://{}:{}".format(receiver.scheme, *proxy.address)
        given = HttpTarget(url, timeouts=timeouts, **target)  # type: ignore[arg-type]
        to = PassThrough("behind", given, is_locked=False)
        routes = {
            "/api/v1/{path...}": {"GET": Route(to.ask)},
            "/healthz": {"GET": Route(lambda _: answer({}))},
        }
        server = HttpServer(Address("127.0.0.1:0"), routes, on_end=to.close)
        server.start()
        try:
            yield Site(receiver, proxy, server)
        finally:
            server.stop()


def test_one_that_is_down_is_told_apart_and_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="thence.forward.pass_through")
    with site() as there:
        assert there.ask()[0] == 200
        with there.proxy.cut():
            for _ in range(2):
                asked = there.ask()
                assert (asked[0], code(asked)) == (502, "forward.pass_down")
        assert there.ask()[0] == 200
    actions = [record.__dict__["action"] for record in caplog.records]
    assert actions == ["pass_through_failed", "pass_through_recovered"]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_one_that_does_not_answer_in_time_is_told_apart_and_delays_nobody(method: str) -> None:
    with site(Timeouts(2.0, 2.0)) as there, there.proxy.hang(), ThreadPoolExecutor(1) as pool:
        late = pool.submit(there.ask, "/api/v1/x", method)
        wait_until(lambda: there.proxy.connections > 0)
        for _ in range(20):
            assert there.ask("/healthz")[0] == 200
        assert not late.done()
        assert late.result()[0] == 504
        if method == "GET":
            assert code(late.result()) == "forward.pass_late"


def test_an_answer_that_breaks_off_is_no_answer() -> None:
    with site() as there, there.proxy.reset_after(20_000, "to_client"):
        asked = there.ask()
        assert (asked[0], code(asked)) == (502, "forward.pass_down")
    with site() as there, there.proxy.hang(20_000, "to_client"):
        asked = there.ask()
        assert (asked[0], code(asked)) == (504, "forward.pass_late")


def test_an_answer_without_end_ends_at_the_limit() -> None:
    def send(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                connection.sendall(b"x" * 65536)

    async def ask(to: PassThrough) -> Response:
        try:
            return await to.ask(Request("GET", "/api/v1/x", "", {}, "", "t"))
        finally:
            await to.close()

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send, listener)
        target = HttpTarget(f"http://127.0.0.1:{listener.getsockname()[1]}", timeouts=Timeouts(5.0, 60.0))
        found = asyncio.run(ask(PassThrough("endless", target, is_locked=False)))
        sending.result(60)
    assert found.status == 502
    assert b"forward.pass_too_large" in found.body


def test_an_answer_that_is_lost_once_is_asked_for_again() -> None:
    with site() as there:
        with there.proxy.lost_answers(1):
            assert there.ask()[0] == 200
        assert len(there.receiver.requests) == 2


def test_a_connection_that_was_closed_meanwhile_is_noticed_and_kept_ones_are_used() -> None:
    with site() as there:
        for _ in range(5):
            assert there.ask()[0] == 200
        assert there.proxy.connections == 1
        there.proxy.drop()
        assert there.ask()[0] == 200
        assert there.proxy.connections == 2


def test_over_tls_connections_are_kept_and_certificates_checked(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    file, key = certificate_in(tmp_path)
    context.load_cert_chain(file, key)
    with site(context=context, tls=Tls(ca_file=file)) as there:
        assert [there.ask()[0] for _ in range(3)] == [200] * 3
        assert there.proxy.connections == 1
    with site(context=context) as there:
        assert there.ask()[0] == 502
        assert not there.receiver.requests


def test_only_so_many_wait_at_a_time() -> None:
    with site(Timeouts(5.0, 60.0)) as there, ThreadPoolExecutor(16) as pool:
        with there.proxy.hang():
            waiting = [pool.submit(there.ask) for _ in range(16)]
            wait_until(lambda: there.proxy.connections == 16)
            asked = there.ask()
            assert (asked[0], code(asked), asked[1]["retry-after"]) == (503, "forward.pass_busy", "1")
        assert [each.result()[0] for each in waiting] == [200] * 16
        assert there.ask()[0] == 200


def test_a_token_in_a_file_is_read_again_when_it_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")
    with site(bearer_file=file) as there:
        there.receiver.pages["/api/v1/x"] = Told(401)
        assert there.ask()[0] == 401
        file.write_text("new\n")
        assert there.ask()[0] == 401
        file.unlink()
        assert there.ask()[0] == 401
    keys = [request.headers["authorization"] for request in there.receiver.requests]
    assert keys == ["Bearer old", "Bearer old", "Bearer new", "Bearer new"]


def test_headers_and_a_path_of_the_destination_are_used() -> None:
    with Receiver() as receiver:
        receiver.pages["/base/api/v1/x?a=b"] = Told(200, (), b"plain")
        to = PassThrough("it", HttpTarget(receiver.url("/base/"), headers={"X-Api-Key": "k"}), is_locked=True)
        request = Request("GET", "/api/v1/x", "a=b", {"authorization": "Bearer ours"}, "", "t")

        async def ask() -> Response:
            try:
                return await to.ask(request)
            finally:
                await to.close()

        found = asyncio.run(ask())
    assert (found.status, found.body, found.content_type) == (200, b"plain", "application/octet-stream")
    assert receiver.requests[-1].headers["x-api-key"] == "k"
    assert "authorization" not in receiver.requests[-1].headers


def test_a_length_that_nobody_says_is_left_out_of_an_answer_to_head() -> None:
    routes = {"/": {"GET": Route(lambda _: Response(unsent_bytes=UNKNOWN))}}
    server = HttpServer(Address("127.0.0.1:0"), routes)
    server.start()
    try:
        connection = http.client.HTTPConnection(server.url.split("/")[2], timeout=60)
        for _ in range(2):
            connection.request("HEAD", "/")
            found = connection.getresponse()
            assert (found.status, found.getheader("content-length"), found.read()) == (200, None, b"")
        connection.close()
    finally:
        server.stop()


def test_one_that_leads_back_to_us_is_refused() -> None:
    async def ask(request: Request) -> Response:
        return await to.ask(request)

    async def close() -> None:
        await to.close()

    routes = {"/api/v1/{path...}": {"GET": Route(ask)}}
    server = HttpServer(Address("127.0.0.1:0"), routes, on_end=close)
    server.start()
    try:
        to = PassThrough("ourselves", HttpTarget(server.url), is_locked=False)
        connection = http.client.HTTPConnection(server.url.split("/")[2], timeout=60)
        connection.request("GET", "/api/v1/x")
        found = connection.getresponse()
        assert (found.status, json.loads(found.read())["error"]["code"]) == (508, "forward.pass_loop")
        connection.close()
    finally:
        server.stop()
