"""From the bytes of a request to values, under limits that hold before any parser can blow up.

What is refused here is refused for being no JSON that every later reader understands the same way: other
encodings, NaN, numbers outside of a double's range, lone surrogates, nesting that is too deep. Integers of any
length pass. Values made here are for checking only: what is stored and forwarded are the bytes received.
"""

from __future__ import annotations

import codecs
import re
from itertools import accumulate
from typing import NoReturn

import msgspec

from thence.collect.explain import violation
from thence.core.errors import InvalidEvent

DEPTH_LIMIT = 100

_BRACKETS = bytes.maketrans(b"[]", b"{}")
_STEPS = bytes.maketrans(b"{}", b"\x01\xff")  # as signed bytes: one level in, one level out
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'"{}[]'))
_BOMS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# Python reads integers of at most 4,300 digits; the check needs only that it is one, and its sign.
_STRING_OR_LONG_NUMBER = re.compile(
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|(?<!\d)(?P<start>-?\d{30})\d{970,}+(?P<more>[.eE]?)', re.DOTALL
)
_POSITION = re.compile(r"\(byte (\d+)\)")
_LONE_SURROGATE = re.compile(
    rb"(?<!\\)(?:\\\\)*+(?:\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|\\u[dD][c-fC-F])"
)

_decode = msgspec.json.Decoder().decode
_split = msgspec.json.Decoder(list[msgspec.Raw]).decode


def parse(payload: bytes, depth_limit: int = DEPTH_LIMIT) -> object:
    """The value of a JSON text, or InvalidEvent with the one rule that it breaks."""
    if too_deep(payload, depth_limit):
        _refuse_depth(depth_limit)
    try:
        return _decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _second_look(payload, error, depth_limit)


def split(payload: bytes, depth_limit: int = DEPTH_LIMIT) -> list[bytes]:
    """The elements of a JSON array, each as the bytes that stood there, unparsed."""
    if too_deep(payload, depth_limit + 1):
        _refuse_depth(depth_limit + 1)
    try:
        return [bytes(raw) for raw in _split(payload)]
    except msgspec.ValidationError:
        _refuse("batch", "the body is not an array of events", payload[:40])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _explain(payload, error, depth_limit)


def too_deep(payload: bytes, limit: int) -> bool:
    """Whether objects and arrays are nested deeper than the limit; linear, and never recursive."""
    marks = payload.translate(_BRACKETS, _NOT_STRUCTURE)
    if marks.count(b"{") <= limit:
        return False
    if b"\\" in payload:
        marks = payload.replace(rb"\\", b"").replace(rb"\"", b"").translate(_BRACKETS, _NOT_STRUCTURE)
    return _deepest(_outside_of_strings(marks)) > limit


def _outside_of_strings(marks: bytes) -> bytes:
    # Two quotes side by side change nothing for what stands around them; few are left then.
    marks = marks.replace(b'""', b"")
    return b"".join(marks.split(b'"')[::2])


def _deepest(braces: bytes) -> int:
    return max(accumulate(memoryview(braces.translate(_STEPS)).cast("b")), default=0)


def _second_look(payload: bytes, error: Exception, depth_limit: int) -> object:
    """A text with integers that are too long for Python is parsed with their first digits instead."""
    if "Integer value out of range" not in str(error):
        _explain(payload, error, depth_limit)
    shortened = _STRING_OR_LONG_NUMBER.sub(_shorten, payload)
    try:
        return _decode(shortened)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as second:
        _explain(shortened, second, depth_limit)


def _shorten(found: re.Match[bytes]) -> bytes:
    is_integer = found["start"] and not found["more"]
    return found["start"] if is_integer else found[0]


def _explain(payload: bytes, error: Exception, depth_limit: int) -> NoReturn:
    text = str(error)
    if payload.startswith(_BOMS) or b"\0" in payload[:4]:
        _refuse("json.encoding", "the body must be UTF-8 without a byte order mark", payload[:8])
    if isinstance(error, UnicodeDecodeError):
        _refuse("json.encoding", f"the body is not UTF-8: {error.reason}", payload[:40])
    if isinstance(error, RecursionError):
        _refuse_depth(depth_limit)
    if "out of range" in text:
        _refuse("json.number", "a number is outside of the range of a double", b"")
    if _LONE_SURROGATE.search(payload):
        _refuse("json.surrogate", "a string contains half of a surrogate pair", b"")
    found = _POSITION.search(text)
    at = int(found[1]) if found else len(payload)
    if payload[at : at + 1] in (b"N", b"I") or payload[at - 1 : at + 1] == b"-I":
        _refuse("json.number", "NaN and Infinity are not JSON", _around(payload, at))
    _refuse("json.syntax", text.removeprefix("JSON is malformed: "), _around(payload, at))


def _around(payload: bytes, at: int) -> bytes:
    return payload[max(0, at - 30) : at + 10]


def _refuse_depth(limit: int) -> NoReturn:
    _refuse("json.depth", f"objects and arrays are nested more than {limit} deep", b"")


def _refuse(rule: str, message: str, value: bytes) -> NoReturn:
    shown = value.decode("utf-8", "backslashreplace")
    raise InvalidEvent(
        "event.unreadable",
        f"The event cannot be read: {message}.",
        advice="Correct the producer; docs/reference/validation.md lists what is refused and why.",
        violations=(violation("", rule, message, shown),),
    )
