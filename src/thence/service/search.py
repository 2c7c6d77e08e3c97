"""Finds events by what stands in them: a regular expression over the bytes, or values at JSON pointers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

from thence.core.errors import ConfigError

_decode = msgspec.json.Decoder().decode


def matcher(pattern: str | None, pointers: Sequence[str], *, ignore_case: bool) -> Callable[[bytes], bool]:
    """Whether a payload fits the expression, if there is one, and every `POINTER=VALUE`."""
    fits = _expression(pattern, ignore_case=ignore_case) if pattern is not None else None
    wanted = [_pointer(each) for each in pointers]

    def matches(payload: bytes) -> bool:
        if fits is not None and fits.search(payload) is None:
            return False
        return not wanted or _has_all(payload, wanted)

    return matches


def _expression(pattern: str, *, ignore_case: bool) -> re.Pattern[bytes]:
    try:
        return re.compile(pattern.encode(), re.IGNORECASE if ignore_case else 0)
    except re.error as error:
        raise ConfigError(
            "cli.pattern", f"{pattern!r} is no regular expression: {error}", advice="Escape it with \\."
        ) from None


def _pointer(text: str) -> tuple[list[str], str]:
    pointer, equals, value = text.partition("=")
    if not equals or not pointer.startswith("/"):
        raise ConfigError("cli.pointer", f"{text!r} is no POINTER=VALUE", advice="Write --at /job/name=load.")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")], value


def _has_all(payload: bytes, wanted: Sequence[tuple[list[str], str]]) -> bool:
    try:
        content = _decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return all(_has(content, path, value) for path, value in wanted)


def _has(content: object, path: Sequence[str], value: str) -> bool:
    for part in path:
        if isinstance(content, dict) and part in content:
            content = content[part]
        elif isinstance(content, list) and part.isdigit() and int(part) < len(content):
            content = content[int(part)]
        else:
            return False
    return content == value if isinstance(content, str) else msgspec.json.encode(content) == value.encode()
