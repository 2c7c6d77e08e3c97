"""What a handler is given and what it gives back.

A handler returns its answer, or an awaitable of it. A future costs less than a coroutine, which needs a task: hot paths
return a future that somebody else resolves, many at a time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Literal

import msgspec

JSON = "application/json"


class Request(msgspec.Struct, frozen=True):
    """One request. Header names are lower case. `body` is whole and decompressed, unless the route takes a stream.

    `path` is as it was sent; `params` are the named segments of the route's template, with escapes undone.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    remote: str
    traceparent: str
    body: bytes = b""
    stream: AsyncIterator[bytes] | None = None
    params: Mapping[str, str] = {}


UNKNOWN = -1
"""The length of a body that is not sent, where nobody says it."""


class Response(msgspec.Struct, frozen=True):
    """One answer. `unsent_bytes` is for HEAD alone, where the body that GET would have is not at hand."""

    body: bytes = b""
    status: int = 200
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    unsent_bytes: int | None = None


Handler = Callable[[Request], Response | Awaitable[Response]]


class Route(msgspec.Struct, frozen=True):
    """A handler, and how much it takes. `max_body_bytes` counts decompressed bytes."""

    handler: Handler
    body: Literal["none", "whole", "stream"] = "none"
    max_body_bytes: int = 16 << 20


def answer(content: object, status: int = 200, *, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    """An answer in JSON."""
    return Response(msgspec.json.encode(content), status, JSON, headers)


def refusal(status: int, code: str, message: str, advice: str, **more: object) -> Response:
    """An error in JSON, of the same shape everywhere."""
    return answer({"error": {"code": code, "message": message, "advice": advice, **more}}, status)


class Refused(Exception):
    """Raised where a request cannot go on: the answer, and the reason under which it is counted."""

    def __init__(self, response: Response, *, reason: str) -> None:
        super().__init__(reason)
        self.response = response
        self.reason = reason
