"""What is too large, too slow, too much or could be read in two ways is refused, and others do not notice."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.integration.http.serving import MAX_BODY, Served, get, post, serving, until
from thence.http.limits import Limits

SMALL = Limits(
    head_bytes=4096,
    header_count=20,
    target_bytes=512,
    head_seconds=0.4,
    idle_seconds=0.8,
    body_idle_seconds=0.4,
    linger_seconds=0.4,
    write_idle_seconds=0.6,
)


@pytest.fixture(scope="module")
def small() -> Iterator[Served]:
    with serving(SMALL) as served:
        yield served


HOST = b"Host: t\r\n"
POST = b"POST /echo HTTP/1.1\r\n" + HOST


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        pytest.param(
            POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "", id="cl-te"
        ),
        pytest.param(
            POST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400, "", id="te-cl"
        ),
        pytest.param(POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400, "", id="cl-twice"),
        pytest.param(POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400, "", id="cl-two"),
        pytest.param(POST + b"Content-Length: 3, 3\r\n\r\nabc", 400, "", id="cl-list"),
        pytest.param(POST + b"Content-Length: +3\r\n\r\nabc", 400, "", id="cl-plus"),
        pytest.param(POST + b"Content-Length: -3\r\n\r\nabc", 400, "", id="cl-minus"),
        pytest.param(POST + b"Content-Length: 0x3\r\n\r\nabc", 400, "", id="cl-hex"),
        pytest.param(POST + b"Content-Length: 3_0\r\n\r\nabc", 400, "", id="cl-underscore"),
        pytest.param(POST + b"Content-Length: 3 0\r\n\r\nabc", 400, "", id="cl-space"),
        pytest.param(POST + b"Content-Length: 3\x0b\r\n\r\nabc", 400, "", id="cl-vertical-tab"),
        pytest.param(POST + b"Content-Length: \xb2\r\n\r\nabc", 400, "", id="cl-superscript"),
        pytest.param(POST + b"Content-Length:\r\n\r\nabc", 400, "", id="cl-empty"),
        pytest.param(POST + b"Content-Length: 99999999999999999999999\r\n\r\n", 400, "", id="cl-overflow"),
        pytest.param(b"GET /echo HTTP/1.1\nHost: t\n\n", 400, "", id="lf-only"),
        pytest.param(b"GET /echo HTTP/1.1\nHost: t\r\n\r\n", 400, "", id="lf-request-line"),
        pytest.param(b"GET /echo HTTP/1.1\r\nHost: t\nX: y\r\n\r\n", 400, "", id="lf-in-head"),
        pytest.param(b"GET /echo HTTP/1.1\r\nHost: t\r\n\n", 400, "", id="lf-at-the-end"),
        pytest.param(b"GET /echo HTTP/1.1\r\nHost: t\rX: y\r\n\r\n", 400, "", id="cr-alone"),
        pytest.param(b"GET /echo HTTP/1.1\r\nHost: t\r\nX: y\r\n z\r\n\r\n", 400, "", id="fold"),
        pytest.param(b"GET /echo HTTP/1.1\r\nHost: t\r\nX: y\r\n\tz\r\n\r\n", 400, "", id="fold-tab"),
        pytest.param(POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", 400, "", id="fold-te"),
        pytest.param(b"GET /echo HTTP/1.1\r\n X: y\r\nHost: t\r\n\r\n", 400, "", id="fold-first"),
        pytest.param(b"GET /echo HTTP/1.1\r\nHost: t\r\nX: a\0b\r\n\r\n", 400, "", id="nul-in-value"),
        pytest.param(b"GET /echo HTTP/1.1\r\nHost: t\r\nX\0: ab\r\n\r\n", 400, "", id="nul-in-name"),
        pytest.param(b"GET /ec\0ho HTTP/1.1\r\nHost: t\r\n\r\n", 400, "", id="nul-in-path"),
        pytest.param(b"GET /echo HTTP/1.1\r\nHost: t\r\nX: a\x01b\r\n\r\n", 400, "", id="control-in-value"),
        pytest.param(b"GET /echo HTTP/1.1\r\nHost : t\r\n\r\n", 400, "", id="space-before-colon"),
        pytest.param(b"GET /echo HTTP/1.1\r\nHost: t\r\nX y: z\r\n\r\n", 400, "", id="space-in-name"),
        pytest.param(b"GET /echo HTTP/1.1\r\nHost: t\r\nnonsense\r\n\r\n", 400, "", id="no-colon"),
        pytest.param(b"GET /echo HTTP/1.1\r\nHost: t\r\n: x\r\n\r\n", 400, "", id="no-name"),
        pytest.param(b"GET /echo HTTP/1.1\r\n\r\n", 400, "", id="no-host"),
        pytest.param(b"GET /echo HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "", id="two-hosts"),
        pytest.param(get("/echo", "Authorization: a", "authorization: b"), 400, "", id="two-authorizations"),
        pytest.param(POST + b"Transfer-Encoding: gzip\r\n\r\n", 501, "http.transfer_coding", id="te-gzip"),
        pytest.param(
            POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 501, "http.transfer_coding", id="te-list"
        ),
        pytest.param(POST + b"Transfer-Encoding: xchunked\r\n\r\n", 501, "http.transfer_coding", id="te-x"),
        pytest.param(
            POST + b"Transfer-Encoding: identity\r\n\r\n", 501, "http.transfer_coding", id="te-identity"
        ),
        pytest.param(POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n", 400, "", id="te-not-last"),
        pytest.param(POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n", 400, "", id="te-twice"),
        pytest.param(POST + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n", 400, "", id="te-two-fields"),
        pytest.param(POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n", 400, "", id="te-vertical-tab"),
        pytest.param(
            b"POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "", id="te-1.0"
        ),
        pytest.param(b"GET /echo\r\n\r\n", 400, "", id="http-0.9"),
        pytest.param(b"GET /echo HTTP/1.2\r\nHost: t\r\n\r\n", 505, "http.version", id="http-1.2"),
        pytest.param(b"GET /echo HTTP/2.0\r\nHost: t\r\n\r\n", 505, "http.version", id="http-2.0"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "http.version", id="http-2-preface"),
        pytest.param(b"GET /echo ICE/1.0\r\nHost: t\r\n\r\n", 400, "", id="ice"),
        pytest.param(b"SOURCE /echo ICE/1.0\r\nHost: t\r\n\r\n", 505, "http.version", id="ice-source"),
        pytest.param(b"DESCRIBE /echo RTSP/1.0\r\nHost: t\r\n\r\n", 505, "http.version", id="rtsp"),
        pytest.param(b"GET  /echo HTTP/1.1\r\nHost: t\r\n\r\n", 400, "", id="two-spaces"),
        pytest.param(b"GET\t/echo HTTP/1.1\r\nHost: t\r\n\r\n", 400, "", id="tab"),
        pytest.param(b"GET /echo HTTP/1.1 \r\nHost: t\r\n\r\n", 400, "", id="space-at-the-end"),
        pytest.param(b" GET /echo HTTP/1.1\r\nHost: t\r\n\r\n", 400, "", id="space-first"),
        pytest.param(b"GET /echo#a HTTP/1.1\r\nHost: t\r\n\r\n", 400, "", id="fragment"),
        pytest.param(b"GET /\xc3\xa9 HTTP/1.1\r\nHost: t\r\n\r\n", 400, "", id="path-not-escaped"),
        pytest.param(get("/large/%ff"), 400, "http.path", id="path-not-utf-8"),
        pytest.param(get("/large/%00"), 400, "http.path", id="path-with-nul"),
        pytest.param(get("ftp://t/echo"), 400, "", id="other-scheme"),
        pytest.param(b"\n\nGET /echo HTTP/1.1\r\nHost: t\r\n\r\n", 400, "", id="lf-first"),
        pytest.param(b"\r\n" * 50 + get("/echo"), 400, "", id="empty-lines-first"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "", id="tls"),
        pytest.param(POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400, "", id="chunk-no-size"),
        pytest.param(POST + b"Transfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n", 400, "", id="chunk-minus"),
        pytest.param(POST + b"Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n", 400, "", id="chunk-0x"),
        pytest.param(POST + b"Transfer-Encoding: chunked\r\n\r\n3 \r\nabc\r\n", 400, "", id="chunk-space"),
        pytest.param(POST + b"Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n", 400, "", id="chunk-lf"),
        pytest.param(
            POST + b"Transfer-Encoding: chunked\r\n\r\n3;a\nb\r\nabc\r\n", 400, "", id="chunk-extension-lf"
        ),
        pytest.param(POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n", 400, "", id="chunk-too-long"),
        pytest.param(
            POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 17 + b"\r\n", 400, "", id="chunk-overflow"
        ),
        pytest.param(
            POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nnonsense\r\n\r\n", 400, "", id="trailer"
        ),
        pytest.param(
            POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\n\r\n\r\n", 400, "", id="trailer-lf"
        ),
    ],
)
def test_what_two_servers_could_read_differently_is_refused(
    served: Served, raw: bytes, status: int, code: str
) -> None:
    before = len(served.seen)
    with served.client() as client:
        client.send(raw + get("/echo?smuggled"))
        answer = client.answer()
        assert (answer.status, answer.code) == (status, code or "http.malformed")
        assert answer.headers["connection"] == "close"
        client.socket.shutdown(socket.SHUT_WR)
        assert client.is_closed()
    assert len(served.seen) == before


def test_a_bare_line_feed_is_refused_before_the_head_is_whole(served: Served) -> None:
    assert served.ask(b"GET /echo HTTP/1.1\nHost: t\n").code == "http.malformed"


@pytest.mark.parametrize("whole", [True, False])
def test_a_large_head_is_refused(small: Served, whole: bool) -> None:
    end = b"\r\n\r\n" if whole else b""
    answer = small.ask(b"GET /echo HTTP/1.1\r\nHost: t\r\nX: " + b"y" * 5000 + end)
    assert (answer.status, answer.code) == (431, "http.head_too_large")


def test_a_large_head_within_the_limit_is_fine(served: Served) -> None:
    assert served.ask(get("/echo?x", *(f"X-{number}: {'y' * 600}" for number in range(90)))).body == b"x"


def test_many_header_fields_are_refused(small: Served) -> None:
    assert small.ask(get("/echo", *(f"X-{number}: y" for number in range(19)))).status == 200
    assert small.ask(get("/echo", *(f"X-{number}: y" for number in range(20)))).status == 431


@pytest.mark.parametrize("end", [b" HTTP/1.1\r\nHost: t\r\n\r\n", b""])
def test_a_long_address_is_refused(small: Served, end: bytes) -> None:
    assert small.ask(b"GET /echo?" + b"x" * 500 + b" HTTP/1.1\r\nHost: t\r\n\r\n").status == 200
    assert small.ask(b"GET /echo?" + b"x" * 700 + end).code == "http.target_too_long"


def test_a_declared_body_above_the_limit_is_refused_before_it_comes(served: Served) -> None:
    raw = post("/echo", b"")[:-4].replace(b"Content-Length: 0", b"Content-Length: %d" % (MAX_BODY + 1))
    with served.client() as client:
        client.send(raw + b"\r\n\r\n")
        answer = client.answer()
        assert (answer.status, answer.code) == (413, "http.body_too_large")
        assert answer.headers["connection"] == "close"


def test_a_client_that_sends_on_can_still_read_why_it_was_refused(served: Served) -> None:
    body = b"x" * (4 * MAX_BODY)
    with served.client() as client:
        client.send(post("/echo", body))
        assert client.answer().status == 413


def test_a_body_at_the_limit_is_taken(served: Served) -> None:
    assert len(served.ask(post("/echo", b"x" * MAX_BODY)).body) == MAX_BODY


def test_a_chunked_body_that_never_ends_stops_at_the_limit(served: Served) -> None:
    with served.client() as client:
        client.send(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
        for _ in range(MAX_BODY // 4096 + 1):
            client.send(chunk)
        answer = client.answer()
        assert (answer.status, answer.code) == (413, "http.body_too_large")


@pytest.mark.parametrize("path", ["/stream", "/echo"])
def test_an_endless_chunk_line_or_trailer_is_refused(served: Served, path: str) -> None:
    head = b"POST %s HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n" % path.encode()
    assert served.ask(head + b"3;" + b"x" * 5000).code == "http.malformed"
    assert served.ask(head + b"3\r\nabc\r\n0\r\nX: " + b"y" * 20_000).code == "http.malformed"


def test_a_body_where_none_is_wanted_is_read_past_if_it_is_small(served: Served) -> None:
    with served.client() as client:
        client.send(post("/nope", b"x" * 1000) + get("/echo?on"))
        assert client.answer().status == 404
        assert client.answer().body == b"on"
        client.send(post("/nope", b"x" * 100_000))
        answer = client.answer()
        assert (answer.status, answer.headers["connection"]) == (404, "close")


def test_a_slow_head_is_ended_while_others_are_served(small: Served) -> None:
    with small.client() as slow, small.client() as other:
        slow.send(b"GET /echo HTTP/1.1\r\nX: ")
        answer = None
        while answer is None:
            other.send(get("/echo?on"))
            assert other.answer().body == b"on"
            slow.socket.setblocking(False)
            try:
                slow.socket.send(b"y")
                slow.socket.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                time.sleep(0.05)
                continue
            slow.socket.settimeout(30)
            answer = slow.answer()
        assert (answer.status, answer.code) == (408, "http.too_slow")
        assert small.refused("too_slow") >= 1


def test_a_body_without_progress_is_ended(small: Served) -> None:
    with small.client() as client:
        client.send(post("/echo", b"x" * 1000)[:-1])
        assert client.answer().code == "http.too_slow"
        assert client.is_closed()


def test_a_body_that_stops_after_a_good_beginning_is_ended(small: Served) -> None:
    with small.client() as client:
        client.send(post("/echo", b"x" * 100_000)[:-1])
        assert client.answer().code == "http.too_slow"


def test_a_client_that_does_not_close_after_its_last_answer_is_let_go() -> None:
    with serving(SMALL) as served, served.client() as client:
        client.send(b"nonsense\r\n\r\n")
        assert client.answer().status == 400
        until(lambda: served.server.counters.connections == 0)


def test_a_body_with_too_little_progress_is_ended(small: Served) -> None:
    raw = post("/echo", b"x" * 1000)
    with small.client() as client:
        client.send(raw[:-1000])
        client.socket.settimeout(0.05)
        for _ in range(600):
            client.send(b"x")
            try:
                assert client.answer().code == "http.too_slow"
                return
            except TimeoutError:
                continue
    raise AssertionError("was not ended")


def test_a_stream_that_is_too_slow_ends_for_its_handler_too(small: Served) -> None:
    small.stream_errors.clear()
    with small.client() as client:
        client.send(post("/stream", b"x" * 1000)[:-1])
        assert client.answer().code == "http.too_slow"
    until(lambda: small.stream_errors == ["Refused"])


def test_an_idle_connection_is_closed_without_a_word(small: Served) -> None:
    with small.client() as fresh, small.client() as used:
        used.send(get("/echo"))
        used.answer()
        assert used.is_closed()
        assert fresh.is_closed()


def test_a_request_that_waits_for_its_handler_is_not_idle(small: Served) -> None:
    with small.client() as client:
        client.send(get("/later"))
        time.sleep(1.5)
        small.resolve()
        assert client.answer().status == 200


def test_a_client_that_does_not_fetch_its_answers_is_cut(small: Served) -> None:
    with small.client() as client:
        client.send(get("/large/30000000"))
        until(lambda: small.refused("unread_answer") == 1)


def test_a_client_that_fetches_slowly_gets_all(small: Served) -> None:
    with small.client() as client:
        client.send(get("/large/30000000", "Connection: close"))
        count = 0
        while data := client.socket.recv(1 << 19):
            count += len(data)
            time.sleep(0.04)
        assert count > 30_000_000


def test_above_the_limit_connections_are_turned_away_and_others_go_on() -> None:
    with serving(Limits(connection_count=20)) as served:
        clients = [served.client() for _ in range(20)]
        until(lambda: served.server.counters.connections == 20)
        with served.client() as late:
            answer = late.answer()
            assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "http.busy", "1")
            assert late.is_closed()
        for client in clients:
            client.send(get("/echo?on"))
            assert client.answer().body == b"on"
        clients.pop().close()
        until(lambda: served.server.counters.connections == 19)
        assert served.ask(get("/echo?on")).body == b"on"
        assert served.refused("connections") == 1
        for client in clients:
            client.close()


def test_bodies_of_all_clients_together_are_bounded() -> None:
    with (
        serving(Limits(held_body_bytes=MAX_BODY)) as served,
        served.client() as holding,
        served.client() as other,
    ):
        holding.send(post("/later", b"x" * (MAX_BODY - 100)))
        until(lambda: served.waiting)
        other.send(post("/echo", b"x" * 200))
        answer = other.answer()
        assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "http.busy", "1")
        served.resolve()
        assert holding.answer().status == 200
        assert len(served.ask(post("/echo", b"x" * (MAX_BODY - 100))).body) == MAX_BODY - 100


def test_bodies_that_broke_off_do_not_count() -> None:
    with serving(Limits(held_body_bytes=MAX_BODY)) as served:
        for end in ("gone", "waiting", "refused"):
            for _ in range(10):
                with served.client() as client:
                    if end == "gone":
                        client.send(post("/echo", b"x" * MAX_BODY)[: MAX_BODY // 2])
                    elif end == "waiting":
                        client.send(post("/later", b"x" * (MAX_BODY // 2)))
                        until(lambda: served.waiting)
                        served.waiting.clear()
                        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    else:
                        client.send(
                            POST + b"Transfer-Encoding: chunked\r\n\r\n80000\r\n" + b"x" * 0x80000 + b"no"
                        )
                        assert client.answer().status == 400
                until(lambda: served.server.counters.connections == 0)
        assert served.ask(post("/echo", b"x" * MAX_BODY)).status == 200


IDLE_COUNT = 10_000 if os.environ.get("THENCE_LONG") else 2_000

# In a process of its own: both ends of ten thousand connections are more files than one process may have open.
CROWD = """
import resource, socket, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + 100)), hard))
clients = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(count)]
print("there", flush=True)
sys.stdin.readline()
for client in clients[::20]:
    client.sendall(b"GET /echo?still HTTP/1.1\\r\\nHost: t\\r\\n\\r\\n")
    assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
print("served", flush=True)
sys.stdin.readline()
"""


def test_thousands_of_idle_connections_disturb_nobody() -> None:
    with serving(Limits(connection_count=IDLE_COUNT + 10)) as served:
        command = [sys.executable, "-c", CROWD, str(served.port), str(IDLE_COUNT)]
        crowd = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert crowd.stdout is not None
        assert crowd.stdin is not None
        try:
            assert crowd.stdout.readline() == "there\n"
            until(lambda: served.server.counters.connections == IDLE_COUNT)
            for _ in range(200):
                assert served.ask(get("/echo?on")).body == b"on"
            crowd.stdin.write("\n")
            crowd.stdin.flush()
            assert crowd.stdout.readline() == "served\n"
            assert not served.server.counters.refused
        finally:
            crowd.kill()
            crowd.communicate()
