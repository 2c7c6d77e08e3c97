"""Writes answers as bytes.

What answers have in common is written once a second for each status and content type, with the date of that second.
"""

from __future__ import annotations

from email.utils import format_datetime
from http import HTTPStatus

from thence.core.clock import Clock
from thence.http.exchange import UNKNOWN, Response

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_WITHOUT_BODY = (204, 304)
_KINDS = 256
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


class Answers:
    """Writes answers, with the date as it was when `refresh` was called last."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._beginnings: dict[tuple[int, str], str] = {}
        self._date = ""
        self.refresh()

    def refresh(self) -> None:
        """Read the clock again."""
        date = format_datetime(self._clock.now(), usegmt=True)
        if date != self._date:
            self._date = date
            self._beginnings.clear()

    def write(
        self, response: Response, traceparent: str, connection: str = "", *, with_body: bool = True
    ) -> bytes:
        """One answer. `connection` says what becomes of the connection, where that is not the usual."""
        kind = (response.status, response.content_type)
        beginning = self._beginnings.get(kind) or self._begin(kind)
        more = _fields(response.headers) if response.headers else ""
        if connection:
            more += f"connection: {connection}\r\n"
        length = len(response.body) if response.unsent_bytes is None else response.unsent_bytes
        if response.status in _WITHOUT_BODY or length == UNKNOWN:
            return f"{beginning}traceparent: {traceparent}\r\n{more}\r\n".encode("latin-1")
        head = f"{beginning}content-length: {length}\r\ntraceparent: {traceparent}\r\n{more}\r\n"
        return head.encode("latin-1") + response.body if with_body else head.encode("latin-1")

    def _begin(self, kind: tuple[int, str]) -> str:
        status, content_type = kind
        if len(self._beginnings) >= _KINDS:
            self._beginnings.clear()
        lines = [f"HTTP/1.1 {status} {_PHRASES.get(status, '')}", f"date: {self._date}"]
        if status not in _WITHOUT_BODY:
            lines.append(_clean(f"content-type: {content_type}"))
        lines.append("x-content-type-options: nosniff")
        beginning = self._beginnings[kind] = "\r\n".join(lines) + "\r\n"
        return beginning


def _fields(headers: tuple[tuple[str, str], ...]) -> str:
    return "".join([_clean(f"{name}: {value}") + "\r\n" for name, value in headers])


def _clean(line: str) -> str:
    # A handler that passes on what it was sent must not be able to write a second header, or a second answer.
    if "\r" in line or "\n" in line or "\0" in line:
        raise ValueError("a header of an answer holds the end of a line")
    return line
