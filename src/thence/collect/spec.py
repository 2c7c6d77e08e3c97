"""The OpenLineage specification as data of our own.

The tables in `openlineage/*.toml` say what an event consists of; here they become shapes. Two things are made of a
shape: a JSON Schema for the fast verdict (`schema`), and the list of what is wrong (`explain`). Nothing is fetched
and no schema file of the specification is part of the product. A mistake in the tables stops the start.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from thence.core.errors import InvariantBroken

FORMATS = ("uuid", "uri", "date-time")
_TYPES = ("string", "integer", "number", "boolean", "object", "any")
_ENUM = re.compile(r"[A-Z_]+(\|[A-Z_]+)+")
_FACETS = re.compile(r"facets\((\w+)\)")


class Scalar(msgspec.Struct, frozen=True):
    """A single value, or an object whose content is free."""

    type: str
    format: str = ""
    always: bool = False
    options: tuple[str, ...] = ()
    least: int | None = None

    def asserts(self, formats: bool) -> bool:
        """Whether the format is checked where formats are checked or not."""
        return bool(self.format) and (formats or self.always)


class ListOf(msgspec.Struct, frozen=True):
    """An array."""

    item: Shape


class MapOf(msgspec.Struct, frozen=True):
    """An object with any keys and values of one shape."""

    value: Shape


class Named(msgspec.Struct, frozen=True):
    """A record or a union of the specification, by name; names make recursion possible."""

    name: str


class FacetsAt(msgspec.Struct, frozen=True):
    """The facets of one place: `run`, `job`, `dataset`, `input` or `output`."""

    place: str


Shape = Scalar | ListOf | MapOf | Named | FacetsAt


class Record(msgspec.Struct, frozen=True):
    """An object with named fields; others are allowed unless it is closed."""

    fields: Mapping[str, Shape]
    required: tuple[str, ...] = ()
    closed: bool = False
    together: tuple[str, ...] = ()


class Union(msgspec.Struct, frozen=True):
    """Objects told apart by their field `type`."""

    branches: Mapping[str, str]


class Facet(msgspec.Struct, frozen=True):
    """A standard facet: the record of its fields, and the newest published version."""

    name: str
    version: str


class Place(msgspec.Struct, frozen=True):
    """Where facets stand: what every one of them carries, and the standard ones by key."""

    base: str
    facets: Mapping[str, Facet]


class Spec(msgspec.Struct, frozen=True):
    """Everything that is known of the specification."""

    places: Mapping[str, Place]
    records: Mapping[str, Record]
    unions: Mapping[str, Union]


@cache
def load() -> Spec:
    """Read the tables that are shipped with this package."""
    folder = resources.files("thence.collect") / "openlineage"
    names = ("core.toml", "facets.toml", "registry.toml")
    return assemble(*(tomllib.loads((folder / name).read_text("utf-8")) for name in names))


def assemble(core: dict[str, Any], *facets: dict[str, Any]) -> Spec:
    """Put the tables together and check that every name in them leads somewhere."""
    tables = {name: table for part in facets for name, table in part.get("types", {}).items()}
    together = {name: tuple(fields) for part in facets for name, fields in part.get("together", {}).items()}
    closed = {name for part in facets for name in part.get("closed", {}).get("objects", ())}
    unions = {name: Union(branches) for part in facets for name, branches in part.get("unions", {}).items()}
    places = _places(facets)
    own = {
        name: _record(table, closed=name in closed, together=together.get(name, ()))
        for name, table in (core | tables).items()
    }
    spec = Spec(places=places, records=own | _facet_records(places, own) | _events(own), unions=unions)
    _check_names(spec)
    return spec


def _places(parts: tuple[dict[str, Any], ...]) -> dict[str, Place]:
    places: dict[str, Place] = {}
    for part in parts:
        for place, keys in part["places"].items():
            facets = {key: Facet(*text.split()) for key, text in keys.items() if key != "base"}
            known = places.get(place) or Place(base=keys["base"], facets={})
            places[place] = Place(base=known.base, facets={**known.facets, **facets})
    return places


def _facet_records(places: Mapping[str, Place], own: Mapping[str, Record]) -> dict[str, Record]:
    return {
        facet.name: _joined(own[place.base], own[facet.name])
        for place in places.values()
        for facet in place.facets.values()
    }


def _events(own: Mapping[str, Record]) -> dict[str, Record]:
    kinds = ("RunEvent", "DatasetEvent", "JobEvent")
    return {kind: _joined(own["Event"], own[kind]) for kind in kinds}


def _joined(base: Record, own: Record) -> Record:
    return Record(
        fields={**base.fields, **own.fields},
        required=base.required + own.required,
        closed=own.closed,
        together=own.together,
    )


def _record(table: Mapping[str, str], *, closed: bool, together: tuple[str, ...]) -> Record:
    return Record(
        fields={name: parse(text.removesuffix("!")) for name, text in table.items()},
        required=tuple(name for name, text in table.items() if text.endswith("!")),
        closed=closed,
        together=together,
    )


def parse(text: str) -> Shape:
    """A shape from its notation, which core.toml explains."""
    if text[0] + text[-1] == "[]":
        return ListOf(parse(text[1:-1]))
    if text[0] + text[-1] == "{}":
        return MapOf(parse(text[1:-1]))
    if place := _FACETS.fullmatch(text):
        return FacetsAt(place[1])
    return _scalar(text) or Named(text)


def _scalar(text: str) -> Scalar | None:
    kind, _, least = text.partition(">=")
    form = text.removeprefix("always ")
    if form in FORMATS:
        return Scalar("string", format=form, always=form != text)
    if _ENUM.fullmatch(text):
        return Scalar("string", options=tuple(text.split("|")))
    if kind in _TYPES:
        return Scalar(kind, least=int(least) if least else None)
    return None


def _check_names(spec: Spec) -> None:
    shapes = [shape for record in spec.records.values() for shape in record.fields.values()]
    wanted = {name for shape in shapes for name in _names(shape)}
    wanted |= {name for union in spec.unions.values() for name in union.branches.values()}
    unknown = wanted - spec.records.keys() - spec.unions.keys() - {f"facets({p})" for p in spec.places}
    if unknown:
        raise InvariantBroken(
            "collect.spec_incomplete",
            f"The tables of the OpenLineage specification name what they do not define: {sorted(unknown)}.",
            advice="Install thence anew; if that does not help, report a bug.",
        )


def _names(shape: Shape) -> Iterator[str]:
    match shape:
        case ListOf(item=inner) | MapOf(value=inner):
            yield from _names(inner)
        case Named(name):
            yield name
        case FacetsAt(place):
            yield f"facets({place})"
