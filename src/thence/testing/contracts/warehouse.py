"""What a `Warehouse` promises. The suite reads rows back through `rows`, and needs pyarrow.

An implementation on a real disk overrides `write_and_die` with a real death in the middle of a write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from thence.core.errors import Rejected, ThenceError
from thence.core.ports import ArrowStream, Load, Receipt, Warehouse
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
from thence.core.types import JsonType
from thence.testing.contracts.place import Contract, Place
from thence.testing.contracts.together import together

_ARROW = {
    JsonType.BOOL: pa.bool_(),
    JsonType.INT64: pa.int64(),
    JsonType.FLOAT64: pa.float64(),
    JsonType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    JsonType.STRING: pa.string(),
}
_NUMBERS = {"id": JsonType.INT64, "text": JsonType.STRING}


class WarehouseContract(Contract[Warehouse]):
    """The suite of `thence.core.ports.Warehouse`."""

    def rows(self, opened: Warehouse, table: str) -> Sequence[Mapping[str, Any]]:
        """All rows of a table in any order, each with all columns; timestamps as aware datetimes."""
        raise NotImplementedError

    def write_and_die(self, opened: Warehouse, load: Load, rows: ArrowStream, moment: int) -> None:
        """Write a load, and die before, while or after it is written; the higher `moment`, the later.

        Called with moments from 0 to the number of rows. As it stands here, the process dies right after.
        """
        opened.write(load, rows)
        self.crash(opened)

    # Tables

    def test_an_unknown_table_is_none(self, place: Place[Warehouse]) -> None:
        """What is not there is described as None."""
        assert place.open().describe("nobody") is None

    def test_a_table_is_made_as_planned(self, place: Place[Warehouse]) -> None:
        """A table has the columns of every type that it was made with, and its primary key."""
        warehouse = place.open()
        columns = {str(kind): kind for kind in JsonType}
        wanted = table("t", columns, primary_key=("int64", "string"))
        assert warehouse.patch("t", [CreateTable(wanted)]) == wanted
        assert place.open().describe("t") == wanted

    def test_names_are_taken_as_they_are(self, place: Place[Warehouse]) -> None:
        """Names of tables and columns are quoted and not interpreted."""
        warehouse = place.open()
        types = {"Order": JsonType.INT64, "a b": JsonType.BOOL, "ä\"'%s": JsonType.STRING}
        wanted = table("Select; -- o'dd", types)
        warehouse.patch(wanted.name, [CreateTable(wanted)])
        assert warehouse.describe(wanted.name) == wanted
        given = {"Order": 1, "a b": True, "ä\"'%s": "x"}
        warehouse.write(Load("key", wanted.name), stream([given], types))
        assert list(self.rows(warehouse, wanted.name)) == [given]

    @pytest.mark.parametrize(
        "operation",
        [
            AddColumn("t", Column("more", JsonType.TIMESTAMP)),
            WidenColumn("t", "id", JsonType.INT64, JsonType.FLOAT64),
            WidenColumn("t", "id", JsonType.INT64, JsonType.STRING),
            SetPrimaryKey("t", ("id",)),
            SetPrimaryKey("t", ()),
        ],
        ids=["add", "widen-to-float", "widen-to-string", "replace-key", "drop-key"],
    )
    def test_each_operation_does_what_the_model_says(
        self, place: Place[Warehouse], operation: Operation
    ) -> None:
        """An operation has the effect that it has on the model, once and not twice, and keeps the rows."""
        warehouse = place.open()
        before = warehouse.patch("t", [CreateTable(table("t", _NUMBERS, primary_key=("text",)))])
        warehouse.write(Load("key", "t"), stream([{"id": 1, "text": "a"}], _NUMBERS))
        operations = (operation,)
        wanted = apply(before, operations)
        for _ in range(2):
            assert warehouse.patch("t", operations) == wanted
            assert warehouse.describe("t") == wanted
        assert [row["text"] for row in self.rows(warehouse, "t")] == ["a"]

    def test_a_table_follows_its_headers(self, place: Place[Warehouse]) -> None:
        """Planned and patched header by header, the table is what the model says, and then needs nothing more."""
        warehouse = place.open()
        steps: list[tuple[dict[str, JsonType], tuple[str, ...]]] = [
            ({"id": JsonType.BOOL}, ()),
            ({"id": JsonType.INT64, "at": JsonType.TIMESTAMP}, ()),
            ({"at": JsonType.TIMESTAMP, "x": JsonType.FLOAT64}, ("id",)),
            ({"id": JsonType.BOOL, "at": JsonType.FLOAT64}, ("id", "x")),
            ({}, ()),
        ]
        model: Table | None = None
        for types, key in steps:
            header = BatchHeader("t", table("t", types).columns)
            operations = plan(warehouse.describe("t"), header, key)
            model = apply(model, operations)
            assert warehouse.patch("t", operations) == model
            assert plan(warehouse.describe("t"), header, key) == ()
        assert model is not None
        assert model.columns["at"].type is JsonType.STRING

    def test_a_stale_plan_takes_nothing_away(self, place: Place[Warehouse]) -> None:
        """A plan from an older look neither narrows a column nor drops one."""
        one, other = place.open(), place.open()
        small, wide = table("t", {"a": JsonType.BOOL}), table("t", {"b": JsonType.STRING})
        one.patch("t", [CreateTable(small)])
        assert other.patch("t", [CreateTable(wide)]) == small
        one.patch("t", [WidenColumn("t", "a", JsonType.BOOL, JsonType.STRING)])
        stale: list[Operation] = [
            WidenColumn("t", "a", JsonType.BOOL, JsonType.INT64),
            AddColumn("t", Column("a", JsonType.BOOL)),
        ]
        assert other.patch("t", stale) == table("t", {"a": JsonType.STRING})
        assert one.describe("t") == table("t", {"a": JsonType.STRING})

    def test_a_table_that_is_not_there_is_not_patched(self, place: Place[Warehouse]) -> None:
        """To alter an unknown table is refused, and makes none."""
        warehouse = place.open()
        with pytest.raises(Rejected) as caught:
            warehouse.patch("t", [AddColumn("t", Column("a", JsonType.BOOL))])
        assert caught.value.code == "warehouse.missing"
        assert warehouse.describe("t") is None

    def test_processes_patch_side_by_side(self, place: Place[Warehouse]) -> None:
        """Patches of several processes all take effect."""
        warehouses = [place.open() for _ in range(4)]

        def work(number: int) -> Table:
            operations: list[Operation] = [
                CreateTable(table("t", {"id": JsonType.BOOL})),
                AddColumn("t", Column("shared", JsonType.INT64)),
                AddColumn("t", Column(f"own{number}", JsonType.STRING)),
                WidenColumn("t", "id", JsonType.BOOL, list(JsonType)[number]),
            ]
            return warehouses[number].patch("t", operations)

        together([partial(work, number) for number in range(4)])
        expected = {"id": JsonType.STRING, "shared": JsonType.INT64} | {
            f"own{number}": JsonType.STRING for number in range(4)
        }
        assert warehouses[0].describe("t") == table("t", expected)

    # Loads

    def test_a_load_leaves_rows_and_a_receipt(self, place: Place[Warehouse]) -> None:
        """The receipt says what was loaded and how many rows came."""
        warehouse = self.with_table(place)
        load = Load("topic-0:1-2", "t", b"\x00lineage\xff")
        assert warehouse.receipt(load.key) is None
        assert warehouse.write(load, numbered(1, 2)) == Receipt(load, 2)
        assert place.open().receipt(load.key) == Receipt(load, 2)
        assert self.ids(warehouse) == [1, 2]

    def test_values_come_back_as_they_were(self, place: Place[Warehouse]) -> None:
        """Values of each type, their limits and nulls are kept."""
        warehouse = place.open()
        columns = {str(kind): kind for kind in JsonType}
        warehouse.patch("t", [CreateTable(table("t", columns))])
        texts = ["", "\\N", "NULL", "a\tb\r\nc", "q\"u'o`t,e;\\", "Grüße 世界 \N{PILE OF POO}", "x" * 100_000]
        given = [dict.fromkeys(columns), *({**dict.fromkeys(columns), "string": text} for text in texts)]
        given += [
            {**dict.fromkeys(columns), "bool": True, "int64": 2**63 - 1, "float64": 0.1},
            {**dict.fromkeys(columns), "bool": False, "int64": -(2**63), "float64": -1.7976931348623157e308},
            {**dict.fromkeys(columns), "timestamp": datetime(1970, 1, 1, tzinfo=UTC)},
            {**dict.fromkeys(columns), "timestamp": datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=UTC)},
        ]
        assert warehouse.write(Load("key", "t"), stream(given, columns)).rows == len(given)
        assert sorted(map(exactly, self.rows(warehouse, "t"))) == sorted(map(exactly, given))

    def test_columns_are_matched_by_name(self, place: Place[Warehouse]) -> None:
        """Rows may have their columns in another order, and those that they lack are null."""
        warehouse = self.with_table(place)
        warehouse.write(Load("1", "t"), stream([{"text": "a", "id": 1}], dict(reversed(_NUMBERS.items()))))
        warehouse.write(Load("2", "t"), stream([{"text": "b"}], {"text": JsonType.STRING}))
        assert sorted(self.pairs(warehouse), key=str) == [(1, "a"), (None, "b")]

    def test_a_load_of_no_rows_has_a_receipt(self, place: Place[Warehouse]) -> None:
        """That nothing came is also known afterwards."""
        warehouse = self.with_table(place)
        load = Load("empty", "t")
        assert warehouse.write(load, numbered()) == Receipt(load, 0)
        assert warehouse.receipt("empty") == Receipt(load, 0)
        assert self.ids(warehouse) == []

    def test_all_batches_of_a_stream_are_written(self, place: Place[Warehouse]) -> None:
        """A stream may come in many pieces, empty ones among them."""
        warehouse = self.with_table(place)
        pieces = [numbered(*range(100 * n, 100 * n + (n % 3) * 10)) for n in range(12)]
        whole = pa.RecordBatchReader.from_batches(
            pieces[0].schema, (b for p in pieces for b in p.to_batches())
        )
        assert warehouse.write(Load("key", "t"), whole).rows == 120
        assert self.ids(warehouse) == [n * 100 + i for n in range(12) for i in range((n % 3) * 10)]

    def test_the_same_load_is_written_once(self, place: Place[Warehouse]) -> None:
        """Written again, a load gives the receipt that is there, and no rows."""
        warehouse = self.with_table(place)
        first = warehouse.write(Load("key", "t", b"first"), numbered(1, 2))
        assert warehouse.write(Load("key", "t", b"again"), numbered(1, 2)) == first
        assert place.open().write(Load("key", "t"), numbered(7, 8, 9)) == first
        assert warehouse.receipt("key") == first
        assert self.ids(warehouse) == [1, 2]

    def test_another_load_may_have_the_same_rows(self, place: Place[Warehouse]) -> None:
        """Loads are told apart by their keys and not by what is in them."""
        warehouse = self.with_table(place)
        for key in ("a", "A", "a "):
            warehouse.write(Load(key, "t"), numbered(1))
        assert self.ids(warehouse) == [1, 1, 1]

    def test_an_unknown_column_is_refused(self, place: Place[Warehouse]) -> None:
        """Rows with a column that the table has not are refused whole; corrected, the same load goes in."""
        warehouse = self.with_table(place)
        load = Load("key", "t")
        types = {"id": JsonType.INT64, "surprise": JsonType.BOOL}
        with pytest.raises(Rejected, match="surprise") as caught:
            warehouse.write(load, stream([{"id": 1, "surprise": True}], types))
        assert caught.value.code == "warehouse.columns"
        assert warehouse.receipt("key") is None
        assert self.ids(warehouse) == []
        assert warehouse.write(load, numbered(1)) == Receipt(load, 1)

    def test_an_unknown_table_is_refused(self, place: Place[Warehouse]) -> None:
        """There is nowhere to write to, and no table is made in passing."""
        warehouse = place.open()
        with pytest.raises(Rejected) as caught:
            warehouse.write(Load("key", "t"), numbered(1))
        assert caught.value.code == "warehouse.missing"
        assert warehouse.receipt("key") is None
        assert warehouse.describe("t") is None

    def test_rows_that_cannot_be_read_leave_nothing(self, place: Place[Warehouse]) -> None:
        """When reading the rows fails half-way, nothing is written; afterwards the same load goes in."""
        warehouse = self.with_table(place)
        load = Load("key", "t")
        with pytest.raises((ThenceError, OSError, ValueError, pa.ArrowException)):
            warehouse.write(load, breaking())
        assert warehouse.receipt("key") is None
        assert self.ids(warehouse) == []
        assert warehouse.write(load, numbered(1)) == Receipt(load, 1)
        assert self.ids(warehouse) == [1]

    def test_the_last_row_with_a_key_wins(self, place: Place[Warehouse]) -> None:
        """The last one wins within a load and between loads, as a whole; the receipt counts all that came."""
        warehouse = self.with_table(place, primary_key=("id",))
        rows = [{"id": 1, "text": "a"}, {"id": 2, "text": "b"}, {"id": 1, "text": "c"}]
        assert warehouse.write(Load("1", "t"), stream(rows, _NUMBERS)).rows == 3
        assert sorted(self.pairs(warehouse)) == [(1, "c"), (2, "b")]
        warehouse.write(Load("2", "t"), stream([{"id": 2, "text": "d"}, {"id": 3, "text": "e"}], _NUMBERS))
        assert sorted(self.pairs(warehouse)) == [(1, "c"), (2, "d"), (3, "e")]
        warehouse.write(Load("3", "t"), stream([{"id": 3}], {"id": JsonType.INT64}))
        assert sorted(self.pairs(warehouse), key=str) == [(1, "c"), (2, "d"), (3, None)]

    def test_a_key_may_have_several_columns(self, place: Place[Warehouse]) -> None:
        """Rows are the same when all columns of the key agree."""
        warehouse = place.open()
        types = {"a": JsonType.INT64, "b": JsonType.STRING, "c": JsonType.INT64}
        warehouse.patch("t", [CreateTable(table("t", types, primary_key=("b", "a")))])
        rows = [{"a": 1, "b": "x", "c": 1}, {"a": 1, "b": "y", "c": 2}, {"a": 1, "b": "x", "c": 3}]
        warehouse.write(Load("1", "t"), stream(rows, types))
        assert sorted((row["b"], row["c"]) for row in self.rows(warehouse, "t")) == [("x", 3), ("y", 2)]

    def test_one_of_many_writes_a_load(self, place: Place[Warehouse]) -> None:
        """However many write the same load at the same time, its rows are there once, and all get its receipt."""
        self.with_table(place)
        warehouses = [place.open() for _ in range(6)]
        for number in range(4):
            load = Load(f"key-{number}", "t")
            receipts = together([partial(w.write, load, numbered(*range(5))) for w in warehouses])
            assert receipts == [Receipt(load, 5)] * len(warehouses)
        assert self.ids(warehouses[0]) == sorted(4 * list(range(5)))

    @pytest.mark.parametrize("primary_key", [(), ("id",)])
    def test_processes_write_side_by_side(
        self, place: Place[Warehouse], primary_key: tuple[str, ...]
    ) -> None:
        """Loads of several processes into one table are all there, also when they meet in the same rows."""
        self.with_table(place, primary_key=primary_key)
        warehouses = [place.open() for _ in range(4)]

        def work(number: int) -> list[Receipt]:
            rows = numbered(*range(20)) if number % 2 else numbered(*reversed(range(20)))
            return [warehouses[number].write(Load(f"{number}-{n}", "t"), rows) for n in range(3)]

        shares = together([partial(work, number) for number in range(4)])
        assert [receipt.rows for share in shares for receipt in share] == [20] * 12
        assert self.ids(warehouses[0]) == sorted((1 if primary_key else 12) * list(range(20)))

    # Crashes

    def test_a_crash_keeps_loads_and_tables(self, place: Place[Warehouse]) -> None:
        """What `patch` and `write` returned is durable."""
        warehouse = self.with_table(place)
        receipt = warehouse.write(Load("key", "t", b"lineage"), numbered(1, 2))
        patched = warehouse.patch("t", [AddColumn("t", Column("more", JsonType.BOOL))])
        warehouse = place.revive(warehouse)
        assert warehouse.describe("t") == patched
        assert warehouse.receipt("key") == receipt
        assert warehouse.write(Load("key", "t"), numbered(1, 2)) == receipt
        assert self.ids(warehouse) == [1, 2]

    @pytest.mark.parametrize("moment", range(5))
    def test_dying_while_writing_leaves_all_or_nothing(self, place: Place[Warehouse], moment: int) -> None:
        """Rows and receipt are there together or not at all; written again, the rows are there once."""
        warehouse = self.with_table(place)
        load = Load("key", "t")
        place.lose(warehouse)
        self.write_and_die(warehouse, load, numbered(1, 2, 3, 4), moment)
        warehouse = place.open()
        there = warehouse.receipt("key")
        assert there in (None, Receipt(load, 4))
        assert self.ids(warehouse) == ([] if there is None else [1, 2, 3, 4])
        assert warehouse.write(load, numbered(1, 2, 3, 4)) == Receipt(load, 4)
        assert self.ids(warehouse) == [1, 2, 3, 4]

    def with_table(self, place: Place[Warehouse], primary_key: tuple[str, ...] = ()) -> Warehouse:
        """Open it with a table for numbers."""
        warehouse = place.open()
        warehouse.patch("t", [CreateTable(table("t", _NUMBERS, primary_key=primary_key))])
        return warehouse

    def ids(self, warehouse: Warehouse) -> list[int]:
        """The ids in the table for numbers, sorted."""
        return sorted(row["id"] for row in self.rows(warehouse, "t"))

    def pairs(self, warehouse: Warehouse) -> list[tuple[int | None, str | None]]:
        """The rows of the table for numbers."""
        return [(row["id"], row["text"]) for row in self.rows(warehouse, "t")]


def table(name: str, types: Mapping[str, JsonType], primary_key: tuple[str, ...] = ()) -> Table:
    """A table with columns of these types."""
    return Table(name, {column: Column(column, kind) for column, kind in types.items()}, primary_key)


def exactly(row: Mapping[str, Any]) -> str:
    """A row as text that differs when a value or its type does; all time zones are shown as UTC."""
    values = {
        name: value.astimezone(UTC) if isinstance(value, datetime) else value for name, value in row.items()
    }
    return repr(sorted(values.items()))


def stream(rows: Sequence[Mapping[str, Any]], types: Mapping[str, JsonType]) -> pa.Table:
    """Rows as Arrow, with columns of these types in this order."""
    schema = pa.schema([(name, _ARROW[kind]) for name, kind in types.items()])
    return pa.Table.from_pylist(list(rows), schema=schema)


def numbered(*ids: int) -> pa.Table:
    """Rows for the table for numbers."""
    return stream([{"id": number, "text": str(number)} for number in ids], _NUMBERS)


def breaking() -> pa.RecordBatchReader:
    """A stream that fails after its first piece."""
    piece = numbered(1, 2)

    def pieces() -> Iterator[pa.RecordBatch]:
        yield from piece.to_batches()
        raise OSError("the source has gone away")

    return pa.RecordBatchReader.from_batches(piece.schema, pieces())
