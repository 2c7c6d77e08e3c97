"""What the type checker infers for users of the public functions; the assertions are mypy's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, assert_type
from uuid import UUID

from thence.core.clock import Clock, SystemClock
from thence.core.closure import Closure
from thence.core.event import Record
from thence.core.facet import merge
from thence.core.fingerprint import Fingerprint
from thence.core.graph import Graph, graph
from thence.core.ids import IdFactory, time_of
from thence.core.ports import (
    Backend,
    Cursor,
    DeadLetter,
    DeadLetters,
    Journal,
    Lease,
    Lock,
    OffsetLog,
    OffsetRecord,
    Warehouse,
)
from thence.core.table import BatchHeader, Operation, Table, apply, plan
from thence.core.types import JsonType, promote
from thence.testing.clock import ManualClock
from thence.testing.faults import FaultProxy
from thence.testing.memory import (
    MemoryDeadLetters,
    MemoryJournal,
    MemoryLock,
    MemoryOffsetLog,
    MemoryWarehouse,
    RecordingBackend,
)


def test_values_and_functions() -> None:
    assert_type(promote(JsonType.BOOL, JsonType.INT64), JsonType)
    assert_type(plan(None, BatchHeader("t", {})), tuple[Operation, ...])
    assert_type(apply(None, ()), Table | None)
    assert_type(graph([("a", "b")]), Graph[str])
    assert_type(graph([(1, 2)]).around(1).nodes, tuple[int, ...])
    assert_type(graph([(1, 2)]).children(), Mapping[int, tuple[int, ...]])
    assert_type(Closure[UUID]().with_edges([]), Closure[UUID])
    assert_type(Closure[str]().pairs(), set[tuple[str, str, int]])
    assert_type(merge([]), dict[str, Mapping[str, Any]])
    assert_type(Fingerprint.parse("xxh3:0123456789abcdef:1"), Fingerprint)
    assert_type(IdFactory()(), UUID)
    assert_type(time_of(IdFactory()()), datetime)


def test_implementations_are_ports() -> None:
    clocks: list[Clock] = [SystemClock(), ManualClock()]
    journal: Journal = MemoryJournal()
    lock: Lock = MemoryLock(clock=clocks[1])
    offsets: OffsetLog = MemoryOffsetLog()
    letters: DeadLetters = MemoryDeadLetters()
    backend: Backend = RecordingBackend()
    warehouse: Warehouse = MemoryWarehouse()
    assert_type(journal.append([]), range)
    assert_type(journal.cursor("a"), Cursor)
    assert_type(journal.cursor("a").read(1), Sequence[Record])
    assert_type(lock.acquire("a", holder="b", seconds=1), Lease)
    assert_type(offsets.latest("a"), OffsetRecord | None)
    assert_type(letters.find(), Sequence[DeadLetter])
    assert_type(letters.count(), Mapping[tuple[str, str], int])
    assert_type(warehouse.describe("t"), Table | None)
    assert backend is not None


def test_the_proxy_says_where_it_is() -> None:
    proxy = FaultProxy(("127.0.0.1", 1))
    assert_type(proxy.connections, int)
    with proxy:
        assert_type(proxy.address, tuple[str, int])
