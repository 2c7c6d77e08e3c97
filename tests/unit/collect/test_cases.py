"""Real events of other producers, with the verdicts that the index of the shared cases gives."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.published import shared_folder
from thence.collect.policy import Level
from thence.collect.validate import Validator

MISSING = {'$: "schemaURL" is a required property', '$: "producer" is a required property'}


@pytest.fixture(scope="module")
def folder() -> Path:
    return shared_folder()


@pytest.fixture(scope="module")
def index(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "index.json").read_bytes())
    return found


def expected(case: dict[str, Any], payload: bytes, level: Level) -> bool:
    category: str = case["category"]
    if category != "invalid-by-spec":
        return category == "valid" or level is not Level.STRICT
    return level is Level.LENIENT and set(case["reason"].split("; ")) <= MISSING and has_uuid(payload)


def has_uuid(payload: bytes) -> bool:
    run: dict[str, str] = json.loads(payload).get("run", {"runId": str(uuid.UUID(int=0))})
    try:
        return str(uuid.UUID(run["runId"])) == run["runId"].lower()
    except ValueError:
        return False


@pytest.mark.parametrize("level", Level)
def test_every_shared_event_has_its_verdict(folder: Path, index: list[dict[str, Any]], level: Level) -> None:
    validator = Validator(level)
    verdicts: Counter[tuple[str, bool]] = Counter()
    for case in index:
        payload = (folder / case["file"]).read_bytes()
        verdict = validator.check(payload)
        assert verdict.valid is expected(case, payload, level), (case["file"], verdict)
        assert f"{verdict.kind.capitalize()}Event" == case["verdict"]["kind"]
        verdicts[case["category"], verdict.valid] += 1

    assert {category for category, _ in verdicts} == {"valid", "format-only", "invalid-by-spec"}
    assert verdicts.total() == len(index) > 60


@pytest.mark.parametrize("level", [Level.SPEC, Level.LENIENT])
def test_what_was_tolerated_is_counted(folder: Path, index: list[dict[str, Any]], level: Level) -> None:
    validator = Validator(level)
    rules = Counter(
        warning.rule
        for case in index
        for verdict in [validator.check((folder / case["file"]).read_bytes())]
        for warning in verdict.warnings
        if verdict.valid
    )
    assert rules["time_zone"] == 2
    assert (rules["required"] > 5) is (level is Level.LENIENT)


def test_the_first_fault_of_an_invalid_event_is_at_a_place_that_the_index_names(
    folder: Path, index: list[dict[str, Any]]
) -> None:
    validator = Validator(Level.SPEC)
    for case in index:
        if case["category"] != "invalid-by-spec":
            continue
        fault = validator.check((folder / case["file"]).read_bytes()).violations[0]
        where, _, what = case["reason"].split("; ")[0].partition(": ")
        place = "" if where == "$" else where
        if "is a required property" in what:
            place = "/".join(filter(None, [place, what.split('"')[1]]))
        assert fault.path == place, (case["file"], fault)
