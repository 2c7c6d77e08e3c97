"""Facets, fingerprints, tallies, and the names of things."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.core.dataset import Dataset, Job, Run
from thence.core.errors import InvariantBroken, Rejected
from thence.core.facet import Facet, Owner, merge
from thence.core.fingerprint import Fingerprint
from thence.core.tally import Settled, Tally

NOON = datetime(2024, 2, 29, 12, 0, tzinfo=UTC)
COUNTS = st.integers(0, 10**12)
SETTLED = st.builds(Settled, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)


def facet(name: str, content: Mapping[str, Any], at: datetime = NOON) -> Facet:
    return Facet(Owner.DATASET, name, content, at)


def test_a_later_facet_replaces_the_earlier_one_entirely() -> None:
    merged = merge([facet("schema", {"a": 1, "b": 2}), facet("owner", {"x": 1}), facet("schema", {"a": 3})])
    assert merged == {"schema": {"a": 3}, "owner": {"x": 1}}


def test_later_means_received_later_whatever_its_event_time() -> None:
    old = datetime(1999, 1, 1, tzinfo=UTC)
    assert merge([facet("schema", {"v": 1}), facet("schema", {"v": 2}, old)]) == {"schema": {"v": 2}}


def test_a_deleted_facet_is_gone_until_it_comes_again() -> None:
    first, deleted = facet("schema", {"v": 1}), facet("schema", {"_deleted": True, "v": 2})
    assert merge([first, deleted]) == {}
    assert merge([deleted]) == {}
    assert merge([first, deleted, first]) == {"schema": {"v": 1}}


@pytest.mark.parametrize("mark", [False, None, "true", 1])
def test_only_true_deletes(mark: object) -> None:
    assert merge([facet("schema", {"_deleted": mark})]) == {"schema": {"_deleted": mark}}


FINGERPRINTS = st.builds(
    Fingerprint,
    st.from_regex(r"[a-z0-9-]+", fullmatch=True),
    st.from_regex(r"[0-9a-f]{16,128}", fullmatch=True),
    st.integers(0, 10**19 - 1),
)


@given(FINGERPRINTS)
def test_a_fingerprint_can_be_read_back(fingerprint: Fingerprint) -> None:
    assert Fingerprint.parse(str(fingerprint)) == fingerprint


def test_a_fingerprint_as_people_see_it() -> None:
    text = "xxh3-128:99aa06d3014798d86001c324468d497f:0"
    assert Fingerprint.parse(text) == Fingerprint("xxh3-128", "99aa06d3014798d86001c324468d497f", 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "xxh3",
        "xxh3:99aa06d3014798d8",
        "xxh3:99aa06d3014798d8:",
        "xxh3:99aa06d3014798d8:-1",
        "xxh3:99aa06d3014798d8:1.5",
        "xxh3:99aa06d3014798d8:1:2",
        "xxh3:99AA06D3014798D8:1",
        "XXH3:99aa06d3014798d8:1",
        "xxh3:99aa06d3014798d:1",
        f"xxh3:{'0' * 129}:1",
        f"xxh3:99aa06d3014798d8:{'9' * 20}",
        "xxh3:99aa06d3014798d8:1\n",
        " xxh3:99aa06d3014798d8:1",
        "xxh3:99aa06d3014798d8:\N{ARABIC-INDIC DIGIT ONE}",
    ],
)
def test_what_is_no_fingerprint_is_refused(text: str) -> None:
    with pytest.raises(Rejected) as caught:
        Fingerprint.parse(text)
    assert caught.value.code == "fingerprint.malformed"
    assert caught.value.advice


def test_a_refused_text_is_not_shown_at_length() -> None:
    with pytest.raises(Rejected) as caught:
        Fingerprint.parse("x" * 1_000_000)
    assert len(caught.value.message) < 200


@given(SETTLED, SETTLED, SETTLED)
def test_settling_adds_up(a: Settled, b: Settled, c: Settled) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + Settled() == a
    assert (a + b).total == a.total + b.total


@given(SETTLED, COUNTS)
def test_the_law_holds_when_all_is_counted_once(settled: Settled, waiting: int) -> None:
    assert Tally(settled.total + waiting, settled, waiting).holds
    assert not Tally(settled.total + waiting + 1, settled, waiting).holds
    assert not Tally(settled.total + waiting, settled + Settled(expired=1), waiting).holds


@pytest.mark.parametrize("kind", Settled.__struct_fields__)
def test_every_kind_counts(kind: str) -> None:
    one = Settled(**{kind: 1})
    assert one.total == 1
    assert getattr(one + one, kind) == 2
    with pytest.raises(InvariantBroken) as caught:
        Settled(**{kind: -1})
    assert caught.value.code == "tally.negative"


def test_names_read_as_paths() -> None:
    job = Job("airflow", "load")
    run = Run(UUID(int=7), job)
    assert str(Dataset("postgres://db:5432", "shop.public.orders")) == "postgres://db:5432/shop.public.orders"
    assert str(run) == "airflow/load@00000000-0000-0000-0000-000000000007"
    assert sorted([Dataset("b", "a"), Dataset("a", "b")]) == [Dataset("a", "b"), Dataset("b", "a")]
