"""A warehouse in memory: rows as dictionaries, receipts beside them. Needs pyarrow to read what it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from thence.core.errors import Rejected
from thence.core.ports import ArrowStream, Load, Receipt, Warehouse
from thence.core.table import Operation, Table, apply
from thence.testing.memory.disk import Disk

Row = Mapping[str, Any]


class _State(msgspec.Struct):
    tables: dict[str, Table] = {}
    rows: dict[str, list[Row]] = {}
    receipts: dict[str, Receipt] = {}


class MemoryWarehouse(Warehouse):
    """A `Warehouse` whose disk is an object. `rows` shows what a table holds."""

    def __init__(self, disk: Disk | None = None) -> None:
        self._disk = disk or Disk()
        self._state = self._disk.state("warehouse", _State)

    def describe(self, table: str) -> Table | None:
        """The table as it stands now."""
        with self._disk.lock:
            return self._state.tables.get(table)

    def patch(self, table: str, operations: Sequence[Operation]) -> Table:
        """Apply operations; return the table afterwards."""
        with self._disk.lock:
            patched = apply(self.describe(table), operations)
            if patched is None:
                raise _missing(table)
            self._disk.reach()
            self._state.tables[table] = patched
            return patched

    def write(self, load: Load, rows: ArrowStream) -> Receipt:
        """Write all rows of a load, once."""
        import pyarrow as pa

        with self._disk.lock:
            written = self.receipt(load.key)
            if written is not None:
                return written
            table = self.describe(load.table)
            if table is None:
                raise _missing(load.table)
            reader = pa.RecordBatchReader.from_stream(rows)
            _check_columns(table, reader.schema.names)
            given = [row for batch in reader for row in batch.to_pylist()]
            receipt = Receipt(load, len(given))
            kept = _merge(table, self.rows(load.table), [_fit(table, row) for row in given])
            for _ in given:
                self._disk.reach()
            # From here on nothing can fail: rows and receipt are there together.
            self._state.rows[load.table] = kept
            self._state.receipts[load.key] = receipt
            return receipt

    def receipt(self, key: str) -> Receipt | None:
        """Whether a load is there."""
        with self._disk.lock:
            return self._state.receipts.get(key)

    def rows(self, table: str) -> list[Row]:
        """All rows of a table, with all its columns."""
        with self._disk.lock:
            described = self._state.tables[table]
            return [_fit(described, row) for row in self._state.rows.get(table, [])]


def _check_columns(table: Table, names: Sequence[str]) -> None:
    unknown = set(names) - table.columns.keys()
    if unknown:
        raise Rejected(
            "warehouse.columns",
            f"the table {table.name} has no column {', '.join(sorted(unknown))}",
            advice="Patch the table with the header of the batch before writing it.",
        )


def _fit(table: Table, row: Row) -> Row:
    return {name: row.get(name) for name in table.columns}


def _merge(table: Table, old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    if not table.primary_key:
        return [*old, *new]
    by_key = {tuple(row[name] for name in table.primary_key): row for row in [*old, *new]}
    return list(by_key.values())


def _missing(table: str) -> Rejected:
    return Rejected(
        "warehouse.missing",
        f"the table {table} is not there",
        advice="Create it with a patch, or look whether somebody dropped it.",
    )
