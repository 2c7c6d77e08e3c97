"""What is wrong with an event that the schema refused: path, rule, value and a sentence for each fault.

This walks the same shapes that the schema is made of, so that every fault is named where it stands and a union
is explained by the branch that was meant. Faults come one at a time, so a caller that wants twenty pays for
twenty, however broken the event is.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import jsonschema_rs
import msgspec

from thence.collect.policy import Policy
from thence.collect.spec import FacetsAt, ListOf, MapOf, Named, Record, Scalar, Shape, Spec, Union
from thence.core.errors import Violation

VALUE_CHARACTERS = 80
_NAMES = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
_WANTED = {
    "object": "an object",
    "string": "a string",
    "boolean": "a boolean",
    "integer": "an integer",
    "number": "a number",
}


def explain(spec: Spec, policy: Policy, event: str, value: object) -> Iterator[Violation]:
    """The faults of an event of this kind, in the order of the specification's fields."""
    return _Walk(spec, policy, policy.formats).record(spec.records[event], value, "")


def has_format(text: str, form: str) -> bool:
    """Whether a string is a `uuid`, a `uri` or a `date-time`, by the same code as the fast verdict."""
    return _format(form).is_valid(text)


def violation(path: str, rule: str, message: str, value: object = "") -> Violation:
    """A violation with its value cut to a length for people."""
    return Violation(path=path, rule=rule, value=shown(value), message=message)


def shown(value: object) -> str:
    """A value in few characters; of objects and arrays only the size."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, dict):
        text = f"{{{len(value)} fields}}"
    elif isinstance(value, list):
        text = f"[{len(value)} items]"
    else:
        text = msgspec.json.encode(value).decode()
    return text if len(text) <= VALUE_CHARACTERS else text[: VALUE_CHARACTERS - 1] + "…"


def step(path: str, key: str | int) -> str:
    """The path one step deeper, with `~` and `/` in keys escaped as in a JSON pointer."""
    part = key.replace("~", "~0").replace("/", "~1") if isinstance(key, str) else str(key)
    return f"{path}/{part}" if path else part


@cache
def _format(form: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator({"format": form}, validate_formats=True)


class _Walk:
    """One descent; inside a facet `formats` and `origin` are those of the facet."""

    def __init__(self, spec: Spec, policy: Policy, formats: bool, origin: str = "") -> None:
        self.spec = spec
        self.policy = policy
        self.formats = formats
        self.origin = origin

    def shape(self, shape: Shape, value: object, path: str) -> Iterator[Violation]:
        match shape:
            case Scalar():
                yield from self.scalar(shape, value, path)
            case ListOf(item):
                yield from self.items(item, value, path)
            case MapOf(inner):
                yield from self.entries(inner, value, path)
            case FacetsAt(place):
                yield from self.facets(place, value, path)
            case Named(name) if name in self.spec.unions:
                yield from self.union(self.spec.unions[name], value, path)
            case Named(name):
                yield from self.record(self.spec.records[name], value, path)

    def fault(self, path: str, rule: str, message: str, value: object = "") -> Violation:
        return violation(path, rule, message + self.origin, value)

    def not_a(self, wanted: str, value: object, path: str) -> Violation:
        found = _NAMES.get(type(value), "a number")
        return self.fault(path, "type", f"is {found}, must be {wanted}", value)

    def scalar(self, scalar: Scalar, value: object, path: str) -> Iterator[Violation]:
        if not _has_type(value, scalar.type):
            yield self.not_a(_WANTED[scalar.type], value, path)
        elif scalar.options and value not in scalar.options:
            yield self.fault(path, "enum", f"is none of {', '.join(scalar.options)}", value)
        elif scalar.least is not None and value < scalar.least:  # type: ignore[operator]
            yield self.fault(path, "minimum", f"is less than {scalar.least}", value)
        elif scalar.asserts(self.formats) and not has_format(str(value), scalar.format):
            yield self.fault(path, f"format.{scalar.format}", f"is not a {scalar.format}", value)

    def items(self, item: Shape, value: object, path: str) -> Iterator[Violation]:
        if not isinstance(value, list):
            yield self.not_a("an array", value, path)
            return
        for index, element in enumerate(value):
            yield from self.shape(item, element, step(path, index))

    def entries(self, inner: Shape, value: object, path: str) -> Iterator[Violation]:
        if not isinstance(value, dict):
            yield self.not_a("an object", value, path)
            return
        for key, element in value.items():
            yield from self.shape(inner, element, step(path, key))

    def record(self, record: Record, value: object, path: str) -> Iterator[Violation]:
        if not isinstance(value, dict):
            yield self.not_a("an object", value, path)
            return
        for name in record.required:
            if name not in value:
                yield self.fault(step(path, name), "required", "is missing")
        for name, shape in record.fields.items():
            if name in value:
                yield from self.shape(shape, value[name], step(path, name))
        if record.closed:
            yield from self.strangers(record, value, path)
        if record.together:
            yield from self.companions(record, value, path)

    def strangers(self, record: Record, value: dict[str, object], path: str) -> Iterator[Violation]:
        for name in value.keys() - record.fields.keys():
            yield self.fault(step(path, name), "unknown_field", "is not a field of this object", value[name])

    def companions(self, record: Record, value: dict[str, object], path: str) -> Iterator[Violation]:
        present = [name for name in record.together if name in value]
        for name in record.together:
            if present and name not in value:
                yield self.fault(step(path, name), "together", f"is missing beside {present[0]}")

    def union(self, union: Union, value: object, path: str) -> Iterator[Violation]:
        if not isinstance(value, dict):
            yield self.not_a("an object", value, path)
        elif "type" not in value:
            yield self.fault(step(path, "type"), "required", "is missing")
        elif not isinstance(value["type"], str) or value["type"] not in union.branches:
            message = f"is none of {', '.join(union.branches)}"
            yield self.fault(step(path, "type"), "enum", message, value["type"])
        else:
            yield from self.record(self.spec.records[union.branches[value["type"]]], value, path)

    def facets(self, place: str, value: object, path: str) -> Iterator[Violation]:
        if not isinstance(value, dict):
            yield self.not_a("an object", value, path)
            return
        home = self.spec.places[place]
        for key, facet in value.items():
            if self.policy.is_off(place, key):
                continue
            known = home.facets.get(key)
            origin = f" ({known.name} {known.version})" if known else ""
            inside = _Walk(self.spec, self.policy, self.policy.formats_of(place, key), origin)
            record = self.spec.records[known.name if known else home.base]
            yield from inside.record(record, facet, step(path, key))


def _has_type(value: object, wanted: str) -> bool:
    match wanted:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "object":
            return isinstance(value, dict)
        case "integer":
            # 1.0 is an integer in JSON Schema.
            return not isinstance(value, bool) and (
                isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            )
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
    return True
