"""A JSON Schema (2020-12) of the specification under a policy, for the fast verdict.

The schema answers only yes or no; `explain` finds the words. So it is written for speed: one object for each
record instead of `allOf`, and a union asks for `type` once instead of trying every branch.
"""

from __future__ import annotations

from typing import Any

from thence.collect.policy import Level, Policy
from thence.collect.spec import FacetsAt, ListOf, MapOf, Named, Record, Scalar, Shape, Spec, Union

Schema = dict[str, Any]


def compose(spec: Spec, policy: Policy, event: str) -> Schema:
    """The schema of one kind of event, such as `RunEvent`."""
    composer = _Composer(spec, policy)
    root = composer.record(spec.records[event], formats=policy.formats)
    return {**root, "$defs": composer.defs}


def published(spec: Spec, policy: Policy, home: str) -> dict[str, Schema]:
    """What is taken, as definitions for readers: `Event`, and all that it refers to below `home`.

    The kind of an event is told as the validator tells it: with `run` and `job` it is a RunEvent whatever else it has,
    and with `job` and `dataset` exactly one of the two others must fit.
    """
    composer = _Composer(spec, policy, home)
    for kind in ("RunEvent", "DatasetEvent", "JobEvent"):
        event = composer.record(spec.records[kind], formats=policy.formats)
        if policy.level is Level.LENIENT:
            event["required"] = [name for name in event["required"] if name not in ("producer", "schemaURL")]
        composer.defs[kind] = event
    run, dataset, job = ({"$ref": home + kind} for kind in ("RunEvent", "DatasetEvent", "JobEvent"))
    no_run = {"not": {"required": ["run"]}}
    no_run_of_job = {"not": {"required": ["run", "job"]}}
    return {
        "Event": {"oneOf": [run, {"allOf": [dataset, no_run_of_job]}, {"allOf": [job, no_run]}]},
        **composer.defs,
    }


class _Composer:
    """Collects the definitions that the event refers to, once with and once without formats where both are used."""

    def __init__(self, spec: Spec, policy: Policy, home: str = "#/$defs/") -> None:
        self.spec = spec
        self.policy = policy
        self.home = home
        self.defs: dict[str, Schema] = {}

    def shape(self, shape: Shape, *, formats: bool) -> Schema:
        match shape:
            case Scalar():
                return _scalar(shape, formats=formats)
            case ListOf(item):
                return {"type": "array", "items": self.shape(item, formats=formats)}
            case MapOf(value):
                return {"type": "object", "additionalProperties": self.shape(value, formats=formats)}
            case FacetsAt(place):
                return self.facets(place)
            case Named(name):
                return self.named(name, formats=formats)

    def named(self, name: str, *, formats: bool) -> Schema:
        key = f"{name}.strict" if formats else name
        if key not in self.defs:
            self.defs[key] = {}  # a record may contain itself
            if union := self.spec.unions.get(name):
                self.defs[key] = self.union(union, formats=formats)
            else:
                self.defs[key] = self.record(self.spec.records[name], formats=formats)
        return {"$ref": self.home + key}

    def record(self, record: Record, *, formats: bool) -> Schema:
        shapes = {name: self.shape(shape, formats=formats) for name, shape in record.fields.items()}
        schema: Schema = {"type": "object", "properties": {n: s for n, s in shapes.items() if s}}
        if record.required:
            schema["required"] = list(record.required)
        if record.closed:
            schema |= {"properties": shapes, "additionalProperties": False}
        if record.together:
            schema["dependentRequired"] = {
                name: [other for other in record.together if other != name] for name in record.together
            }
        return schema

    def union(self, union: Union, *, formats: bool) -> Schema:
        return {
            "type": "object",
            "required": ["type"],
            "properties": {"type": {"enum": list(union.branches)}},
            "allOf": [
                {
                    "if": {"properties": {"type": {"const": word}}},
                    "then": self.named(name, formats=formats),
                }
                for word, name in union.branches.items()
            ],
        }

    def facets(self, place: str) -> Schema:
        key = f"facets.{place}"
        if key not in self.defs:
            known = [*self.spec.places[place].facets, *self.policy.keys(place)]
            base = self.named(self.spec.places[place].base, formats=self.policy.formats)
            self.defs[key] = {
                "type": "object",
                "properties": {name: self.facet(place, name) for name in known},
                "additionalProperties": base,
            }
        return {"$ref": self.home + key}

    def facet(self, place: str, key: str) -> Schema:
        if self.policy.is_off(place, key):
            return {}
        home = self.spec.places[place]
        name = home.facets[key].name if key in home.facets else home.base
        return self.named(name, formats=self.policy.formats_of(place, key))


def _scalar(scalar: Scalar, *, formats: bool) -> Schema:
    schema: Schema = {} if scalar.type == "any" else {"type": scalar.type}
    if scalar.asserts(formats):
        schema["format"] = scalar.format
    if scalar.options:
        schema["enum"] = list(scalar.options)
    if scalar.least is not None:
        schema["minimum"] = scalar.least
    return schema
