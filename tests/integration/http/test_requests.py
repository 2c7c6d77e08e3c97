"""Requests as clients make them: bodies, keep-alive, pipelining, streams, traces, and what handlers do."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time

import pytest

from tests.integration.http.serving import (
    MAX_BODY,
    MAX_STREAM,
    WAIT,
    Client,
    Served,
    get,
    post,
    serving,
    until,
)
from thence.http.limits import Limits

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_body_comes_through_whole_however_it_is_cut(served: Served) -> None:
    body = bytes(range(256)) * 20
    raw = post("/echo", body)
    with served.client() as client:
        for size in (1, 7, 4096, len(raw)):
            for at in range(0, len(raw), size):
                client.send(raw[at : at + size])
            assert client.answer().body == body


def test_a_chunked_body_comes_through_whole_however_it_is_cut(served: Served) -> None:
    raw = b"POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
    raw += b"3\r\nabc\r\n10;note=x\r\n0123456789abcdef\r\n0\r\nTrailer: v\r\n\r\n"
    with served.client() as client:
        for size in (1, 3, 11, len(raw)):
            for at in range(0, len(raw), size):
                client.send(raw[at : at + size])
            assert client.answer().body == b"abc0123456789abcdef"


def test_the_handler_sees_what_was_sent(served: Served) -> None:
    served.ask(get("/echo?a=1&b=%20", "X-One: é".encode().decode("latin-1"), "X-Two: a", "x-two: b"))
    request = served.seen[-1]
    assert (request.method, request.path, request.query) == ("GET", "/echo", "a=1&b=%20")
    assert request.headers["x-two"] == "a, b"
    assert request.remote == "127.0.0.1"


def test_answers_carry_what_they_must(served: Served) -> None:
    answer = served.ask(get("/echo?x"))
    assert answer.headers["content-type"] == "text/plain"
    assert answer.headers["content-length"] == "1"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["date"].endswith("GMT")
    assert "connection" not in answer.headers


def test_head_is_get_without_a_body(served: Served) -> None:
    with served.client() as client:
        client.send(get("/echo?abc", method="HEAD"))
        answer = client.answer(to_head=True)
        assert answer.headers["content-length"] == "3"
        client.send(get("/echo?abc"))
        assert client.answer().body == b"abc"


def test_an_answer_without_content_says_no_length(served: Served) -> None:
    with served.client() as client:
        client.send(get("/empty") + get("/echo?next"))
        answer = client.answer()
        assert (answer.status, "content-length" in answer.headers) == (204, False)
        assert client.answer().body == b"next"


def test_options_goes_where_a_table_says_so(served: Served) -> None:
    assert served.ask(get("/cors", method="OPTIONS")).headers["allow"] == "POST"
    assert served.ask(get("/echo", method="OPTIONS")).status == 405


def test_http_1_0_closes_unless_asked_to_stay(served: Served) -> None:
    with served.client() as client:
        client.send(b"GET /echo?a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        answer = client.answer()
        assert (answer.body, answer.headers["connection"]) == (b"a", "keep-alive")
        client.send(b"GET /echo?b HTTP/1.0\r\n\r\n")
        assert client.answer().headers["connection"] == "close"
        assert client.is_closed()


def test_connection_close_is_followed(served: Served) -> None:
    with served.client() as client:
        client.send(get("/echo?a", "Connection: close") + get("/echo?b"))
        assert client.answer().headers["connection"] == "close"
        assert client.is_closed()


def test_nothing_after_the_last_request_is_handled() -> None:
    with serving() as served, served.client() as client:
        client.send(get("/later", "Connection: close") + get("/echo?late"))
        until(lambda: served.waiting)
        client.send(get("/echo?later"))
        served.resolve()
        assert client.answer().json == {"later": True}
        assert client.is_closed()
        assert [request.path for request in served.seen] == ["/later"]


def test_an_empty_line_between_requests_is_forgiven(served: Served) -> None:
    with served.client() as client:
        client.send(post("/echo", b"a") + b"\r\n" + get("/echo?b"))
        assert client.answer().body == b"a"
        assert client.answer().body == b"b"


def test_an_absolute_address_is_its_path(served: Served) -> None:
    assert served.ask(get("http://elsewhere:80/echo?x")).body == b"x"
    assert served.ask(get("HTTP://elsewhere")).status == 200


def test_an_upgrade_is_not_taken_and_its_body_is_read(served: Served) -> None:
    with served.client() as client:
        client.send(
            post("/echo", b"GET / HTTP/1.1\r\n\r\n", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c")
        )
        assert client.answer().body == b"GET / HTTP/1.1\r\n\r\n"
        client.send(get("/echo?still"))
        assert client.answer().body == b"still"


def test_connect_is_not_taken(served: Served) -> None:
    assert served.ask(b"CONNECT t:80 HTTP/1.1\r\nHost: t\r\n\r\n").status == 400


def test_expect_100_continue_is_answered_before_the_body(served: Served) -> None:
    raw = post("/echo", b"hello", "Expect: 100-continue")
    with served.client() as client:
        client.send(raw[:-5])
        assert client.answer().status == 100
        client.send(b"hello")
        assert client.answer().body == b"hello"


def test_expect_is_answered_at_once_where_the_body_is_not_wanted(served: Served) -> None:
    for path, status in (("/nope", 404), ("/task", 405)):
        raw = post(path, b"hello", "Expect: 100-continue")
        assert served.ask(raw[:-5]).status == status
    raw = post("/echo", b"x" * (MAX_BODY + 1), "Expect: 100-continue")
    assert served.ask(raw[: raw.index(b"\r\n\r\n") + 4]).status == 413


def test_expect_waits_for_its_turn_in_a_pipeline() -> None:
    with serving() as served, served.client() as client:
        client.send(get("/later") + post("/echo", b"hello", "Expect: 100-continue")[:-5])
        until(lambda: served.waiting)
        served.resolve()
        assert client.answer().json == {"later": True}
        assert client.answer().status == 100
        client.send(b"hello")
        assert client.answer().body == b"hello"


def test_another_expectation_is_refused(served: Served) -> None:
    assert served.ask(post("/echo", b"x", "Expect: wonders")).code == "http.expectation"


def test_pipelined_requests_are_answered_in_order() -> None:
    with serving() as served, served.client() as client:
        client.send(get("/later") + get("/task?2") + get("/later") + get("/echo?4") + post("/echo", b"5"))
        until(lambda: len(served.waiting) == 2 and len(served.seen) == 4)
        served.resolve()  # the third is done first
        served.resolve()
        answers = [client.answer() for _ in range(5)]
        assert [each.body for each in answers[3:]] == [b"4", b"5"]
        assert answers[1].json == {"query": "2"}
        assert [each.json for each in (answers[0], answers[2])] == [{"later": True}] * 2


def test_the_number_of_requests_under_way_is_bounded_and_all_are_answered() -> None:
    with serving(Limits(pipelined_count=4)) as served, served.client() as client:
        client.send(get("/later") * 50)
        until(lambda: len(served.waiting) == 4)
        time.sleep(0.05)
        assert len(served.seen) == 4
        for _ in range(50):
            until(lambda: served.waiting)
            served.resolve(oldest=True)
            assert client.answer().status == 200


def test_thousands_of_pipelined_requests_are_answered(served: Served) -> None:
    with served.client() as client:
        for number in range(3000):
            client.send(get(f"/echo?{number}"))
        assert [client.answer().body for _ in range(3000)] == [str(number).encode() for number in range(3000)]


def test_a_trace_is_kept_or_made_and_known_to_the_handler(served: Served) -> None:
    for path in ("/echo", "/task"):
        answer = served.ask(get(path, f"traceparent: {PARENT}"))
        assert answer.headers["traceparent"] == PARENT
        assert served.traces[-1] == PARENT.split("-")[1]
    for given in (
        "nonsense",
        PARENT.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32),
        "ff" + PARENT[2:],
    ):
        made = served.ask(get("/echo", f"traceparent: {given}")).headers["traceparent"]
        assert made != given
        assert len(made) == len(PARENT)
        assert served.traces[-1] == made.split("-")[1]


@pytest.mark.parametrize(
    ("how", "status", "code"),
    [
        ("invalid", 400, "t.invalid"),
        ("rejected", 422, "t.rejected"),
        ("unavailable", 503, "t.unavailable"),
        ("unknown", 500, "t.unknown"),
        ("config", 500, "t.config"),
        ("invariant", 500, "t.invariant"),
        ("secret", 500, "http.internal"),
        ("nothing", 500, "http.internal"),
        ("header", 500, "http.internal"),
    ],
)
def test_what_a_handler_raises_becomes_an_answer(served: Served, how: str, status: int, code: str) -> None:
    with served.client() as client:
        client.send(get(f"/fail/{how}"))
        answer = client.answer()
        assert (answer.status, answer.code) == (status, code)
        assert answer.headers.get("retry-after") == ("1" if status == 503 else None)
        assert b"hunter2" not in answer.body
        assert "set-cookie" not in answer.headers
        client.send(get("/echo?on"))
        assert client.answer().body == b"on"


def test_an_invalid_event_is_told_where_it_is_wrong(served: Served) -> None:
    said = json.loads(served.ask(get("/fail/invalid")).body)
    assert said["error"]["violations"][0]["path"] == "/run"


def test_a_failure_is_logged_with_its_trace(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    traces = []
    import logging

    from thence.http.trace import trace_id

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            traces.append((getattr(record, "action", ""), trace_id.get()))

    handler = Kept()
    logging.getLogger("thence.http").addHandler(handler)
    try:
        served.ask(get("/fail/secret", f"traceparent: {PARENT}"))
    finally:
        logging.getLogger("thence.http").removeHandler(handler)
    assert ("request_failed", PARENT.split("-")[1]) in traces


def test_a_stream_comes_in_pieces_and_is_counted(served: Served) -> None:
    body = b"x" * 700_000
    assert served.ask(post("/stream", body)).json == {"count": len(body)}
    chunked = b"POST /stream HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert served.ask(chunked + b"5\r\nhello\r\n" * 100 + b"0\r\n\r\n").json == {"count": 500}


def test_a_slow_reader_of_a_stream_slows_its_client_down() -> None:
    with serving(Limits(body_idle_seconds=60)) as served, served.client() as client:
        body = b"x" * MAX_STREAM
        raw = post("/stream?slow", body)
        client.send(raw[:200])
        assert served.opened.wait(WAIT)
        client.socket.settimeout(1)
        sent = 200
        with contextlib.suppress(TimeoutError):
            while sent < len(raw):
                sent += client.socket.send(raw[sent : sent + (1 << 16)])
        assert sent < len(raw)
        # The rest did not go into the server's memory: about its buffer and those of the kernel was taken.
        assert served.server.counters.received_bytes < 1 << 20
        client.socket.settimeout(WAIT)
        served.waiting.append(served.server.loop.create_future())
        client.send(raw[sent:])
        assert client.answer().json == {"count": MAX_STREAM}


def test_a_stream_that_is_answered_early_is_closed_after_its_answer(served: Served) -> None:
    with served.client() as client:
        client.send(post("/early", b"x" * 100_000)[:5000])
        answer = client.answer()
        assert (answer.json, answer.headers["connection"]) == ({"early": True}, "close")
        client.send(b"x" * 1000)
        client.socket.shutdown(socket.SHUT_WR)
        assert client.is_closed()


def test_a_stream_whose_client_goes_away_ends_with_an_error() -> None:
    with serving() as served:
        with served.client() as client:
            client.send(post("/stream", b"x" * 1000)[:-1])
            until(lambda: served.server.counters.received_bytes > 1000)
        until(lambda: served.stream_errors == ["Unavailable"])
        assert served.refused("client_gone") == 1


def test_a_client_that_only_sends_gets_its_answers() -> None:
    with serving() as served, served.client() as client:
        client.send(get("/later") + get("/echo?b"))
        client.socket.shutdown(socket.SHUT_WR)
        until(lambda: served.waiting)
        served.resolve()
        assert client.answer().json == {"later": True}
        assert client.answer().body == b"b"
        assert client.is_closed()


def test_a_client_that_goes_away_leaves_nothing_behind() -> None:
    with serving() as served:
        for number in range(50):
            client = served.client()
            client.send(get("/later") + post("/echo", b"x" * 10_000)[:-1])
            until(lambda: len(served.waiting) == number + 1)  # noqa: B023 - called at once
            if number % 2:
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        until(
            lambda: served.server.counters.connections == 25
        )  # those reset are gone, those closed may be half-closed
        served.resolve(50)
        until(lambda: served.server.counters.connections == 0)
        assert served.refused("client_gone") == 50
        assert served.server.counters.requests["GET", "/later", 200] == 25
        assert served.ask(get("/echo?on")).body == b"on"


def test_counters_tell_what_happened() -> None:
    with serving() as served:
        served.ask(get("/echo"))
        served.ask(post("/echo", b"abc"))
        served.ask(get("/nope"))
        served.ask(get("/large/5"))
        served.ask(get("/echo", method="DELETE"))
        served.ask(b"nonsense\r\n\r\n")
        counters = served.server.counters
        assert counters.requests == {
            ("GET", "/echo", 200): 1,
            ("POST", "/echo", 200): 1,
            ("GET", "other", 404): 1,
            ("GET", "/large/{count}", 200): 1,
            ("DELETE", "/echo", 405): 1,
            ("other", "other", 400): 1,
        }
        assert counters.refused == {"malformed": 1}
        assert sum(counters.seconds["/echo"].counts) == 3
        assert counters.received_bytes > 150
        assert counters.sent_bytes > 800


def test_it_listens_on_ipv6() -> None:
    with serving(listen="[::1]:0") as served:
        assert served.server.url.startswith("http://[::1]:")
        with Client(served.port, "::1") as client:
            client.send(get("/echo?six"))
            assert client.answer().body == b"six"
        assert served.seen[0].remote == "::1"
