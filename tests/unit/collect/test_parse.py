from __future__ import annotations

import json
import random
from pathlib import Path

import msgspec
import pytest

from tests.unit.collect.events import run_event
from thence.collect.parse import parse, split, too_deep
from thence.collect.validate import Validator
from thence.core.errors import InvalidEvent

EVENT = msgspec.json.encode(run_event())


def with_custom(value: bytes) -> bytes:
    """A valid event with this JSON text somewhere in a custom facet."""
    return EVENT.replace(b'"EUR"', value)


def rule_of(payload: bytes) -> str:
    with pytest.raises(InvalidEvent) as caught:
        parse(payload)
    ((violation),) = caught.value.violations
    assert caught.value.code == "event.unreadable"
    assert violation.path == ""
    assert violation.message
    assert len(violation.value) <= 80
    assert Validator().check(payload).violations == (violation,)
    return violation.rule


@pytest.mark.parametrize(
    ("payload", "rule"),
    [
        (b"", "json.syntax"),
        (b" \n", "json.syntax"),
        (b"\x00", "json.encoding"),
        (b"{} {}", "json.syntax"),
        (b'{"a":01}', "json.syntax"),
        (b"{'a':1}", "json.syntax"),
        (b'{"a":1,}', "json.syntax"),
        (b'{"a":"\x01"}', "json.syntax"),
        (EVENT[:-1], "json.syntax"),
        (b'{"a":"\xff"}', "json.encoding"),
        (b'{"a":"\xed\xa0\x80"}', "json.encoding"),
        (b'{"a":"\xc0\xaf"}', "json.encoding"),
        (b"\xef\xbb\xbf" + EVENT, "json.encoding"),
        (EVENT.decode().encode("utf-16"), "json.encoding"),
        (EVENT.decode().encode("utf-16-le"), "json.encoding"),
        (EVENT.decode().encode("utf-16-be"), "json.encoding"),
        (EVENT.decode().encode("utf-32-be"), "json.encoding"),
        (with_custom(b"NaN"), "json.number"),
        (with_custom(b"Infinity"), "json.number"),
        (with_custom(b"-Infinity"), "json.number"),
        (with_custom(b"1e400"), "json.number"),
        (with_custom(b"-1e400"), "json.number"),
        (with_custom(b"1" * 5000 + b".5"), "json.number"),
        (with_custom(b"[" + b"1" * 5000 + b"," + b"1" * 5000 + b"e1]"), "json.number"),
        (with_custom(rb'"\ud800"'), "json.surrogate"),
        (with_custom(rb'"\ud800 and more text"'), "json.surrogate"),
        (with_custom(rb'"\ud800\u0041"'), "json.surrogate"),
        (with_custom(rb'"\\\udc00"'), "json.surrogate"),
        (with_custom(b"[" + b"1" * 5000 + rb',"\ud800"]'), "json.surrogate"),
        (with_custom(b"[" * 101 + b"]" * 101), "json.depth"),
        (b"[" * 100_000 + b"]" * 100_000, "json.depth"),
        (b"[" * 5_000_000, "json.depth"),
        (b'{"a":' * 100_000, "json.depth"),
    ],
)
def test_what_is_refused_and_by_which_rule(payload: bytes, rule: str) -> None:
    assert rule_of(payload) == rule


@pytest.mark.parametrize(
    "value",
    [
        b"18446744073709551616",
        b"-9223372036854775809",
        b"1" * 4300,
        b"1" * 4301,
        b"-" + b"9" * 5000,
        b"[" + b"9" * 5000 + b',"' + b"9" * 5000 + rb'\"",1.' + b"3" * 5000 + b"]",
        b"1.0",
        b"1e308",
        b"1e-400",
        b"0.1234567890123456789",
        rb'"\u0000"',
        rb'"\ud83d\ude00"',
        rb'"\\ud800"',
        b'{"":1}',
        b'{"__proto__":{"x":1},"constructor":1}',
        b'{"' + b"k" * 65_536 + b'":1}',
        rb'{"\u0000":1}',
        b'{"a":1,"a":2}',
        b'"' + b"[{" * 500 + b'"',
        rb'"\"' + b"[{" * 500 + rb'\\"',
        b"[" + b"[]," * 5000 + b"[]]",
    ],
)
def test_what_is_unusual_and_accepted(value: bytes) -> None:
    assert Validator("strict").check(with_custom(value)).valid


@pytest.mark.parametrize("digits", [20, 400, 4300, 5000, 100_000])
def test_a_long_integer_counts_as_the_integer_it_is(digits: int) -> None:
    rows = b'"rowCount":' + b"9" * digits
    payload = EVENT.replace(b'"rowCount":10', rows)

    assert rows in payload
    assert Validator().check(payload).valid
    text = Validator().check(EVENT.replace(b'"rowCount":10', b'"rowCount":"' + b"9" * digits + b'"'))
    assert [found.rule for found in text.violations] == ["type"]


def test_of_duplicate_keys_the_last_one_is_checked() -> None:
    good, bad = b'"eventType":"START"', b'"eventType":"STOP"'

    assert Validator().check(EVENT[:-1] + b"," + good + b"}").valid
    assert not Validator().check(EVENT[:-1] + b"," + bad + b"}").valid


def test_no_value_is_altered_by_the_check() -> None:
    payload = with_custom(b"[18446744073709551616,-0,1E2]")
    before = bytes(payload)
    Validator().check(payload)

    assert payload == before
    assert parse(b"18446744073709551616") == 2**64


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_nesting_up_to_the_limit_passes(limit: int) -> None:
    assert not too_deep(b"[" * limit + b"]" * limit, limit)
    assert too_deep(b"[" * (limit + 1) + b"]" * (limit + 1), limit)


def test_the_depth_is_that_of_the_values_for_random_texts() -> None:
    rng = random.Random(7)
    for _ in range(3000):
        value = nested(rng, rng.randrange(12))
        text = json.dumps(value, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 1])).encode()
        assert too_deep(text, 5) is (depth(value) > 5), text


def nested(rng: random.Random, levels: int) -> object:
    if levels == 0:
        return rng.choice([1, None, "", '"', "\\", '\\"', "[[[[[[", "}}}{{{{{{", 'a"[{', "é\n\\\\", '"""'])
    if rng.random() < 0.5:
        return [nested(rng, rng.randrange(levels)) for _ in range(rng.randrange(3))] + [
            nested(rng, levels - 1)
        ]
    return {
        rng.choice(["a", "[", '"{', "\\"]): nested(rng, levels - 1),
        "b": nested(rng, rng.randrange(levels)),
    }


def depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


def test_a_limit_of_ones_own() -> None:
    assert Validator(depth_limit=6).check(EVENT).violations[0].rule == "json.depth"
    assert Validator(depth_limit=7).check(EVENT).valid


def test_a_batch_is_split_into_the_bytes_that_stood_there() -> None:
    second = b'{ "eventTime" : 1.0,"x":18446744073709551616 }'

    assert split(b"[" + EVENT + b" ,\n" + second + b"]") == [EVENT, second]
    assert split(b"[]") == []


def test_an_event_of_a_batch_may_be_as_deep_as_one_that_comes_alone() -> None:
    deepest = b"[" * 100 + b"]" * 100

    assert parse(deepest)
    assert split(b"[" + deepest + b"]") == [deepest]


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (EVENT, "batch"),
        (b"1", "batch"),
        (b"", "json.syntax"),
        (b"[1", "json.syntax"),
        (b"[" + b"[" * 101 + b"]" * 101 + b"]", "json.depth"),
    ],
)
def test_what_is_no_batch_is_refused(body: bytes, rule: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        split(body)
    assert caught.value.violations[0].rule == rule


def test_the_rules_are_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "validation.md").read_text("utf-8")
    rules = (
        "json.syntax json.encoding json.number json.surrogate json.depth batch type required enum minimum kind "
        "unknown_field together format.uuid format.uri format.date-time time_range time_zone"
    )
    assert [rule for rule in rules.split() if f"`{rule}`" not in page] == []
