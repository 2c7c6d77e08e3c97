"""Reads the head of a request: the request line and the header fields, up to the empty line.

llhttp judges a head as a whole, in its strict mode, and what it lets pass although two servers could read it
differently is refused here: several transfer codings, one in HTTP/1.0, a missing or second Host, spaces too many in the
request line, other protocols. So the lines can be split without a parser of our own. Whoever sent what is refused
cannot know where the next request begins, so the connection is closed.
"""

from __future__ import annotations

from collections.abc import Mapping

import httptools
import msgspec

from thence.http.exchange import Refused, refusal
from thence.http.limits import Limits

END = b"\r\n\r\n"

CHUNKED = -1
"""The body's length is not declared."""

_REPEATABLE_WITH = {"cookie": "; "}
_ONCE = frozenset({"host", "content-length", "transfer-encoding", "authorization", "content-type", "expect"})
_VERSIONS = {"HTTP/1.1": True, "HTTP/1.0": False}


class Head(msgspec.Struct, frozen=True, gc=False):
    """What the head of one request says."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body_bytes: int
    keep_alive: bool
    is_latest: bool
    """Whether the version is 1.1."""


def read_head(raw: bytes, limits: Limits) -> Head:
    """Read a head that ends in an empty line, or raise Refused."""
    _judge(raw)
    request_line, *lines = raw[: -len(END)].decode("latin-1").split("\r\n")
    if len(lines) > limits.header_count:
        raise too_large(f"{len(lines)} header fields, {limits.header_count} are allowed")
    method, target, is_latest = _request_line(request_line, limits)
    headers = _fields(lines)
    if is_latest and "host" not in headers:
        raise malformed("there is no Host")
    path, query = _path_and_query(target)
    return Head(
        method,
        path,
        query,
        headers,
        _body_bytes(headers, is_latest=is_latest),
        _keep_alive(headers.get("connection"), is_latest=is_latest),
        is_latest,
    )


def check_beginning(raw: bytes, limits: Limits) -> None:
    """Refuse the beginning of a head as soon as it can only end badly."""
    if len(raw) > limits.head_bytes:
        raise too_large(f"the head is larger than {limits.head_bytes} bytes")
    line_end = raw.find(b"\r\n")
    if (line_end if line_end >= 0 else len(raw)) > limits.target_bytes + 64:
        raise _target_too_long(limits)
    if raw.count(b"\n") != raw.count(b"\r\n"):
        raise malformed("a line ends without a carriage return")


def check_trailers(raw: bytes) -> None:
    """Judge the trailer fields after a chunked body, which end in an empty line. They are not used."""
    _judge(b"GET / HTTP/1.0\r\n" + raw)


def malformed(message: str) -> Refused:
    """The answer to what is no HTTP, or could be read in two ways."""
    return Refused(
        refusal(
            400, "http.malformed", message, "Send HTTP/1.1 as RFC 9112 has it; the connection is closed."
        ),
        reason="malformed",
    )


def too_large(message: str) -> Refused:
    """The answer to too many or too large header fields."""
    return Refused(
        refusal(431, "http.head_too_large", message, "Send fewer or shorter header fields."), reason="head"
    )


def _target_too_long(limits: Limits) -> Refused:
    message = f"the address is longer than {limits.target_bytes} bytes"
    return Refused(
        refusal(414, "http.target_too_long", message, "Send long values in the body."), reason="target"
    )


def _judge(raw: bytes) -> None:
    try:
        httptools.HttpRequestParser(None).feed_data(raw)
    except httptools.HttpParserUpgrade:
        return  # An upgrade may be ignored (RFC 9110, 7.8), and the body is read as if it had not been asked for.
    except httptools.HttpParserError as error:
        if "invalid `Transfer-Encoding`" in str(error):
            raise _unknown_transfer_coding() from error
        if "HTTP version" in str(error):
            raise _unknown_version() from error
        raise malformed(str(error)) from error


def _request_line(line: str, limits: Limits) -> tuple[str, str, bool]:
    parts = line.split(" ")
    if len(parts) != 3 or "#" in parts[1]:  # noqa: PLR2004 - method, target, version
        raise malformed("the request line is not METHOD, address and version with one space between them")
    if len(parts[1]) > limits.target_bytes:
        raise _target_too_long(limits)
    is_latest = _VERSIONS.get(parts[2])
    if is_latest is None:
        raise _unknown_version()
    return parts[0], parts[1], is_latest


def _fields(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        name, value = name.lower(), value.strip(" \t")
        if name in headers:
            if name in _ONCE:
                raise malformed(f"{name} is there twice")
            value = headers[name] + _REPEATABLE_WITH.get(name, ", ") + value
        headers[name] = value
    return headers


def _path_and_query(target: str) -> tuple[str, str]:
    if not target.startswith("/") and target != "*":
        scheme, _, rest = target.partition("://")
        if scheme.lower() not in ("http", "https") or not rest:
            raise malformed("the address is neither a path nor a URL")
        target = "/" + rest.partition("/")[2]
    path, _, query = target.partition("?")
    return path, query


def _body_bytes(headers: Mapping[str, str], *, is_latest: bool) -> int:
    coding = headers.get("transfer-encoding")
    length = headers.get("content-length")
    if coding is None:
        return 0 if length is None else _number(length)
    if length is not None or not is_latest:
        raise malformed("Transfer-Encoding beside Content-Length, or in HTTP/1.0")
    if coding.lower() != "chunked":
        raise _unknown_transfer_coding()
    return CHUNKED


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise malformed("Content-Length is no number")
    return int(text)


def _keep_alive(connection: str | None, *, is_latest: bool) -> bool:
    if connection is None:
        return is_latest
    tokens = {token.strip() for token in connection.lower().split(",")}
    return "close" not in tokens and (is_latest or "keep-alive" in tokens)


def _unknown_transfer_coding() -> Refused:
    message = "of the transfer codings, only `chunked` is known"
    return Refused(
        refusal(501, "http.transfer_coding", message, "Compress with Content-Encoding instead."),
        reason="transfer_coding",
    )


def _unknown_version() -> Refused:
    message = "only HTTP/1.1 and HTTP/1.0 are known"
    return Refused(
        refusal(505, "http.version", message, "Do not force another version in the client."), reason="version"
    )
