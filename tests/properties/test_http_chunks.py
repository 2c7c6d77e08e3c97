"""Chunked bodies are read as llhttp reads them, however they are cut and damaged."""

from __future__ import annotations

import httptools
from hypothesis import example, given
from hypothesis import strategies as st

from thence.http.chunks import Chunked
from thence.http.exchange import Refused

HEAD = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


class Oracle:
    def __init__(self) -> None:
        self.body = b""
        self.is_complete = False

    def on_body(self, piece: bytes) -> None:
        self.body += piece

    def on_message_complete(self) -> None:
        self.is_complete = True


def by_llhttp(framed: bytes) -> tuple[str, bytes]:
    oracle = Oracle()
    parser = httptools.HttpRequestParser(oracle)
    parser.feed_data(HEAD)
    for at in range(len(framed)):
        try:
            parser.feed_data(framed[at : at + 1])
        except httptools.HttpParserError:
            return "refused", b""
        if oracle.is_complete:
            return f"ends at {at + 1}", oracle.body
    return "waits", oracle.body


def by_us(framed: bytes, cuts: list[int]) -> tuple[str, bytes]:
    chunks, body, at = Chunked(), b"", 0
    try:
        for cut in [*sorted(cut for cut in cuts if cut < len(framed)), len(framed)]:
            body += chunks.feed(framed[at:cut])
            at = cut
            if chunks.is_complete:
                return f"ends at {at - len(chunks.rest)}", body
    except Refused:
        return "refused", b""
    return "waits", body


PUTS = [bytes([each]) for each in b'; =,:_+-0"\\\t\r\n\x7f\x80']

pieces = st.lists(st.binary(min_size=1, max_size=40), max_size=5)
extensions = st.sampled_from([b"", b";a=b", b";a", b";a=b;c=d", b';a="b c\\""'])
trailers = st.sampled_from([b"", b"A: b\r\n", b"A: b\r\nC: d\r\n"])
cuts = st.lists(st.integers(0, 300), max_size=8)


@st.composite
def framings(draw: st.DrawFn) -> bytes:
    framed = b""
    for piece in draw(pieces):
        size = draw(st.sampled_from([b"%x", b"%X", b"0%x"])) % len(piece)
        framed += size + draw(extensions) + b"\r\n" + piece + b"\r\n"
    return framed + b"0\r\n" + draw(trailers) + b"\r\n" + draw(st.binary(max_size=5))


@given(framings(), cuts)
def test_what_is_well_formed_is_read_alike(framed: bytes, cuts: list[int]) -> None:
    said, body = by_us(framed, cuts)
    assert (said, body) == by_llhttp(framed)
    assert said.startswith("ends")


@given(
    framings(), st.integers(0, 400), st.binary(max_size=3) | st.sampled_from(PUTS), st.integers(0, 3), cuts
)
@example(b"0\r\n\r\n", 1, b"\n", 1, [])
@example(b"1;a=b\r\n.\r\n0\r\n\r\n", 2, b":", 0, [])
def test_what_llhttp_refuses_is_never_taken(
    framed: bytes, at: int, put: bytes, drop: int, cuts: list[int]
) -> None:
    damaged = framed[:at] + put + framed[at + drop :]
    said, body = by_us(damaged, cuts)
    if said.startswith("ends"):
        assert (said, body) == by_llhttp(damaged)
    assert by_us(damaged, list(range(len(damaged)))) == (said, body)
