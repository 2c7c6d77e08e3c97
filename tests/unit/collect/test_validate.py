from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.collect.events import BY, RUN_ID, START, dataset_event, job_event, run_event, with_facet
from thence.collect.policy import Level
from thence.collect.validate import VIOLATION_LIMIT, Validator, Verdict
from thence.core.errors import ConfigError, Violation

VALIDATORS = {level: Validator(level) for level in Level}


def check(event: object, level: str = "spec", **options: Any) -> Verdict:
    validator = Validator(level, **options) if options else VALIDATORS[Level(level)]
    return validator.check(msgspec.json.encode(event))


def faults(event: object, level: str = "spec", **options: Any) -> list[tuple[str, str]]:
    return [(found.path, found.rule) for found in check(event, level, **options).violations]


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize(
    ("kind", "event"), [("run", run_event()), ("job", job_event()), ("dataset", dataset_event())]
)
def test_a_good_event_is_valid_at_every_level_and_its_kind_is_told(
    level: str, kind: str, event: object
) -> None:
    assert check(event, level) == Verdict(kind)


def test_a_fault_names_path_rule_value_and_says_why() -> None:
    event = run_event()
    event["run"]["facets"]["parent"]["run"] = {"runId": 7}

    assert check(event).violations == (
        Violation(
            path="run/facets/parent/run/runId",
            rule="type",
            value="7",
            message="is a number, must be a string (ParentRunFacet 1-2-0)",
        ),
    )


@pytest.mark.parametrize(
    ("place", "key", "facet", "expected"),
    [
        ("run", "nominalTime", BY, ("run/facets/nominalTime/nominalStartTime", "required")),
        ("run", "custom", {}, ("run/facets/custom/_producer", "required")),
        ("run", "custom", "text", ("run/facets/custom", "type")),
        ("job", "sql", BY | {"query": None}, ("job/facets/sql/query", "type")),
        ("job", "sql", BY | {"query": "", "_deleted": "no"}, ("job/facets/sql/_deleted", "type")),
        (
            "job",
            "jobType",
            BY
            | {
                "processingType": "STREAMING",
                "integration": "FLINK",
                "emissionPattern": {"eventTrigger": "t", "eventContentMode": "m", "windowDuration": 0},
            },
            ("job/facets/jobType/emissionPattern/windowDuration", "minimum"),
        ),
        (
            "run",
            "executionParameters",
            BY | {"parameters": [{"key": "a", "valeu": "b"}]},
            ("run/facets/executionParameters/parameters/0/valeu", "unknown_field"),
        ),
        (
            "outputs/facets",
            "lifecycleStateChange",
            BY | {"lifecycleStateChange": "EXPLODE"},
            ("outputs/0/facets/lifecycleStateChange/lifecycleStateChange", "enum"),
        ),
        (
            "outputs/facets",
            "columnLineage",
            BY | {"fields": {"a/b~c": {}}},
            ("outputs/0/facets/columnLineage/fields/a~1b~0c/inputFields", "required"),
        ),
        (
            "outputs/facets",
            "schema",
            BY | {"fields": [{"name": "a", "fields": [{"name": "b", "fields": [{"type": "int"}]}]}]},
            ("outputs/0/facets/schema/fields/0/fields/0/fields/0/name", "required"),
        ),
        (
            "inputs/inputFacets",
            "inputStatistics",
            BY | {"rowCount": 1.5},
            ("inputs/0/inputFacets/inputStatistics/rowCount", "type"),
        ),
        (
            "inputs/facets",
            "lineage",
            BY | {"fields": {"x": {"inputs": [{"type": "JOB", "name": "n"}]}}},
            ("inputs/0/facets/lineage/fields/x/inputs/0/namespace", "together"),
        ),
        (
            "job",
            "lineage",
            BY | {"entries": [{"type": "DATASET", "namespace": "n", "name": 1}]},
            ("job/facets/lineage/entries/0/name", "type"),
        ),
        (
            "job",
            "lineage",
            BY | {"entries": [{"type": "VIEW"}]},
            ("job/facets/lineage/entries/0/type", "enum"),
        ),
        (
            "inputs/facets",
            "lineage",
            BY | {"inputs": [{"namespace": "n", "name": "d"}]},
            ("inputs/0/facets/lineage/inputs/0/type", "required"),
        ),
        ("job", "lineage", BY, ("job/facets/lineage/entries", "required")),
        (
            "inputs/inputFacets",
            "subset",
            BY | {"inputCondition": {"type": "compare", "comparison": "=", "left": {"type": "field"}}},
            ("inputs/0/inputFacets/subset/inputCondition/right", "required"),
        ),
        (
            "outputs/outputFacets",
            "subset",
            BY | {"inputCondition": {"type": "location", "locations": []}},
            ("outputs/0/outputFacets/subset/outputCondition", "required"),
        ),
        ("job", "gcp_composer_job", BY, ("job/facets/gcp_composer_job/environmentName", "required")),
    ],
)
def test_a_fault_inside_of_a_facet_is_named_where_it_stands(
    place: str, key: str, facet: object, expected: tuple[str, str]
) -> None:
    assert faults(with_facet(place, key, facet))[0] == expected


def test_a_facet_is_known_only_at_its_own_place() -> None:
    misplaced = BY | {"query": 1}

    assert check(with_facet("run", "sql", misplaced)).valid
    assert check(with_facet("inputs/facets", "sql", misplaced)).valid
    assert not check(with_facet("job", "sql", misplaced)).valid


def test_facets_that_reuse_a_key_elsewhere_are_told_apart() -> None:
    tag = BY | {"tags": [{"key": "k", "value": "v", "field": 1}]}

    assert check(with_facet("job", "tags", tag)).valid
    assert faults(with_facet("outputs/facets", "tags", tag)) == [
        ("outputs/0/facets/tags/tags/0/field", "type")
    ]


def test_unknown_custom_facets_are_valid_and_their_schema_is_never_fetched() -> None:
    facet = BY | {"_schemaURL": "http://169.254.169.254/latest/meta-data", "anything": [{"goes": None}]}

    assert check(with_facet("run", "shop_cost", facet), "strict").valid


def test_a_facet_of_an_older_or_newer_version_is_checked_by_its_key() -> None:
    old = {"_producer": "x:y", "_schemaURL": "https://openlineage.io/spec/facets/1-0-0/SQLJobFacet.json"}
    new = {"_producer": "x:y", "_schemaURL": "https://openlineage.io/spec/facets/9-0-0/SQLJobFacet.json"}

    assert check(with_facet("job", "sql", old | {"query": "q"})).valid
    assert check(with_facet("job", "sql", new | {"query": "q", "plan": {}})).valid
    assert faults(with_facet("job", "sql", new)) == [("job/facets/sql/query", "required")]


# ---- levels


@pytest.mark.parametrize(
    ("place", "facet", "path"),
    [
        ("outputs/facets", {"dataSource": BY | {"uri": "file"}}, "outputs/0/facets/dataSource/uri"),
        (
            "run",
            {"nominalTime": BY | {"nominalStartTime": "noon"}},
            "run/facets/nominalTime/nominalStartTime",
        ),
        (
            "run",
            {"parent": BY | {"run": {"runId": "r"}, "job": {"namespace": "n", "name": "n"}}},
            "run/facets/parent/run/runId",
        ),
        ("run", {"custom": BY | {"_producer": "me"}}, "run/facets/custom/_producer"),
    ],
)
def test_formats_are_rules_at_strict_only(place: str, facet: dict[str, Any], path: str) -> None:
    ((key, value),) = facet.items()
    event = with_facet(place, key, value)

    assert [found for found, _ in faults(event, "strict")] == [path]
    assert check(event, "spec") == Verdict("run")
    assert check(event, "lenient") == Verdict("run")


@pytest.mark.parametrize("level", Level)
def test_the_run_id_is_a_uuid_at_every_level(level: str) -> None:
    event = run_event(run={"runId": "run-1"})

    assert faults(event, level) == [("run/runId", "format.uuid")]


@pytest.mark.parametrize("name", ["schemaURL", "producer"])
def test_lenient_tolerates_a_missing_schema_url_or_producer_and_says_so(name: str) -> None:
    event = run_event()
    del event[name]

    assert faults(event, "strict") == faults(event, "spec") == [(name, "required")]
    lenient = check(event, "lenient")
    assert lenient.valid
    assert [(found.path, found.rule) for found in lenient.warnings] == [(name, "required")]


def test_lenient_still_refuses_one_of_the_wrong_type() -> None:
    assert faults(run_event(producer=None), "lenient") == [("producer", "type")]


def test_tolerated_and_refused_faults_of_one_event_are_both_told() -> None:
    event = run_event(eventTime="2026-03-04T05:06:07", eventType="STOP")
    del event["schemaURL"]
    verdict = check(event, "lenient")

    assert [found.path for found in verdict.violations] == ["eventType"]
    assert [found.path for found in verdict.warnings] == ["schemaURL", "eventTime"]


# ---- times


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize(
    "time",
    [
        "2026-03-04T05:06:07Z",
        "2026-03-04t05:06:07z",
        "2026-03-04T05:06:07.123456789+05:30",
        "2024-02-29T00:00:00Z",
        "2016-12-31T23:59:60Z",
        "2026-03-04T05:06:07-00:00",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999999999Z",
    ],
)
def test_times_that_are_accepted(level: str, time: str) -> None:
    assert check(run_event(eventTime=time), level) == Verdict("run")


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize(
    "time",
    [
        "",
        "now",
        "2026-03-04",
        "2026-W10-3T05:06:07Z",
        "2026-03-04 05:06:07Z",
        "2026-03-04T05:06Z",
        "20260304T050607Z",
        "2026-03-04T05:06:07+25:00",
        "2026-03-04T05:06:07+0100",
        "2026-03-04T24:00:00Z",
        "2026-03-04T12:00:60Z",
        "2023-02-29T00:00:00Z",
        "10000-01-01T00:00:00Z",
        "infinity",
        1772600767,
        None,
    ],
)
def test_times_that_are_refused(level: str, time: object) -> None:
    ((path, rule),) = faults(run_event(eventTime=time), level)
    assert path == "eventTime"
    assert rule == ("format.date-time" if isinstance(time, str) else "type")


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize(
    "time",
    [
        "0000-01-01T00:00:00Z",
        "-001-01-01T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
    ],
)
def test_times_that_no_database_holds_are_refused(level: str, time: str) -> None:
    assert faults(run_event(eventTime=time), level) == [("eventTime", "time_range")]


def test_a_time_without_zone_is_read_as_utc_and_counted_but_not_at_strict() -> None:
    event = run_event(eventTime="2021-11-03T10:53:52.427343")

    assert faults(event, "strict") == [("eventTime", "format.date-time")]
    for level in ("spec", "lenient"):
        verdict = check(event, level)
        assert verdict.valid
        assert [(found.path, found.rule, found.value) for found in verdict.warnings] == [
            ("eventTime", "time_zone", "2021-11-03T10:53:52.427343")
        ]


# ---- kinds


def test_an_event_of_no_kind_is_refused() -> None:
    assert faults(START) == [("", "kind")]


@pytest.mark.parametrize("event", [[], "x", 1, None, [run_event()]])
def test_what_is_no_object_is_refused(event: object) -> None:
    assert faults(event) == [("", "type")]


def test_run_and_job_make_a_run_event_whatever_else_there_is() -> None:
    assert check(run_event(dataset=5)) == Verdict("run")


def test_a_run_without_a_job_lacks_the_job() -> None:
    event = START | {"run": {"runId": RUN_ID}}

    assert check(event).kind == "run"
    assert faults(event) == [("job", "required")]


def test_a_dataset_with_a_run_and_no_job_is_a_dataset_event() -> None:
    assert check(dataset_event(run=5)) == Verdict("dataset")


def test_a_dataset_with_a_job_must_fit_exactly_one_kind() -> None:
    both = dataset_event(job={"namespace": "n", "name": "j"})

    assert faults(both) == [("", "kind")]
    assert check(both | {"dataset": {}}) == Verdict("job")
    assert check(both | {"job": {}}) == Verdict("dataset")
    assert faults(both | {"job": {}, "dataset": {"name": "d"}}) == [("dataset/namespace", "required")]


# ---- bounds


def test_at_most_twenty_faults_with_values_of_eighty_characters() -> None:
    event = run_event(
        inputs=[{"namespace": "n", "name": ["x" * 500]}, {"namespace": "n", "name": 10**200}] * 50_000
    )
    verdict = check(event)

    assert len(verdict.violations) == VIOLATION_LIMIT
    assert {found.value for found in verdict.violations} == {"[1 items]", "1" + "0" * 78 + "…"}
    assert check(run_event(eventTime="é" * 500)).violations[0].value == "é" * 79 + "…"


def test_a_batch_has_a_verdict_for_each_event() -> None:
    payloads = [msgspec.json.encode(event) for event in (run_event(), {}, job_event())]

    assert [found.valid for found in VALIDATORS[Level.SPEC].check_batch([*payloads, b"{"])] == [
        True,
        False,
        True,
        False,
    ]


# ---- exceptions


def test_a_facet_can_be_switched_off_raised_and_lowered() -> None:
    wrong = with_facet("outputs/facets", "dataSource", {"uri": "file"})
    spark = with_facet("outputs/facets", "dataSource", BY | {"uri": "file"})
    path = "dataset/facets/dataSource"

    assert not check(wrong, "lenient").valid
    assert check(wrong, "strict", exceptions={path: "off"}).valid
    assert check(spark, "strict", exceptions={path: Level.SPEC}).valid
    assert faults(spark, "spec", exceptions={path: "strict"}) == [
        ("outputs/0/facets/dataSource/uri", "format.uri")
    ]


def test_an_exception_holds_only_for_its_own_facet() -> None:
    event = with_facet("outputs/facets", "dataSource", BY | {"uri": "file"})
    event["run"]["facets"] = {"custom": {}}

    assert faults(event, "strict", exceptions={"run/facets/custom": "off"}) == [
        ("outputs/0/facets/dataSource/uri", "format.uri")
    ]
    assert faults(event, "strict", exceptions={"run/facets/other": "off"})[0] == (
        "run/facets/custom/_producer",
        "required",
    )


def test_an_exception_for_an_input_facet_and_for_a_key_with_slashes() -> None:
    event = with_facet("inputs/inputFacets", "inputStatistics", 5)
    event["job"]["facets"] = {"a/b": 5}
    off = {"inputs/inputFacets/inputStatistics": "off", "job/facets/a/b": "off"}

    assert check(event, exceptions=off).valid


@pytest.mark.parametrize("path", ["run/facet/parent", "parent", "run/facets/", "inputs/facets/schema", ""])
def test_an_exception_for_a_path_that_cannot_be_is_refused(path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Validator("spec", {path: "off"})
    assert caught.value.code == "collect.validate_path"


def test_a_misspelt_level_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        Validator("strickt")
    assert caught.value.code == "collect.validate_level"
    with pytest.raises(ConfigError) as caught:
        Validator("spec", {"run/facets/parent": "no"})  # type: ignore[dict-item]
    assert caught.value.code == "collect.validate_level"
