from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.published import shared_folder
from thence.core.errors import ConfigError
from thence.core.event import Event
from thence.forward import presets
from thence.forward.http import HttpTarget
from thence.forward.rewrite import RedactFacet, RedactField, RenameNamespace
from thence.forward.rules import Drop, Facts, Filtered, Parked, Rules, Takes, read
from thence.testing.contracts.samples import event

RUN = b"""{ "eventType": "START", "run": {"runId": "r", "facets": {"env": {"x": 1.10, "big": 184467440737095516160},
  "parent": {"job": {"namespace": "dev/up", "name": "p"}}}}, "job": {"namespace": "dev/a", "name": "nightly.load"},
 "inputs": [{"namespace": "dev/b", "name": "x", "facets": {"columnLineage": {"fields": {"c": {"inputFields":
 [{"namespace": "dev/c", "name": "q", "field": "f"}]}}}}, "inputFacets": {"secretive": {}, "kept": {}}}],
 "outputs": [{"namespace": "prod/b", "name": "y", "outputFacets": {"secretive": {"namespace": "dev/x"}}}]}"""
JOB = b'{"job": {"namespace": "n", "name": "j"}}'
DATASET = b'{"dataset": {"namespace": "n", "name": "d"}}'


def made(payload: bytes) -> Event:
    return msgspec.structs.replace(event(1), payload=payload)


def applied(payload: bytes, *change: Any) -> dict[str, Any]:
    result = Rules(change=change).apply(made(payload))
    assert isinstance(result, Event)
    parsed: dict[str, Any] = json.loads(result.payload)
    return parsed


@pytest.mark.parametrize(
    ("rule", "drops"),
    [
        (Drop("job.name", "nightly.load"), True),
        (Drop("job.name", "nightly"), False),
        (Drop("job.name", "nightly.*", "glob"), True),
        (Drop("job.name", "*.loa", "glob"), False),
        (Drop("job.name", r"^nightly\.", "regex"), True),
        (Drop("job.name", "load$", "regex"), True),
        (Drop("job.namespace", "dev/*", "glob"), True),
        (Drop("job.namespace", "prod/*", "glob"), False),
        (Drop("dataset.name", "*", "glob"), False),
        (Drop("kind", "RunEvent"), True),
        (Drop("kind", "JobEvent"), False),
        (Drop("event_type", "START"), True),
        (Drop("event_type", "COMPLETE"), False),
    ],
)
def test_events_are_dropped_by_their_names(rule: Drop, drops: bool) -> None:
    result = Rules(drop=(rule,)).apply(made(RUN))
    assert isinstance(result, Filtered) is drops
    assert drops or result == made(RUN)


def test_a_pattern_that_is_none_is_refused_when_it_is_written() -> None:
    with pytest.raises(ConfigError, match=r"\(unclosed"):
        Drop("job.name", "(unclosed", "regex")
    with pytest.raises(ConfigError, match="pointer"):
        RedactField("run/facets")


def test_the_three_kinds_are_told_apart() -> None:
    assert read(RUN) == Facts("RunEvent", "START", "nightly.load", "dev/a", None, None)
    assert read(JOB) == Facts("JobEvent", None, "j", "n", None, None)
    assert read(DATASET) == Facts("DatasetEvent", None, None, None, "d", "n")
    assert read(b"{}") is None
    assert read(b"[1]") is None


def test_what_a_destination_does_not_take_is_parked_with_the_reason() -> None:
    runs = Rules(takes=Takes(kinds=frozenset(("RunEvent",)), max_bytes=len(RUN)))
    assert runs.apply(made(RUN)) == made(RUN)
    for payload, kind in ((JOB, "JobEvent"), (DATASET, "DatasetEvent")):
        parked = runs.apply(made(payload))
        assert isinstance(parked, Parked)
        assert (parked.code, kind in parked.reason) == ("forward.kind_not_taken", True)
    too_large = runs.apply(made(RUN + b" "))
    assert isinstance(too_large, Parked)
    assert too_large.code == "forward.too_large"


def test_event_types_that_nobody_wants_are_noise() -> None:
    complete = Rules(takes=Takes(event_types=frozenset(("COMPLETE",))))
    assert isinstance(complete.apply(made(RUN)), Filtered)
    assert complete.apply(made(RUN.replace(b"START", b"COMPLETE"))) == made(
        RUN.replace(b"START", b"COMPLETE")
    )
    assert complete.apply(made(JOB)) == made(JOB)


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff", b'{"run": "\\ud800"}', b"[" * 100_000])
def test_what_rules_cannot_look_into_is_parked_and_not_let_through(payload: bytes) -> None:
    for rules in (Rules(drop=(Drop("job.name", "x"),)), Rules(change=(RedactFacet("env"),))):
        assert isinstance(rules.apply(made(payload)), Parked)
    assert Rules().apply(made(payload)) == made(payload)


def test_a_namespace_is_renamed_wherever_it_names_something() -> None:
    after = applied(RUN, RenameNamespace("dev/", "test/"))
    assert after["job"]["namespace"] == "test/a"
    assert after["run"]["facets"]["parent"]["job"]["namespace"] == "test/up"
    assert after["inputs"][0]["namespace"] == "test/b"
    fields = after["inputs"][0]["facets"]["columnLineage"]["fields"]
    assert fields["c"]["inputFields"][0]["namespace"] == "test/c"
    assert after["outputs"][0]["namespace"] == "prod/b"
    assert after["outputs"][0]["outputFacets"]["secretive"]["namespace"] == "dev/x"  # it names nothing


def test_blanks_hide_from_no_rule() -> None:
    payload = (
        b" " * 1000 + b'{"run": ' + b"\n" * 1000 + b'{"facets": ' + b"\t" * 1000 + b'{"env": {"secret": 1}}}}'
    )
    assert applied(payload, RedactFacet("env")) == {"run": {"facets": {}}}


def test_an_escaped_key_hides_from_no_rule() -> None:
    payload = rb'{"job": {"n\u0061mespace": "dev/a", "n\u0061me": "x"}, "run": {"facets": {"\u0065nv": {"secret": 1}}}}'
    assert applied(payload, RenameNamespace("dev/", "test/"))["job"]["namespace"] == "test/a"
    assert applied(payload, RedactFacet("env"))["run"]["facets"] == {}


def test_facets_are_taken_away_by_key_and_place() -> None:
    after = applied(RUN, RedactFacet("env", at="run"), RedactFacet("secret*"))
    assert set(after["run"]["facets"]) == {"parent"}
    assert set(after["inputs"][0]["inputFacets"]) == {"kept"}
    assert after["outputs"][0]["outputFacets"] == {}
    assert set(applied(RUN, RedactFacet("env", at="job"))["run"]["facets"]) == {"env", "parent"}


def test_fields_are_taken_away_by_pointer() -> None:
    after = applied(
        RUN, RedactField("/run/facets/*/x", "gone"), RedactField("/inputs/0/facets"), RedactField("/inputs/7")
    )
    assert after["run"]["facets"]["env"]["x"] == "gone"
    assert "facets" not in after["inputs"][0]
    assert applied(b'{"a/b": {"~": 1}, "c": [1, 2]}', RedactField("/a~1b/~0"), RedactField("/c/1")) == {
        "a/b": {},
        "c": [1],
    }


def test_numbers_beside_a_change_keep_their_digits() -> None:
    result = Rules(change=(RenameNamespace("dev/", "test/"), RedactFacet("parent"))).apply(made(RUN))
    assert isinstance(result, Event)
    assert b'{"x": 1.10, "big": 184467440737095516160}' in result.payload


def test_an_event_that_no_rule_changes_keeps_its_bytes() -> None:
    rules = Rules(
        drop=(Drop("job.name", "other"),),
        change=(RenameNamespace("none/", "x/"), RedactFacet("nothing"), RedactField("/run/nothing/*")),
    )
    before = made(RUN)
    assert rules.apply(before) is before


def spark_events() -> list[tuple[Path, bytes]]:
    return [(path, path.read_bytes()) for path in sorted((shared_folder() / "valid").rglob("*.json"))]


def test_rules_hold_on_real_events() -> None:
    secret = RedactFacet("spark*")
    found = spark_events()
    assert len(found) > 20
    rules = Rules(change=(secret, RenameNamespace("", "moved:")))
    changed = untouched = 0
    for path, payload in found:
        result = rules.apply(made(payload))
        assert isinstance(result, Event), path
        assert keys_like(json.loads(result.payload)) == set(), path
        # Undoing the renaming gives the event back, except for the facets that were taken away.
        back = Rules(change=(RenameNamespace("moved:", ""),)).apply(result)
        assert isinstance(back, Event)
        without = Rules(change=(secret,)).apply(made(payload))
        assert isinstance(without, Event)
        assert json.loads(back.payload) == json.loads(without.payload), path
        changed += without.payload != payload
        untouched += without.payload == payload
    assert changed > 5
    assert untouched > 5


def keys_like(value: Any) -> set[str]:
    """Keys of facets of the run and the job that the rule was to take away."""
    return {
        key
        for place in ("run", "job")
        for key in (value.get(place, {}).get("facets") or {})
        if key.startswith("spark")
    }


def test_noise_of_real_spark_jobs_is_dropped_by_job_name() -> None:
    names = {facts.job_name for _, payload in spark_events() if (facts := read(payload)) is not None}
    noisy = {name for name in names if name is not None and "." in name}
    rules = Rules(drop=(Drop("job.name", "*.*", "glob"),))
    for path, payload in spark_events():
        facts = read(payload)
        assert facts is not None, path
        assert isinstance(rules.apply(made(payload)), Filtered) is (facts.job_name in noisy), path
    assert noisy
    assert names - noisy


def test_presets_say_where_and_what() -> None:
    datazone = presets.target("datazone", "https://datazone.example/", domain="dzd_1")
    assert datazone.url == "https://datazone.example/v2/domains/dzd_1/lineage/events"
    assert datazone.headers == {"Client-Token": "{event_id}"}
    assert presets.rules("datazone").takes.max_bytes == 300_000
    mine = presets.target("marquez", "http://m:5000", HttpTarget("http://m:5000", headers={"X-A": "b"}))
    assert (mine.url, mine.headers) == ("http://m:5000/api/v1/lineage", {"X-A": "b"})
    with pytest.raises(ConfigError, match="location"):
        presets.target("dataplex", "https://x", project="p")
    with pytest.raises(ConfigError, match="marques"):
        presets.find("marques")
    wider = Rules(takes=Takes(max_bytes=7))
    assert presets.rules("dataplex", wider) == wider
