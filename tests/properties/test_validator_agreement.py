"""The schema and the explanation are two renderings of one specification: they agree on every event."""

from __future__ import annotations

import random
from typing import Any

from tests.published import event_with, mutate
from thence.collect import spec
from thence.collect.explain import explain
from thence.collect.policy import Level, read
from thence.collect.spec import FacetsAt, ListOf, MapOf, Named, Record, Scalar, Shape
from thence.collect.validate import Validator, _kinds

SEED = 4711
TEXTS = {"uuid": "3f5e83fa-3480-44ff-99c5-ff943904e5e8", "uri": "x:y", "date-time": "2026-01-02T03:04:05Z"}
VALUES = {"string": "s", "integer": 5, "number": 1.5, "boolean": True, "object": {}, "any": None}
SPEC = spec.load()


def example(shape: Shape, rng: random.Random, depth: int = 0) -> Any:
    match shape:
        case Scalar():
            return rng.choice(shape.options) if shape.options else TEXTS.get(shape.format, VALUES[shape.type])
        case ListOf(item):
            return [example(item, rng, depth + 1) for _ in range(0 if depth > 6 else rng.randrange(3))]
        case MapOf(value):
            return {
                f"k{i}": example(value, rng, depth + 1) for i in range(0 if depth > 6 else rng.randrange(3))
            }
        case FacetsAt():
            return {}
        case Named(name) if name in SPEC.unions:
            branches = list(SPEC.unions[name].branches.items())
            word, branch = branches[0] if depth > 6 else rng.choice(branches)
            return {"type": word} | filled(SPEC.records[branch], rng, depth)
        case Named(name):
            return filled(SPEC.records[name], rng, depth)


def filled(record: Record, rng: random.Random, depth: int) -> dict[str, Any]:
    optional = depth < 6 and rng.random() < 0.8
    return {
        name: example(shape, rng, depth + 1)
        for name, shape in record.fields.items()
        if name in record.required or optional
    }


def test_the_schema_refuses_exactly_what_the_explanation_finds_fault_with() -> None:
    rng = random.Random(SEED)
    facets = [
        (place, key, facet.name) for place, home in SPEC.places.items() for key, facet in home.facets.items()
    ]
    validators = {level: Validator(level) for level in Level}
    policies = {level: read(level, {}) for level in Level}
    faulty = 0
    for place, key, name in facets * 60:
        event, _ = event_with(place, key, filled(SPEC.records[name], rng, 0), rng)
        for _ in range(rng.randrange(4)):
            event = mutate(event, rng)
        for kind in _kinds(event) if isinstance(event, dict) else ():
            for level, validator in validators.items():
                words = list(explain(SPEC, policies[level], f"{kind.capitalize()}Event", event))
                assert validator._accepts[kind](event) is not bool(words), (SEED, level, event, words)
                faulty += bool(words)
    assert faulty > 1000


def test_an_unbroken_example_of_every_facet_is_valid() -> None:
    rng = random.Random(SEED)
    validator = Validator(Level.STRICT)
    for place, home in SPEC.places.items():
        for key, facet in home.facets.items():
            event, _ = event_with(place, key, filled(SPEC.records[facet.name], rng, 0), rng)
            assert validator.check_value(event).valid, event
