"""The verdict of the validator equals that of the published schemas, on mutated facets and mutated events."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator

import jsonschema_rs
import pytest

from tests.published import ODDITIES, Json, Published, event_with, mutate, shared_folder, spots_of
from thence.collect import spec
from thence.collect.policy import Level
from thence.collect.validate import Validator

SEED = 20261119
FACETS = 10_000
EVENTS = 3_000


@pytest.fixture(scope="module")
def published() -> Published:
    return Published(shared_folder())


@pytest.fixture(scope="module")
def validators() -> dict[Level, Validator]:
    return {level: Validator(level) for level in Level}


def is_format(form: str, value: Json) -> bool:
    return jsonschema_rs.is_valid({"type": "string", "format": form}, value, validate_formats=True)


def expected(published: Published, event: Json, level: Level) -> bool:
    """The verdict by the published schemas and the three levels as they are documented."""
    if level is Level.STRICT:
        return published.with_formats.is_valid(event)
    if level is Level.LENIENT and isinstance(event, dict):
        event = {"producer": "x", "schemaURL": "x"} | event
    if not published.without_formats.is_valid(event):
        return False
    time = event["eventTime"]
    if not (is_format("date-time", time) or is_format("date-time", time + "Z")):
        return False
    is_run = "run" in event and "job" in event
    return not is_run or is_format("uuid", event["run"]["runId"])


def test_every_published_facet_is_known_at_its_place_and_version(published: Published) -> None:
    known = {
        (place, key, facet.name, facet.version)
        for place, home in spec.load().places.items()
        for key, facet in home.facets.items()
    }
    registry = {key for place, key, *_ in known if key.startswith(("gcp_", "iceberg"))}

    assert len(published.files) == 38
    assert {facet[:4] for facet in published.facets} == {row for row in known if row[1] not in registry}


def test_the_verdict_on_mutated_facets_is_that_of_the_published_schemas(
    published: Published, validators: dict[Level, Validator]
) -> None:
    rng = random.Random(SEED)
    seen: Counter[tuple[str, str, bool]] = Counter()
    for number in range(FACETS):
        facet = published.facets[number % len(published.facets)]
        value = published.example(facet, rng)
        for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
            value = mutate(value, rng)
        event, path = event_with(facet.place, facet.key, value, rng)
        for level, validator in validators.items():
            verdict = validator.check_value(event)
            assert verdict.valid is expected(published, event, level), (SEED, number, level, event, verdict)
            assert all(found.path.startswith(path) for found in verdict.violations), (path, verdict)
        seen[facet.place, facet.key, validators[Level.STRICT].check_value(event).valid] += 1

    pairs = {(facet.place, facet.key) for facet in published.facets}
    assert {(place, key) for place, key, valid in seen if valid} == pairs
    assert {(place, key) for place, key, valid in seen if not valid} == pairs


def test_every_field_of_every_facet_left_out_and_replaced_by_every_oddity(
    published: Published, validators: dict[Level, Validator]
) -> None:
    rng = random.Random(SEED + 3)
    unions = [facet for facet in published.facets if facet.key in ("lineage", "subset")]
    for facet in published.facets * 2 + unions * 3:
        value = published.example(facet, rng, density=1.0)
        event, _ = event_with(facet.place, facet.key, value, rng)
        for holder, key in list(spots_of(value)):
            for _ in with_each_fault(holder, key):
                for level in (Level.STRICT, Level.SPEC):
                    verdict = validators[level].check_value(event)
                    assert verdict.valid is expected(published, event, level), (SEED, level, event, verdict)


def with_each_fault(holder: Json, key: str | int) -> Iterator[None]:
    original = holder.pop(key) if isinstance(holder, dict) else holder[key]
    yield
    for oddity in ODDITIES:
        holder[key] = oddity
        yield
    holder[key] = original


def test_facets_that_are_valid_by_the_published_schemas_are_valid_at_every_level(
    published: Published, validators: dict[Level, Validator]
) -> None:
    rng = random.Random(SEED + 1)
    for facet in published.facets * 20:
        event, _ = event_with(facet.place, facet.key, published.example(facet, rng), rng)
        assert published.with_formats.is_valid(event), (SEED, event)
        for level, validator in validators.items():
            assert validator.check_value(event).valid, (SEED, level, event)


def test_the_verdict_on_mutated_events_is_that_of_the_published_schemas(
    published: Published, validators: dict[Level, Validator]
) -> None:
    rng = random.Random(SEED + 2)
    kinds: Counter[str] = Counter()
    for number in range(EVENTS):
        facet = rng.choice(published.facets)
        event, _ = event_with(facet.place, facet.key, published.example(facet, rng), rng)
        if rng.random() < 0.2:
            event["dataset"] = {"namespace": "n", "name": "d"}
        for _ in range(rng.choice([0, 1, 1, 2, 3])):
            event = mutate(event, rng)
        for level, validator in validators.items():
            verdict = validator.check_value(event)
            assert verdict.valid is expected(published, event, level), (SEED, number, level, event, verdict)
        kinds[verdict.kind] += 1

    assert min(kinds[kind] for kind in ("run", "job", "dataset", "")) > EVENTS // 100


def test_every_shared_fragment_is_valid_at_its_place(
    published: Published, validators: dict[Level, Validator]
) -> None:
    paths = sorted((shared_folder() / "facets").glob("*.json"))
    assert len(paths) > 30
    for path in paths:
        stem = path.stem.split("_")[0]
        ((key, value),) = json.loads(path.read_bytes()).items()
        places = [facet.place for facet in published.facets if f"/{stem}.json#" in facet.ref]
        events = [event_with(place, key, value, random.Random(SEED))[0] for place in places]
        verdicts = [validators[Level.SPEC].check_value(event).valid for event in events]
        assert verdicts == [published.without_formats.is_valid(event) for event in events], path
        assert any(verdicts), path
