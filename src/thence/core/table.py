"""Tables as the loader sees them, and the frozen operations by which one becomes another.

A `BatchHeader` is what a batch of events needs; a `Table` is what stands in the destination. `plan` compares them and
returns operations, which can be printed, compared and applied. Rendering them as SQL is the destination's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from thence.core.errors import Rejected
from thence.core.types import JsonType, promote, widens_to


class Column(msgspec.Struct, frozen=True):
    """A column and the widest JSON type seen in it; `sql_type` is set where somebody declared one."""

    name: str
    type: JsonType
    sql_type: str | None = None


class BatchHeader(msgspec.Struct, frozen=True):
    """The columns that a batch of events needs in one table."""

    table: str
    columns: Mapping[str, Column]

    def merge(self, other: BatchHeader) -> BatchHeader:
        """The header of both batches. Order does not matter, except for that of the columns."""
        merged = dict(self.columns)
        for name, column in other.columns.items():
            merged[name] = _meet(merged[name], column) if name in merged else column
        return BatchHeader(self.table, merged)


class Table(msgspec.Struct, frozen=True):
    """A table of a destination."""

    name: str
    columns: Mapping[str, Column]
    primary_key: tuple[str, ...] = ()


class CreateTable(msgspec.Struct, frozen=True, tag=True):
    """Make a table that is not there."""

    table: Table


class AddColumn(msgspec.Struct, frozen=True, tag=True):
    """Add a column that is not there."""

    table: str
    column: Column


class WidenColumn(msgspec.Struct, frozen=True, tag=True):
    """Let a column hold a wider type; every value in it stays what it was."""

    table: str
    column: str
    before: JsonType
    after: JsonType


class SetPrimaryKey(msgspec.Struct, frozen=True, tag=True):
    """Set, replace or (when empty) drop the primary key."""

    table: str
    columns: tuple[str, ...]


Operation = CreateTable | AddColumn | WidenColumn | SetPrimaryKey


def plan(
    table: Table | None, header: BatchHeader, primary_key: tuple[str, ...] = ()
) -> tuple[Operation, ...]:
    """What must be done to a table so that it takes a batch; nothing when it already does."""
    if table is None:
        return (CreateTable(Table(header.table, dict(header.columns), primary_key)),)
    operations: list[Operation] = []
    for name, wanted in header.columns.items():
        present = table.columns.get(name)
        if present is None:
            operations.append(AddColumn(table.name, wanted))
        elif present.sql_type is None and not widens_to(wanted.type, present.type):
            wider = promote(present.type, wanted.type)
            operations.append(WidenColumn(table.name, name, present.type, wider))
    if primary_key != table.primary_key:
        operations.append(SetPrimaryKey(table.name, primary_key))
    return tuple(operations)


def apply(table: Table | None, operations: Iterable[Operation]) -> Table | None:
    """The table as it stands after the operations: the model that destinations are tested against.

    An operation whose effect is there already does nothing. So a plan that was made from an older look at the table
    never takes anything away from it.
    """
    for operation in operations:
        if isinstance(operation, CreateTable):
            table = table or operation.table
        elif table is None:
            raise Rejected(
                "warehouse.missing",
                f"the table {operation.table} is not there",
                advice="Look at the table again and make a new plan.",
            )
        else:
            table = _alter(table, operation)
    return table


def _alter(table: Table, operation: AddColumn | WidenColumn | SetPrimaryKey) -> Table:
    match operation:
        case AddColumn(_, column):
            columns = {**table.columns, column.name: table.columns.get(column.name, column)}
        case WidenColumn(_, name, _, after):
            columns = {**table.columns, name: _widened(table, name, after)}
        case SetPrimaryKey(_, key):
            return msgspec.structs.replace(table, primary_key=key)
    return msgspec.structs.replace(table, columns=columns)


def _widened(table: Table, name: str, after: JsonType) -> Column:
    column = table.columns.get(name)
    if column is None:
        raise Rejected(
            "warehouse.missing",
            f"the table {table.name} has no column {name}",
            advice="Look at the table again and make a new plan.",
        )
    return msgspec.structs.replace(column, type=promote(column.type, after))


def _meet(one: Column, other: Column) -> Column:
    # A declared type is the same in every batch; should it not be, the choice must not depend on order.
    declared = max(one.sql_type or "", other.sql_type or "") or None
    return Column(one.name, promote(one.type, other.type), declared)
