"""The laws of type promotion, of headers, and of the plans that patch tables."""

from __future__ import annotations

from functools import reduce
from itertools import permutations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.core.errors import Rejected
from thence.core.table import (
    AddColumn,
    BatchHeader,
    Column,
    CreateTable,
    Operation,
    SetPrimaryKey,
    Table,
    WidenColumn,
    apply,
    plan,
)
from thence.core.types import JsonType, promote, widens_to

BOOL, INT64, FLOAT64, TIMESTAMP, STRING = JsonType

# The typecast tree, child to parent, written down once more and walked the slow way.
TREE = {BOOL: INT64, INT64: FLOAT64, FLOAT64: STRING, TIMESTAMP: STRING}

TYPES = st.sampled_from(list(JsonType))
NAMES = st.sampled_from(["a", "b", "c", "d", "e"])


def columns(declared: bool = True) -> st.SearchStrategy[dict[str, Column]]:
    sql_types = st.sampled_from([None, None, "numeric(38,18)", "text"]) if declared else st.none()
    pairs = st.dictionaries(NAMES, st.tuples(TYPES, sql_types), max_size=5)
    return pairs.map(lambda found: {name: Column(name, kind, sql) for name, (kind, sql) in found.items()})


KEYS = st.lists(NAMES, unique=True, max_size=3).map(tuple)
HEADERS = st.builds(BatchHeader, st.just("t"), columns())
PLAIN_HEADERS = st.builds(BatchHeader, st.just("t"), columns(declared=False))
TABLES = st.none() | st.builds(Table, st.just("t"), columns(), KEYS)


def path_to_root(leaf: JsonType) -> list[JsonType]:
    path = [leaf]
    while path[-1] in TREE:
        path.append(TREE[path[-1]])
    return path


def lowest_common_ancestor(one: JsonType, other: JsonType) -> JsonType:
    above = path_to_root(other)
    return next(candidate for candidate in path_to_root(one) if candidate in above)


@given(TYPES, TYPES, TYPES)
def test_promotion_is_a_lattice(a: JsonType, b: JsonType, c: JsonType) -> None:
    assert promote(a, b) is promote(b, a)
    assert promote(promote(a, b), c) is promote(a, promote(b, c)) is promote(a, b, c)
    assert promote(a, a) is promote(a) is a
    assert widens_to(a, promote(a, b))


@pytest.mark.parametrize("one", JsonType)
@pytest.mark.parametrize("other", JsonType)
def test_promotion_is_the_lowest_common_ancestor(one: JsonType, other: JsonType) -> None:
    assert promote(one, other) is lowest_common_ancestor(one, other)
    assert widens_to(one, other) is (other in path_to_root(one))


def test_the_examples_of_the_tree() -> None:
    assert promote(FLOAT64, TIMESTAMP) is STRING
    assert promote(BOOL, INT64) is INT64
    assert promote(BOOL, FLOAT64) is FLOAT64
    assert promote(INT64, FLOAT64) is FLOAT64
    assert promote(BOOL, TIMESTAMP) is STRING
    assert promote(BOOL, INT64, FLOAT64, STRING) is STRING
    assert not widens_to(TIMESTAMP, FLOAT64)


@given(st.lists(PLAIN_HEADERS, min_size=1, max_size=4))
def test_headers_merge_in_any_order(headers: list[BatchHeader]) -> None:
    merged = {
        msgspec.json.encode(reduce(BatchHeader.merge, order), order="sorted")
        for order in permutations(headers)
    }
    assert len(merged) == 1


@given(HEADERS, HEADERS, HEADERS)
def test_headers_with_declared_types_merge_in_any_order(
    a: BatchHeader, b: BatchHeader, c: BatchHeader
) -> None:
    assert a.merge(b) == b.merge(a)
    assert a.merge(b).merge(c) == a.merge(b.merge(c))
    assert a.merge(a) == a


@given(HEADERS, HEADERS)
def test_a_merged_header_has_room_for_both(a: BatchHeader, b: BatchHeader) -> None:
    merged = a.merge(b)
    assert merged.columns.keys() == a.columns.keys() | b.columns.keys()
    for part in (a, b):
        for name, column in part.columns.items():
            assert widens_to(column.type, merged.columns[name].type)


@given(TABLES, HEADERS, KEYS)
def test_a_plan_leaves_nothing_to_plan(
    table: Table | None, header: BatchHeader, key: tuple[str, ...]
) -> None:
    patched = apply(table, plan(table, header, key))
    assert plan(patched, header, key) == ()


@given(TABLES, HEADERS, KEYS)
def test_a_patched_table_takes_the_batch(
    table: Table | None, header: BatchHeader, key: tuple[str, ...]
) -> None:
    patched = apply(table, plan(table, header, key))
    assert patched is not None
    assert patched.primary_key == key
    for name, column in header.columns.items():
        present = patched.columns[name]
        assert present.name == name
        declared_before = table is not None and name in table.columns and table.columns[name].sql_type
        assert declared_before or widens_to(column.type, present.type)


@given(TABLES, HEADERS, KEYS)
def test_a_plan_takes_nothing_away(table: Table | None, header: BatchHeader, key: tuple[str, ...]) -> None:
    before = {} if table is None else table.columns
    patched = apply(table, plan(table, header, key))
    assert patched is not None
    assert patched.columns.keys() == before.keys() | header.columns.keys()
    for name, column in before.items():
        assert widens_to(column.type, patched.columns[name].type)
        assert patched.columns[name].sql_type == column.sql_type


@given(TABLES, HEADERS, KEYS)
def test_applying_a_plan_twice_is_applying_it_once(
    table: Table | None, header: BatchHeader, key: tuple[str, ...]
) -> None:
    operations = plan(table, header, key)
    once = apply(table, operations)
    assert apply(once, operations) == once


@given(TABLES, HEADERS, HEADERS)
def test_stale_plans_lose_nothing(table: Table | None, one: BatchHeader, other: BatchHeader) -> None:
    """Two processes look, both patch: each finds every column wide enough, or plans once more and does."""
    seen = apply(table, ())
    first = apply(table, plan(seen, one))
    both = apply(first, plan(seen, other))
    assert first is not None
    assert both is not None
    for name, column in first.columns.items():
        assert widens_to(column.type, both.columns[name].type)
    again = apply(both, plan(both, other))
    assert plan(again, one) == plan(again, other) == ()


def test_a_stale_plan_does_not_narrow() -> None:
    narrow = Table("t", {"a": Column("a", BOOL)})
    stale = plan(narrow, BatchHeader("t", {"a": Column("a", INT64)}))
    wide = apply(narrow, plan(narrow, BatchHeader("t", {"a": Column("a", STRING)})))
    assert apply(wide, stale) == wide == Table("t", {"a": Column("a", STRING)})
    assert apply(wide, [AddColumn("t", Column("a", BOOL))]) == wide
    assert apply(wide, [CreateTable(narrow)]) == wide


def test_a_plan_as_people_see_it() -> None:
    table = Table("t", {"id": Column("id", INT64), "price": Column("price", INT64, "numeric(38,18)")})
    header = BatchHeader(
        "t", {"id": Column("id", BOOL), "price": Column("price", STRING), "at": Column("at", TIMESTAMP)}
    )
    assert plan(table, header, ("id",)) == (
        AddColumn("t", Column("at", TIMESTAMP)),
        SetPrimaryKey("t", ("id",)),
    )
    wider = BatchHeader("t", {"id": Column("id", TIMESTAMP)})
    assert plan(table, wider) == (WidenColumn("t", "id", INT64, STRING),)
    assert plan(None, wider, ("id",)) == (CreateTable(Table("t", dict(wider.columns), ("id",))),)


@pytest.mark.parametrize(
    "operation",
    [AddColumn("t", Column("a", BOOL)), WidenColumn("t", "a", BOOL, INT64), SetPrimaryKey("t", ("a",))],
)
def test_a_table_that_is_not_there_cannot_be_altered(operation: Operation) -> None:
    with pytest.raises(Rejected) as caught:
        apply(None, [operation])
    assert caught.value.code == "warehouse.missing"


def test_a_column_that_is_not_there_cannot_be_widened() -> None:
    with pytest.raises(Rejected) as caught:
        apply(Table("t", {}), [WidenColumn("t", "a", BOOL, INT64)])
    assert caught.value.code == "warehouse.missing"


@given(st.lists(TABLES.flatmap(lambda table: HEADERS.map(lambda header: plan(table, header))), max_size=3))
def test_operations_can_be_written_down(plans: list[tuple[Operation, ...]]) -> None:
    encoded = msgspec.json.encode(plans)
    assert msgspec.json.decode(encoded, type=list[tuple[Operation, ...]]) == plans
