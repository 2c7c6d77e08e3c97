"""Changes single places of an event and leaves all other bytes as they are, numbers of any size among them.

A document is opened only along the way to the place: what lies beside stays raw bytes. Of keys that stand twice in an
object on that way, the last is kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Literal

import msgspec
from msgspec import Raw

from thence.core.errors import ConfigError
from thence.core.event import Event

_object = msgspec.json.Decoder(dict[str, Raw]).decode
_array = msgspec.json.Decoder(list[Raw]).decode
_name = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode
_OBJECT, _ARRAY = b"{", b"["
_FIRST = re.compile(rb"[ \t\r\n]*+([^ \t\r\n])")
_FACETS = ("facets", "inputFacets", "outputFacets")
_DEPTH = 200


class RenameNamespace(msgspec.Struct, frozen=True, tag="rename_namespace"):
    """Replace the beginning of namespaces, wherever a namespace and a name stand side by side.

    These are jobs, datasets, parents, symlinks and the inputs of columns, so links between them stay whole.
    """

    prefix: str
    becomes: str


class RedactFacet(msgspec.Struct, frozen=True, tag="redact_facet"):
    """Take facets away by their key, everywhere or at one kind of place. `key` may be a glob."""

    key: str
    at: Literal["any", "run", "job", "input", "output", "dataset"] = "any"


class RedactField(msgspec.Struct, frozen=True, tag="redact_field"):
    """Take a value away by its JSON pointer, or put a text in its place. A part that is `*` means all."""

    pointer: str
    becomes: str | None = None

    def __post_init__(self) -> None:
        if not self.pointer.startswith("/"):
            raise ConfigError(
                "forward.rule",
                f"{self.pointer!r} is no JSON pointer",
                advice="Begin it with a slash: /run/facets/environmentVariables.",
            )


Change = RenameNamespace | RedactFacet | RedactField
_PLACES = {
    "run": ("run",),
    "job": ("job",),
    "dataset": ("dataset",),
    "input": ("inputs", "*"),
    "output": ("outputs", "*"),
}


def applied(changes: tuple[Change, ...], event: Event) -> Event:
    """The event after all changes, the same object when there were none.

    Raises msgspec's errors for what is no JSON object.
    """
    document = msgspec.Raw(event.payload)
    if _opens(document) != _OBJECT:
        raise msgspec.DecodeError("no JSON object")
    for change in changes:
        document = _apply(change, document)
    payload = bytes(document)
    return event if payload == event.payload else msgspec.structs.replace(event, payload=payload)


def _apply(change: Change, document: Raw) -> Raw:
    match change:
        case RenameNamespace():
            return _renamed(document, change)
        case RedactField():
            parts = [part.replace("~1", "/").replace("~0", "~") for part in change.pointer[1:].split("/")]
            return _at(document, parts, lambda found: _redacted(change.becomes))
        case RedactFacet():
            places = _PLACES.values() if change.at == "any" else [_PLACES[change.at]]
            for place in places:
                for facets in _FACETS:
                    document = _at(document, [*place, facets], lambda found: _without(found, change.key))
            return document


def _redacted(becomes: str | None) -> Raw | None:
    return None if becomes is None else Raw(_encode(becomes))


def _without(facets: Raw, pattern: str) -> Raw:
    if _opens(facets) != _OBJECT:
        return facets
    found = _object(facets)
    kept = {key: value for key, value in found.items() if not fnmatchcase(key, pattern)}
    return facets if len(kept) == len(found) else Raw(_encode(kept))


def _at(value: Raw, path: list[str], edit: Callable[[Raw], Raw | None]) -> Raw:
    """The value with what stands at a path edited; None from `edit` takes it away."""
    opens = _opens(value)
    if opens == _OBJECT:
        return _in_object(value, path, edit)
    if opens == _ARRAY:
        return _in_array(value, path, edit)
    return value


def _in_object(value: Raw, path: list[str], edit: Callable[[Raw], Raw | None]) -> Raw:
    found = _object(value)
    names = list(found) if path[0] == "*" else [path[0]] if path[0] in found else []
    is_changed = False
    for name in names:
        before = found[name]
        after = edit(before) if len(path) == 1 else _at(before, path[1:], edit)
        is_changed = is_changed or after is not before
        if after is None:
            del found[name]
        else:
            found[name] = after
    return Raw(_encode(found)) if is_changed else value


def _in_array(value: Raw, path: list[str], edit: Callable[[Raw], Raw | None]) -> Raw:
    found = _array(value)
    wanted = range(len(found)) if path[0] == "*" else _index(path[0], len(found))
    after = [
        (edit(each) if len(path) == 1 else _at(each, path[1:], edit)) if index in wanted else each
        for index, each in enumerate(found)
    ]
    if all(new is old for new, old in zip(after, found, strict=True)):
        return value
    return Raw(_encode([each for each in after if each is not None]))


def _index(part: str, count: int) -> range:
    if part.isascii() and part.isdecimal() and int(part) < count:
        return range(int(part), int(part) + 1)
    return range(0)


def _renamed(value: Raw, change: RenameNamespace, depth: int = 0) -> Raw:
    opens = _opens(value)
    # An escaped key could hide from the search for plain bytes.
    if opens not in (_OBJECT, _ARRAY) or (b'"namespace"' not in bytes(value) and b"\\" not in bytes(value)):
        return value
    if depth > _DEPTH:
        raise RecursionError
    if opens == _ARRAY:
        found = _array(value)
        items = [_renamed(each, change, depth + 1) for each in found]
        changed = any(new is not old for new, old in zip(items, found, strict=True))
        return Raw(_encode(items)) if changed else value
    return _renamed_in(value, change, depth)


def _renamed_in(value: Raw, change: RenameNamespace, depth: int) -> Raw:
    found = _object(value)
    after = {key: _renamed(each, change, depth + 1) for key, each in found.items()}
    if "name" in found and "namespace" in found and _opens(found["namespace"]) == b'"':
        namespace = _name(found["namespace"])
        if namespace.startswith(change.prefix):
            after["namespace"] = Raw(_encode(change.becomes + namespace[len(change.prefix) :]))
    changed = any(after[key] is not each for key, each in found.items())
    return Raw(_encode(after)) if changed else value


def _opens(value: Raw) -> bytes:
    found = _FIRST.match(value)
    return found[1] if found is not None else b""
