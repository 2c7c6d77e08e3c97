"""Compressed bodies: what clients send is read, bombs and damage stop early, and memory stays flat."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from tests.integration.http.serving import MAX_BODY, MAX_STREAM, Served, get, post

BODY = b'{"eventType": "START", "run": {}}' * 3000


def raw_deflate(data: bytes) -> bytes:
    squeezer = zlib.compressobj(wbits=-15)
    return squeezer.compress(data) + squeezer.flush()


SQUEEZERS = {
    "gzip": ("gzip", gzip.compress),
    "gzip-members": (
        "gzip",
        lambda data: gzip.compress(data[:1000]) + gzip.compress(b"") + gzip.compress(data[1000:]),
    ),
    "x-gzip": ("X-GZIP", gzip.compress),
    "deflate-zlib": ("deflate", zlib.compress),
    "deflate-raw": ("deflate", raw_deflate),
    "zstd": ("zstd", zstd.compress),
    "zstd-frames": ("zstd", lambda data: zstd.compress(data[:1000]) + zstd.compress(data[1000:])),
}
each_coding = pytest.mark.parametrize(("coding", "squeeze"), SQUEEZERS.values(), ids=SQUEEZERS.keys())
Squeeze = Callable[[bytes], bytes]


def memory_bytes() -> int:
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) * 1024


@each_coding
def test_a_compressed_body_is_read(served: Served, coding: str, squeeze: Squeeze) -> None:
    answer = served.ask(post("/echo", squeeze(BODY), f"Content-Encoding: {coding}"))
    assert answer.body == BODY
    answer = served.ask(post("/stream", squeeze(BODY), f"Content-Encoding: {coding}"))
    assert answer.json == {"count": len(BODY)}


@each_coding
def test_a_large_compressed_body_is_read_and_order_is_kept(
    served: Served, coding: str, squeeze: Squeeze
) -> None:
    body = (BODY * 20)[:MAX_BODY]
    with served.client() as client:
        client.send(post("/echo", squeeze(body), f"Content-Encoding: {coding}") + get("/echo?after"))
        assert client.answer().body == body
        assert client.answer().body == b"after"
    assert [request.query for request in served.seen[-2:]] == ["", "after"]


def test_a_body_that_hardly_compresses_is_read(served: Served) -> None:
    import random

    body = random.Random(7).randbytes(MAX_BODY - 10_000)
    assert served.ask(post("/echo", gzip.compress(body), "Content-Encoding: gzip")).body == body
    assert served.ask(post("/echo", zstd.compress(body), "Content-Encoding: zstd")).body == body


def test_a_compressed_body_is_read_in_chunks_of_one_byte(served: Served) -> None:
    squeezed = gzip.compress(b"hello" * 10)
    framed = (
        b"".join(b"1\r\n" + squeezed[at : at + 1] + b"\r\n" for at in range(len(squeezed))) + b"0\r\n\r\n"
    )
    for path, said in (("/echo", b"hello" * 10), ("/stream", b'{"count":50}')):
        head = (
            f"POST {path} HTTP/1.1\r\nHost: t\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        assert served.ask(head.encode() + framed).body == said


@pytest.mark.parametrize("path", ["/echo", "/stream"])
@each_coding
def test_a_bomb_stops_at_the_limit(served: Served, path: str, coding: str, squeeze: Squeeze) -> None:
    bomb = squeeze(bytes(100_000_000))
    before = memory_bytes()
    answer = served.ask(post(path, bomb, f"Content-Encoding: {coding}"))
    assert (answer.status, answer.code) == (413, "http.body_too_large")
    assert memory_bytes() - before < 2 * MAX_STREAM


@pytest.mark.parametrize("path", ["/echo", "/stream"])
@each_coding
def test_damage_is_refused(served: Served, path: str, coding: str, squeeze: Squeeze) -> None:
    squeezed = squeeze(BODY)
    for damaged in (
        squeezed[:-1],
        squeezed[: len(squeezed) // 2],
        squeezed + b"more",
        b"nonsense",
        squeezed[:1],
    ):
        answer = served.ask(post(path, damaged, f"Content-Encoding: {coding}"))
        assert (answer.status, answer.code) == (400, "http.compressed"), damaged[:20]


def test_a_damaged_body_costs_its_request_and_not_the_connection(served: Served) -> None:
    with served.client() as client:
        client.send(post("/echo", b"nonsense", "Content-Encoding: gzip"))
        assert client.answer().status == 400
        client.send(post("/echo", gzip.compress(bytes(10 * MAX_BODY)), "Content-Encoding: gzip"))
        assert client.answer().status == 413
        client.send(get("/echo?on"))
        assert client.answer().body == b"on"


def test_a_wrong_checksum_is_refused(served: Served) -> None:
    squeezed = bytearray(gzip.compress(BODY))
    squeezed[-8] ^= 1
    assert served.ask(post("/echo", bytes(squeezed), "Content-Encoding: gzip")).code == "http.compressed"


def test_a_crowd_of_empty_members_is_refused(served: Served) -> None:
    assert (
        served.ask(post("/echo", gzip.compress(b"") * 5000, "Content-Encoding: gzip")).code
        == "http.compressed"
    )
    assert (
        served.ask(post("/echo", zstd.compress(b"") * 5000, "Content-Encoding: zstd")).code
        == "http.compressed"
    )


def test_a_window_that_needs_much_memory_is_refused(served: Served) -> None:
    options: dict[int, int] = {
        zstd.CompressionParameter.window_log: 27,
        zstd.CompressionParameter.content_size_flag: 0,
    }
    squeezer = zstd.ZstdCompressor(options=options)
    wide = squeezer.compress(BODY) + squeezer.flush()
    assert served.ask(post("/echo", wide, "Content-Encoding: zstd")).code == "http.compressed"


@pytest.mark.parametrize("coding", ["br", "gzip, gzip", "gzip, deflate", "nonsense", "identity, gzip"])
def test_an_unknown_coding_or_several_are_refused(served: Served, coding: str) -> None:
    answer = served.ask(post("/echo", b"x", f"Content-Encoding: {coding}"))
    assert (answer.status, answer.code) == (415, "http.coding")
    assert answer.headers["accept-encoding"] == "gzip, deflate, zstd"
    assert served.ask(post("/echo", b"x", "Content-Encoding: gzip", "Content-Encoding: gzip")).status == 415


def test_identity_and_nothing_are_no_coding(served: Served) -> None:
    assert served.ask(post("/echo", b"x", "Content-Encoding: identity")).body == b"x"
    assert served.ask(post("/echo", b"", "Content-Encoding: gzip")).body == b""
