"""Passes on requests that only read, to the base URL of one destination, and hands back what it answers.

Path, query and what the client asks for go as they came, with the destination's own key in place of the client's.
Nothing is stored, no redirect is followed, and an answer is held whole up to a limit. It runs in the loop of whoever
asks and waits there without blocking. A crash here loses an answer, which the client asks for again.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import unquote

from thence.core.errors import ConfigError, OutcomeUnknown, Unavailable
from thence.forward import verdict
from thence.forward.connection import Answer, Reads
from thence.forward.http import HttpTarget, bearer_of, checked, path_of
from thence.forward.wire import Client, Origin
from thence.http.exchange import UNKNOWN, Request, Response, refusal
from thence.http.failures import again

_log = logging.getLogger(__name__)
_ANSWER_BYTES = 16 << 20
_AT_ONCE = 16
_CONNECTION = frozenset(
    ("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade")
)
_HOP_BY_HOP = _CONNECTION | {"proxy-authenticate", "proxy-authorization"}
_NOT_PASSED_ON = _HOP_BY_HOP | {"host", "content-length", "content-encoding", "expect", "traceparent", "via"}
_NOT_HANDED_BACK = _HOP_BY_HOP | {
    "content-length",
    "content-type",
    "date",
    "traceparent",
    "x-content-type-options",
}


class PassThrough:
    """One destination, asked for others. `is_locked` says that the client's key is ours and goes no further."""

    def __init__(self, name: str, target: HttpTarget, *, is_locked: bool) -> None:
        self._name = name
        self._target = target
        self._is_locked = is_locked
        self._client = Client(Origin.of(target.url), tls=target.tls, timeouts=target.timeouts)
        self._base = path_of(target.url).partition("?")[0].rstrip("/")
        self._fixed = {key.lower(): value for key, value in checked(dict(target.headers)).items()}
        self._bearer = bearer_of(target)
        self._via = f"1.1 thence-{secrets.token_hex(6)}"
        self._under_way = 0
        self._is_failing = False

    async def ask(self, request: Request) -> Response:
        """What the destination answers, or why there is no answer."""
        if self._via in request.headers.get("via", ""):
            return _loop(self._name)
        if _climbs(request.path):
            return _climbing()
        if self._under_way >= _AT_ONCE:
            return _busy(self._name)
        self._under_way += 1
        try:
            answer = await self._ask_again(request)
        except (Unavailable, OutcomeUnknown) as error:
            self._note(str(error))
            return _late(self._name) if isinstance(error.__cause__, TimeoutError) else _down(self._name)
        finally:
            self._under_way -= 1
        self._note("")
        return _too_large(self._name) if answer.is_cut else _handed_back(answer, request.method)

    async def close(self) -> None:
        """Let go of the connections, in the loop in which they were opened."""
        await self._client.close()

    async def _ask_again(self, request: Request) -> Answer:
        answer = await self._ask_twice(request)
        if answer.status == verdict.UNAUTHORIZED and self._target.bearer_file is not None:
            fresh = self._bearer
            with suppress(ConfigError):  # then the old one is refused, which says enough
                fresh = await asyncio.to_thread(bearer_of, self._target)
            if fresh != self._bearer:
                self._bearer = fresh
                answer = await self._ask_twice(request)
        return answer

    async def _ask_twice(self, request: Request) -> Answer:
        try:
            return await self._ask(request)
        except OutcomeUnknown as error:
            if isinstance(error.__cause__, TimeoutError):
                raise
            # A connection that was kept may end while a request is on its way, and reading twice does no harm.
            return await self._ask(request)

    async def _ask(self, request: Request) -> Answer:
        reads: Reads = "head" if request.method == "HEAD" else "all"
        return await self._client.exchange(self._head(request), max_answer_bytes=_ANSWER_BYTES, reads=reads)

    def _head(self, request: Request) -> bytes:
        query = f"?{request.query}" if request.query else ""
        line = f"{request.method} {self._base}{request.path}{query} HTTP/1.1"
        fields = (f"{name}: {value}" for name, value in self._fields(request).items())
        return "\r\n".join((line, *fields, "", "")).encode("latin-1")

    def _fields(self, request: Request) -> dict[str, str]:
        dropped = _NOT_PASSED_ON | _named(request.headers.get("connection", ""))
        fields = {name: value for name, value in request.headers.items() if name not in dropped}
        if self._is_locked:
            fields.pop("authorization", None)
        if self._bearer is not None:
            fields["authorization"] = f"Bearer {self._bearer}"
        before = request.headers.get("via")
        own = {
            "host": self._client.origin.authority,
            "traceparent": request.traceparent,
            "via": f"{before}, {self._via}" if before else self._via,
        }
        return {**own, **fields, **self._fixed}

    def _note(self, trouble: str) -> None:
        if trouble and not self._is_failing:
            about = {"action": "pass_through_failed", "destination": self._name, "reason": trouble}
            _log.warning("a destination cannot be asked", extra=about)
        elif self._is_failing and not trouble:
            about = {"action": "pass_through_recovered", "destination": self._name}
            _log.info("a destination can be asked again", extra=about)
        self._is_failing = bool(trouble)


def _handed_back(answer: Answer, method: str) -> Response:
    length = answer.headers.get("content-length", "")
    return Response(
        answer.body,
        answer.status,
        answer.headers.get("content-type", "application/octet-stream"),
        tuple(_fields_back(answer)),
        (int(length) if length.isdecimal() else UNKNOWN) if method == "HEAD" else None,
    )


def _fields_back(answer: Answer) -> Iterator[tuple[str, str]]:
    dropped = _NOT_HANDED_BACK | _named(answer.headers.get("connection", ""))
    return ((name, value) for name, value in answer.fields if name not in dropped)


def _named(connection: str) -> set[str]:
    """The headers that concern one connection only, because it says so."""
    return {name.strip().lower() for name in connection.split(",")}


def _climbs(path: str) -> bool:
    """Whether a server could read the path as one outside of where it begins."""
    steps = unquote(path, "latin-1").replace("\\", "/").split("/")
    return any(step.partition(";")[0] in (".", "..") for step in steps)


def _down(name: str) -> Response:
    message = f"the destination {name} cannot be reached, or broke off"
    return refusal(
        502, "forward.pass_down", message, "Look at it, and at the log here; events wait meanwhile."
    )


def _late(name: str) -> Response:
    return refusal(
        504, "forward.pass_late", f"the destination {name} did not answer in time", "Ask for less."
    )


def _too_large(name: str) -> Response:
    message = f"the destination {name} answered with more than {_ANSWER_BYTES} bytes"
    return refusal(502, "forward.pass_too_large", message, "Ask for less at a time, or ask it itself.")


def _busy(name: str) -> Response:
    message = f"{_AT_ONCE} requests wait for the destination {name} already"
    return again(refusal(503, "forward.pass_busy", message, "Ask again later."))


def _loop(name: str) -> Response:
    message = f"the destination {name} leads back to this process"
    return refusal(508, "forward.pass_loop", message, "Correct its url, or collect.lineage.pass_through.")


def _climbing() -> Response:
    return refusal(400, "forward.pass_path", "the path has a step . or ..", "Send the path that is meant.")


__all__ = ["PassThrough"]
