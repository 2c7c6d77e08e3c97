"""The trace of a request is known while its handler runs, and not afterwards."""

from __future__ import annotations

from typing import Any, cast

from thence.http.exchange import Request, Response, Route
from thence.http.head import Head
from thence.http.routes import Match
from thence.http.trace import id_in, kept_or_made, trace_id
from thence.http.turn import Turn


def test_it_is_forgotten_after_the_handler() -> None:
    seen = []

    def note(_: Request) -> Response:
        seen.append(trace_id.get())
        return Response()

    nobody = cast("Any", None)
    head = Head("GET", "/", "", {}, 0, keep_alive=True, is_latest=True)
    turn = Turn(nobody, head, Match(Route(note), "/", "GET"), 0.0)
    turn.start(Request("GET", "/", "", {}, "", turn.traceparent), nobody)
    assert seen == [id_in(turn.traceparent)]
    assert trace_id.get() == ""


def test_ids_differ() -> None:
    assert len({kept_or_made(None) for _ in range(10_000)}) == 10_000
