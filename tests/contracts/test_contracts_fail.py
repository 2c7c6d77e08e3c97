"""The suites catch what they are for.

Each implementation here breaks one promise, and a test of its suite must say so; the same test passes with the one
that is not broken.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, TypeVar
from uuid import UUID

import msgspec
import pytest

from thence.core.clock import Clock
from thence.core.errors import InvariantBroken, OutcomeUnknown, Rejected, Unavailable
from thence.core.event import Event, Record
from thence.core.ports import (
    ArrowStream,
    Cursor,
    DeadLetter,
    Lease,
    Load,
    OffsetRecord,
    Receipt,
    Sent,
)
from thence.core.table import Column, Operation, Table, WidenColumn
from thence.core.tally import Settled
from thence.testing.contracts.backend import BackendContract
from thence.testing.contracts.clock import ClockContract
from thence.testing.contracts.deadletters import DeadLettersContract
from thence.testing.contracts.journal import JournalContract
from thence.testing.contracts.lock import LockContract
from thence.testing.contracts.offsets import OffsetLogContract
from thence.testing.contracts.place import Contract
from thence.testing.contracts.warehouse import WarehouseContract
from thence.testing.memory import (
    Disk,
    MemoryDeadLetters,
    MemoryJournal,
    MemoryLock,
    MemoryOffsetLog,
    MemoryWarehouse,
    RecordingBackend,
)

# An assertion, `pytest.raises` that saw nothing, or an error of thence where none was expected.
FAILURES = (AssertionError, pytest.fail.Exception, Rejected, Unavailable, OutcomeUnknown, InvariantBroken)

Port = TypeVar("Port")


def catches(contract: Contract[Port], name: str, directory: Path, *arguments: object) -> None:
    """Run one test of a suite against something broken, and expect it to fail."""
    with contract.at(directory) as place, pytest.raises(FAILURES):
        getattr(contract, name)(place, *arguments)


def passes(contract: Contract[Port], name: str, directory: Path, *arguments: object) -> None:
    """Run one test of a suite against something that is not broken in this respect."""
    with contract.at(directory) as place:
        getattr(contract, name)(place, *arguments)


# Journals


class Journals(JournalContract):
    """A suite over journals that a test gives it; `forgets` loses everything in a crash."""

    def __init__(self, kind: Callable[..., MemoryJournal], *, forgets: bool = False) -> None:
        self.kind = kind
        self.disk = Disk()
        self.forgets = forgets

    def open(self, directory: Path, clock: Clock) -> MemoryJournal:
        return self.kind(self.disk)

    def open_small(
        self, directory: Path, clock: Clock, *, when_full: Literal["refuse", "expire_oldest"]
    ) -> MemoryJournal:
        return self.kind(self.disk, max_records=10, when_full=when_full)

    def crash(self, opened: object) -> None:
        if self.forgets:
            self.disk = Disk()


class StartsAtZero(MemoryJournal):
    def append(self, events: Sequence[Event]) -> range:
        positions = super().append(events)
        return range(positions.start - 1, positions.stop - 1)


class InterleavesAppends(MemoryJournal):
    def append(self, events: Sequence[Event]) -> range:
        positions: list[int] = []
        for event in events:
            time.sleep(0.0001)  # as a store does that waits for its disk
            positions += super().append([event])
        return range(positions[0], positions[0] + len(events)) if positions else range(1, 1)


class TakesHalfWhenFull(MemoryJournal):
    def append(self, events: Sequence[Event]) -> range:
        positions = [super(TakesHalfWhenFull, self).append([event])[0] for event in events]
        return range(positions[0], positions[-1] + 1) if positions else range(1, 1)


class ExpiresUncounted(MemoryJournal):
    def _expire(self) -> None:
        while self._max_records is not None and len(self._state.records) > self._max_records:
            lost = self._state.records.popleft().position
            for name, settled in self._state.cursors.items():
                if settled.total < lost:
                    skipped = settled.skipped + lost - settled.total
                    self._state.cursors[name] = msgspec.structs.replace(settled, skipped=skipped)


class OfCursors(MemoryJournal):
    """A journal whose cursors are wrapped."""

    wrapper: type[Wrapped]

    def cursor(self, name: str, *, start: Literal["oldest", "newest"] = "oldest") -> Cursor:
        return self.wrapper(super().cursor(name, start=start))


class Wrapped(Cursor):
    def __init__(self, inner: Cursor) -> None:
        self.inner = inner
        self.read_already = 0

    def read(self, limit: int, *, ahead: int = 0) -> Sequence[Record]:
        return self.inner.read(limit, ahead=ahead)

    def settle(self, settled: Settled) -> None:
        self.inner.settle(settled)

    def tally(self) -> Any:
        return self.inner.tally()


class MovesOnReading(Wrapped):
    def read(self, limit: int, *, ahead: int = 0) -> Sequence[Record]:
        records = self.inner.read(limit, ahead=ahead + self.read_already)
        self.read_already += len(records)
        return records


class SettlesWhatThereIs(Wrapped):
    def settle(self, settled: Settled) -> None:
        waiting = self.inner.tally().waiting
        self.inner.settle(Settled(delivered=min(waiting, settled.total)))


class MixesKinds(Wrapped):
    def settle(self, settled: Settled) -> None:
        self.inner.settle(Settled(delivered=settled.total))


class BelievesTheLatestPlace(Wrapped):
    def settle(self, settled: Settled) -> None:
        self.inner.read(0)
        self.inner.settle(settled)


class IgnoresAhead(Wrapped):
    def read(self, limit: int, *, ahead: int = 0) -> Sequence[Record]:
        return self.inner.read(limit)


class SkipsNothing(MemoryJournal):
    def cursor(self, name: str, *, start: Literal["oldest", "newest"] = "oldest") -> Cursor:
        return super().cursor(name)


class RemembersDropped(MemoryJournal):
    def drop_cursor(self, name: str) -> None:
        pass


class DropsLoudly(MemoryJournal):
    def drop_cursor(self, name: str) -> None:
        if name not in self.cursors():
            raise Rejected("journal.unknown", name)
        super().drop_cursor(name)


def wrapped(wrapper: type[Wrapped]) -> type[MemoryJournal]:
    return type("Broken", (OfCursors,), {"wrapper": wrapper})


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (StartsAtZero, "test_positions_start_at_one_and_leave_no_gaps"),
        (InterleavesAppends, "test_threads_append_side_by_side"),
        (TakesHalfWhenFull, "test_a_batch_is_refused_whole"),
        (ExpiresUncounted, "test_what_expires_is_counted"),
        (wrapped(MovesOnReading), "test_reading_does_not_move"),
        (wrapped(IgnoresAhead), "test_reading_ahead_leaves_records_out"),
        (wrapped(SettlesWhatThereIs), "test_settling_more_than_waits_is_refused"),
        (wrapped(MixesKinds), "test_settling_moves_and_counts"),
        (wrapped(BelievesTheLatestPlace), "test_expiry_does_not_mislead_a_reader"),
        (SkipsNothing, "test_a_new_cursor_can_start_after_the_newest"),
        (SkipsNothing, "test_a_new_cursor_is_durable"),
        (RemembersDropped, "test_a_dropped_cursor_is_forgotten"),
        (RemembersDropped, "test_a_dropped_cursor_is_of_no_use"),
        (RemembersDropped, "test_dropping_a_cursor_makes_room"),
        (DropsLoudly, "test_dropping_an_unknown_cursor_does_nothing"),
    ],
)
def test_a_broken_journal_is_caught(kind: Callable[..., MemoryJournal], name: str, tmp_path: Path) -> None:
    passes(Journals(MemoryJournal), name, tmp_path)
    catches(Journals(kind), name, tmp_path)


@pytest.mark.parametrize(
    "name",
    ["test_a_crash_keeps_what_was_appended", "test_a_crash_keeps_cursors_and_their_counts"],
)
def test_a_forgetful_journal_is_caught(name: str, tmp_path: Path) -> None:
    catches(Journals(MemoryJournal, forgets=True), name, tmp_path)


def test_a_journal_that_loses_the_front_of_a_batch_is_caught(tmp_path: Path) -> None:
    class Loses(Journals):
        def append_and_die(self, opened: Any, batch: Sequence[Event], moment: int) -> None:
            opened.append(batch[1:])

    catches(Loses(MemoryJournal), "test_dying_while_appending_leaves_a_prefix", tmp_path, 3)


# Locks


class Locks(LockContract):
    def __init__(self, kind: Callable[[Disk, Clock], MemoryLock], *, forgets: bool = False) -> None:
        self.kind = kind
        self.disk = Disk()
        self.forgets = forgets

    def open(self, directory: Path, clock: Clock) -> MemoryLock:
        return self.kind(self.disk, clock)

    def crash(self, opened: object) -> None:
        if self.forgets:
            self.disk = Disk()


class TokensRestart(MemoryLock):
    def release(self, lease: Lease) -> None:
        super().release(lease)
        self._state.tokens.clear()


class ForAnybody(MemoryLock):
    def acquire(self, name: str, *, holder: str, seconds: float) -> Lease:
        self._state.leases.pop(name, None)
        return super().acquire(name, holder=holder, seconds=seconds)


class Reentrant(MemoryLock):
    def acquire(self, name: str, *, holder: str, seconds: float) -> Lease:
        held = self._state.leases.get(name)
        if held is not None and held.holder == holder:
            return held
        return super().acquire(name, holder=holder, seconds=seconds)


class NeverExpires(MemoryLock):
    def acquire(self, name: str, *, holder: str, seconds: float) -> Lease:
        return super().acquire(name, holder=holder, seconds=seconds * 1000)


class ReleasesByHolder(MemoryLock):
    def release(self, lease: Lease) -> None:
        held = self._state.leases.get(lease.name)
        if held is not None and held.holder == lease.holder:
            super().release(held)


class RenewsTheExpired(MemoryLock):
    def renew(self, lease: Lease, *, seconds: float) -> Lease:
        held = self._state.leases.get(lease.name)
        if held is not None and held.token == lease.token:
            return self._keep(msgspec.structs.replace(held, expires_at=self._end(seconds)))
        return super().renew(lease, seconds=seconds)


class RenewsWithANewToken(MemoryLock):
    def renew(self, lease: Lease, *, seconds: float) -> Lease:
        super().renew(lease, seconds=seconds)
        self.release(lease)
        return self.acquire(lease.name, holder=lease.holder, seconds=seconds)


class NamesNobody(MemoryLock):
    def acquire(self, name: str, *, holder: str, seconds: float) -> Lease:
        try:
            return super().acquire(name, holder=holder, seconds=seconds)
        except Unavailable as error:
            raise Unavailable(error.code, "somebody has it") from None


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (TokensRestart, "test_tokens_grow_for_ever"),
        (TokensRestart, "test_a_released_lock_is_free"),
        (ForAnybody, "test_a_second_holder_is_refused"),
        (ForAnybody, "test_one_of_many_gets_the_lock"),
        (NamesNobody, "test_a_second_holder_is_refused"),
        (Reentrant, "test_a_holder_is_refused_too"),
        (NeverExpires, "test_an_expired_lock_can_be_taken"),
        (NeverExpires, "test_a_crash_loses_the_lease_in_the_end"),
        (ReleasesByHolder, "test_releasing_a_lost_lease_frees_nothing"),
        (RenewsTheExpired, "test_an_expired_lease_cannot_be_renewed"),
        (RenewsWithANewToken, "test_renewing_keeps_the_lock"),
    ],
)
def test_a_broken_lock_is_caught(
    kind: Callable[[Disk, Clock], MemoryLock], name: str, tmp_path: Path
) -> None:
    passes(Locks(MemoryLock), name, tmp_path)
    catches(Locks(kind), name, tmp_path)


def test_a_lock_that_counts_from_one_after_a_crash_is_caught(tmp_path: Path) -> None:
    catches(Locks(MemoryLock, forgets=True), "test_tokens_grow_for_ever", tmp_path)


# Offsets


class OffsetLogs(OffsetLogContract):
    def __init__(self, kind: Callable[[Disk], MemoryOffsetLog], *, forgets: bool = False) -> None:
        self.kind = kind
        self.disk = Disk()
        self.forgets = forgets

    def open(self, directory: Path, clock: Clock) -> MemoryOffsetLog:
        return self.kind(self.disk)

    def crash(self, opened: object) -> None:
        if self.forgets:
            self.disk = Disk()


class NoFence(MemoryOffsetLog):
    def _check_token(self, app_id: str, token: int) -> None:
        pass


class FenceOfStartsOnly(MemoryOffsetLog):
    def finish(self, app_id: str, version: int, state: Literal["completed", "failed"], *, token: int) -> None:
        super().finish(app_id, version, state, token=max(token, self._stream(app_id).token))
        found = self._stream(app_id).records[version]
        self._streams[app_id].token = found.token


class FenceInMemory(MemoryOffsetLog):
    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        for stream in self._streams.values():
            stream.token = 0


class StartsOverUnresolved(MemoryOffsetLog):
    def start(self, record: OffsetRecord) -> None:
        latest = self.latest(record.app_id)
        if latest is not None and latest.state == "started":
            self.finish(record.app_id, latest.version, "failed", token=record.token)
        super().start(record)


class AnyVersion(MemoryOffsetLog):
    def start(self, record: OffsetRecord) -> None:
        self._check_token(record.app_id, record.token)
        self._write(record, record.token)


class LatestIsCompleted(MemoryOffsetLog):
    def completed(self, app_id: str) -> OffsetRecord | None:
        latest = self.latest(app_id)
        return latest if latest is not None and latest.state == "completed" else None


class ChangesItsMind(MemoryOffsetLog):
    def finish(self, app_id: str, version: int, state: Literal["completed", "failed"], *, token: int) -> None:
        record = self._stream(app_id).records.get(version)
        if record is not None:
            self._write(msgspec.structs.replace(record, state=state), token)
        else:
            super().finish(app_id, version, state, token=token)


class OneChain(MemoryOffsetLog):
    def start(self, record: OffsetRecord) -> None:
        super().start(msgspec.structs.replace(record, app_id=record.app_id.lower()))


class SortsVersionsAsText(MemoryOffsetLog):
    def completed(self, app_id: str) -> OffsetRecord | None:
        done = [r for r in self._stream(app_id).records.values() if r.state == "completed"]
        return max(done, key=lambda record: str(record.version), default=None)


@pytest.mark.parametrize(
    ("kind", "name", "arguments"),
    [
        (NoFence, "test_an_older_token_cannot_start", ()),
        (NoFence, "test_an_older_token_cannot_finish", ()),
        (FenceOfStartsOnly, "test_finishing_fences_too", ()),
        (FenceInMemory, "test_a_crash_keeps_the_fence", ()),
        (StartsOverUnresolved, "test_an_unresolved_record_stands_in_the_way", ()),
        (AnyVersion, "test_versions_are_a_chain", (4,)),
        (AnyVersion, "test_versions_are_a_chain", (1,)),
        (AnyVersion, "test_one_of_many_starts_a_version", ()),
        (LatestIsCompleted, "test_a_completed_record_is_the_truth", ()),
        (ChangesItsMind, "test_what_is_resolved_stays_so", ()),
        (OneChain, "test_streams_do_not_touch_each_other", ()),
        (SortsVersionsAsText, "test_many_versions_stay_in_order", ()),
    ],
)
def test_a_broken_offset_log_is_caught(
    kind: Callable[[Disk], MemoryOffsetLog], name: str, arguments: tuple[object, ...], tmp_path: Path
) -> None:
    passes(OffsetLogs(MemoryOffsetLog), name, tmp_path, *arguments)
    catches(OffsetLogs(kind), name, tmp_path, *arguments)


@pytest.mark.parametrize(
    "name", ["test_a_crash_keeps_what_was_started", "test_a_crash_keeps_what_was_finished"]
)
def test_a_forgetful_offset_log_is_caught(name: str, tmp_path: Path) -> None:
    catches(OffsetLogs(MemoryOffsetLog, forgets=True), name, tmp_path)


# Dead letters


class Letters(DeadLettersContract):
    def __init__(self, kind: Callable[[Disk], MemoryDeadLetters], *, forgets: bool = False) -> None:
        self.kind = kind
        self.disk = Disk()
        self.forgets = forgets

    def open(self, directory: Path, clock: Clock) -> MemoryDeadLetters:
        return self.kind(self.disk)

    def crash(self, opened: object) -> None:
        if self.forgets:
            self.disk = Disk()


class KeepsTheFirst(MemoryDeadLetters):
    def put(self, letters: Sequence[DeadLetter]) -> None:
        super().put([letter for letter in letters if letter.id not in self._letters])


class Unordered(MemoryDeadLetters):
    def find(self, **filters: Any) -> Sequence[DeadLetter]:
        everything = super().find(**{**filters, "limit": 10_000})
        return everything[::-1][: filters.get("limit", 100)]


class LimitsBeforeFiltering(MemoryDeadLetters):
    def find(self, *, limit: int = 100, **filters: Any) -> Sequence[DeadLetter]:
        first = {letter.id for letter in super().find(limit=limit)}
        return [letter for letter in super().find(**filters) if letter.id in first]


class EitherFilter(MemoryDeadLetters):
    def find(self, *, stage: str | None = None, code: str | None = None, **more: Any) -> Sequence[DeadLetter]:
        return super().find(stage=stage, **more) if stage else super().find(code=code, **more)


class CountsWhatWasAsked(MemoryDeadLetters):
    def remove(self, ids: Iterable[UUID]) -> int:
        asked = list(ids)
        super().remove(asked)
        return len(asked)


class CountsZeros(MemoryDeadLetters):
    def count(self) -> Mapping[tuple[str, str], int]:
        return defaultdict(int, super().count()) | {("a", "x"): 0, ("b", "x"): 0}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (KeepsTheFirst, "test_putting_an_id_again_replaces_the_letter"),
        (Unordered, "test_letters_are_found_in_the_order_of_their_ids"),
        (LimitsBeforeFiltering, "test_a_limit_takes_the_first"),
        (EitherFilter, "test_letters_are_found_by_stage_and_code"),
        (CountsWhatWasAsked, "test_removing_says_how_many_were_there"),
        (CountsZeros, "test_letters_are_counted_by_stage_and_code"),
    ],
)
def test_broken_dead_letters_are_caught(
    kind: Callable[[Disk], MemoryDeadLetters], name: str, tmp_path: Path
) -> None:
    passes(Letters(MemoryDeadLetters), name, tmp_path)
    catches(Letters(kind), name, tmp_path)


def test_forgetful_dead_letters_are_caught(tmp_path: Path) -> None:
    catches(Letters(MemoryDeadLetters, forgets=True), "test_a_crash_keeps_letters", tmp_path)


def test_dead_letters_that_keep_a_half_are_caught(tmp_path: Path) -> None:
    class Half(Letters):
        def put_and_die(self, opened: Any, batch: Sequence[DeadLetter], moment: int) -> None:
            opened.put(batch[:moment])

    catches(Half(MemoryDeadLetters), "test_dying_while_putting_leaves_all_or_none", tmp_path, 2)


# Backends


class Backends(BackendContract):
    def __init__(self, kind: Callable[[Disk], RecordingBackend]) -> None:
        self.kind = kind
        self.disk = Disk()

    def open(self, directory: Path, clock: Clock) -> RecordingBackend:
        return self.kind(self.disk)

    def crash(self, opened: object) -> None:
        pass

    def arrived(self, place: object) -> Sequence[bytes]:
        return [event.payload for event in RecordingBackend(self.disk).arrived]

    def refuse(self, place: object, refused: Event) -> None:
        RecordingBackend(self.disk).refused.add(refused.id)

    def unreachable(self, place: object) -> AbstractContextManager[None]:
        return RecordingBackend(self.disk).unreachable()

    def losing_answers(self, place: object) -> AbstractContextManager[None]:
        return RecordingBackend(self.disk).losing_answers()


class Reorders(RecordingBackend):
    async def send(self, events: Sequence[Event]) -> Sent:
        return await super().send(events[::-1])


class StepsOverRefusals(RecordingBackend):
    async def send(self, events: Sequence[Event]) -> Sent:
        sent = await super().send([event for event in events if event.id not in self.refused])
        return Sent(sent.delivered, "one was refused") if sent.delivered < len(events) else sent


class ForgetsOneRefusal(RecordingBackend):
    async def send(self, events: Sequence[Event]) -> Sent:
        sent = await super().send(events)
        self.refused.clear()
        return sent


class SaysUnavailable(RecordingBackend):
    async def send(self, events: Sequence[Event]) -> Sent:
        try:
            return await super().send(events)
        except OutcomeUnknown as error:
            raise Unavailable(error.code, error.message) from None


class SendsAnyway(RecordingBackend):
    async def send(self, events: Sequence[Event]) -> Sent:
        try:
            return await super().send(events)
        except Unavailable:
            self.arrived.extend(events)
            raise


class ConfirmsTooEarly(RecordingBackend):
    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        self.kept: list[Event] = []

    async def send(self, events: Sequence[Event]) -> Sent:
        self.kept.extend(events)
        return Sent(len(events))

    async def close(self) -> None:
        await super().send(self.kept)


class ClosesOnce(RecordingBackend):
    async def close(self) -> None:
        assert not self.closed
        await super().close()


class HangsAfterCancellation(RecordingBackend):
    async def send(self, events: Sequence[Event]) -> Sent:
        if self.closed:
            raise Unavailable("backend.busy", "another send is under way")
        self.closed = True
        sent = await super().send(events)
        self.closed = False
        return sent


@pytest.mark.parametrize(
    ("kind", "name", "arguments"),
    [
        (Reorders, "test_events_arrive_in_order", ()),
        (StepsOverRefusals, "test_a_refusal_keeps_what_came_before", (1,)),
        (StepsOverRefusals, "test_a_refusal_keeps_what_came_before", (0,)),
        (ForgetsOneRefusal, "test_a_refusal_stands", ()),
        (SaysUnavailable, "test_a_lost_answer_is_no_definite_failure", ()),
        (SendsAnyway, "test_unavailable_means_that_nothing_arrived", ()),
        (ConfirmsTooEarly, "test_a_crash_takes_nothing_back", ()),
        (ClosesOnce, "test_closing_twice_does_nothing", ()),
        (HangsAfterCancellation, "test_a_cancelled_send_leaves_a_prefix", ()),
    ],
)
def test_a_broken_backend_is_caught(
    kind: Callable[[Disk], RecordingBackend], name: str, arguments: tuple[object, ...], tmp_path: Path
) -> None:
    passes(Backends(RecordingBackend), name, tmp_path, *arguments)
    catches(Backends(kind), name, tmp_path, *arguments)


# Warehouses


class Warehouses(WarehouseContract):
    def __init__(self, kind: Callable[[Disk], MemoryWarehouse], *, forgets: bool = False) -> None:
        self.kind = kind
        self.disk = Disk()
        self.forgets = forgets

    def open(self, directory: Path, clock: Clock) -> MemoryWarehouse:
        return self.kind(self.disk)

    def crash(self, opened: object) -> None:
        if self.forgets:
            self.disk = Disk()

    def rows(self, opened: Any, table: str) -> Sequence[Mapping[str, Any]]:
        found: Sequence[Mapping[str, Any]] = opened.rows(table)
        return found


class WritesTwice(MemoryWarehouse):
    def receipt(self, key: str) -> Receipt | None:
        return None


class KeysByAttempt(MemoryWarehouse):
    attempts = itertools.count()

    def write(self, load: Load, rows: ArrowStream) -> Receipt:
        attempt = f"{load.key}#{next(self.attempts)}"
        return super().write(msgspec.structs.replace(load, key=attempt), rows)


class DropsUnknownColumns(MemoryWarehouse):
    def write(self, load: Load, rows: ArrowStream) -> Receipt:
        import pyarrow as pa

        whole = pa.RecordBatchReader.from_stream(rows).read_all()
        known = [name for name in whole.column_names if name in self._state.tables[load.table].columns]
        return super().write(load, whole.select(known))


class FirstRowWins(MemoryWarehouse):
    def write(self, load: Load, rows: ArrowStream) -> Receipt:
        import pyarrow as pa

        whole = pa.RecordBatchReader.from_stream(rows).read_all()
        return super().write(load, whole.take(list(reversed(range(len(whole))))))


class LooksThenWrites(MemoryWarehouse):
    """Two processes that look for the receipt at the same time both find none."""

    def write(self, load: Load, rows: ArrowStream) -> Receipt:
        if self.receipt(load.key) is None:
            self._gate.wait()
            with self._disk.lock:
                self._state.receipts.pop(load.key, None)
                return super().write(load, rows)
        return super().write(load, rows)

    @property
    def _gate(self) -> Any:
        import threading

        return self._disk.state("gate", lambda: threading.Barrier(6, timeout=10))


class PatchesBlindly(MemoryWarehouse):
    def patch(self, table: str, operations: Sequence[Operation]) -> Table:
        patched = super().patch(table, operations)
        for operation in operations:
            if isinstance(operation, WidenColumn):
                columns = {**patched.columns, operation.column: Column(operation.column, operation.after)}
                patched = msgspec.structs.replace(patched, columns=columns)
        self._state.tables[table] = patched
        return patched


@pytest.mark.parametrize(
    ("kind", "name", "arguments"),
    [
        (WritesTwice, "test_the_same_load_is_written_once", ()),
        (KeysByAttempt, "test_the_same_load_is_written_once", ()),
        (KeysByAttempt, "test_a_crash_keeps_loads_and_tables", ()),
        (DropsUnknownColumns, "test_an_unknown_column_is_refused", ()),
        (FirstRowWins, "test_the_last_row_with_a_key_wins", ()),
        (LooksThenWrites, "test_one_of_many_writes_a_load", ()),
        (PatchesBlindly, "test_a_stale_plan_takes_nothing_away", ()),
    ],
)
def test_a_broken_warehouse_is_caught(
    kind: Callable[[Disk], MemoryWarehouse], name: str, arguments: tuple[object, ...], tmp_path: Path
) -> None:
    passes(Warehouses(MemoryWarehouse), name, tmp_path, *arguments)
    catches(Warehouses(kind), name, tmp_path, *arguments)


def test_a_forgetful_warehouse_is_caught(tmp_path: Path) -> None:
    catches(Warehouses(MemoryWarehouse, forgets=True), "test_a_crash_keeps_loads_and_tables", tmp_path)


def test_a_warehouse_that_writes_the_receipt_alone_is_caught(tmp_path: Path) -> None:
    class Dies(Warehouses):
        def write_and_die(self, opened: Any, load: Load, rows: ArrowStream, moment: int) -> None:
            opened._state.receipts[load.key] = Receipt(load, 4)

    catches(Dies(MemoryWarehouse), "test_dying_while_writing_leaves_all_or_nothing", tmp_path, 1)


# Clocks


def test_a_naive_clock_is_caught() -> None:
    class Naive:
        def now(self) -> Any:
            from datetime import datetime

            return datetime(2024, 2, 29)  # noqa: DTZ001 - a naive time is what is wrong with it

    with pytest.raises(AssertionError):
        ClockContract().test_now_is_in_utc(Naive())  # type: ignore[arg-type]
