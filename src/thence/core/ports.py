"""The ports: what the packages of thence ask of the world outside, with their promises, a crash included.

A port without a contract suite does not exist: the suites are in `thence.testing.contracts`, and every implementation
passes the same one. "Durable" means: it survives a crash of the process and a loss of power from the moment at which
the call has returned. Unless a promise says otherwise, a call that raised `Unavailable` did nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol
from uuid import UUID

import msgspec

from thence.core.errors import Violation
from thence.core.event import Event, Record
from thence.core.table import Operation, Table
from thence.core.tally import Settled, Tally

# Journal


class Journal(Protocol):
    """A durable, ordered log with one cursor for each destination.

    Appending: when `append` returns, all its events are durable, at consecutive positions, in the order given. If the
    process dies before that, any prefix of them may be there, and never an event without those before it. Positions
    are never used twice. Threads may append at the same time; a reader sees no event before those in front of it.

    Limits: to make room, a journal may forget records that every cursor has passed, and none while it has no cursor.
    When that is not enough it is full, and either refuses (`Unavailable`, code `journal.full`) or expires its oldest
    records. What expires is counted at every cursor that had not passed it.
    """

    def append(self, events: Sequence[Event]) -> range:
        """Make events durable; return their positions. Appending none changes nothing and returns an empty range."""
        ...

    def cursor(self, name: str, *, start: Literal["oldest", "newest"] = "oldest") -> Cursor:
        """Open a cursor, or make it durably.

        `start` is for a new one: at the oldest record that is still there or after the newest. All records before
        that count as skipped, whatever became of them.
        """
        ...

    def drop_cursor(self, name: str) -> None:
        """Forget a cursor, so that it holds nothing back any more. Forgetting an unknown one does nothing.

        Whoever still reads, settles or counts with it is `Rejected` (code `journal.cursor_dropped`).
        """
        ...

    def cursors(self) -> Sequence[str]:
        """The names of all cursors, sorted."""
        ...

    def close(self) -> None:
        """Let go of everything. Closing twice does nothing."""
        ...


class Cursor(Protocol):
    """One reader's place in a journal.

    A crash leaves the cursor where the last `settle` that returned put it, or one that was under way: the position and
    its counts always move together. Records read and not settled are read again: delivery is at least once.

    A cursor object serves one reader. When records expire under that reader's hands, `ahead` and `settle` still mean
    the records as its last `read` without `ahead` saw them: what it settles then was not lost, and is counted as it
    says and no longer as expired.
    """

    def read(self, limit: int, *, ahead: int = 0) -> Sequence[Record]:
        """The next records that are not settled, in order, without moving; `ahead` leaves out that many first."""
        ...

    def settle(self, settled: Settled) -> None:
        """Move past the next `settled.total` records and count what became of them, durably.

        More than are waiting is a bug of the caller: `InvariantBroken`, and nothing moves.
        """
        ...

    def tally(self) -> Tally:
        """Where everything is that was ever appended. The law holds at every moment."""
        ...


# Locks


class Lease(msgspec.Struct, frozen=True):
    """A lock that was taken. `token` grows with each taking of the same name, for ever."""

    name: str
    holder: str
    token: int
    expires_at: datetime


class Lock(Protocol):
    """Mutual exclusion with an end: a holder that died loses its lease when the time is over.

    A holder that only slept may believe that it still has the lease, so whatever a lease protects also checks the
    token and refuses an older one. Tokens grow also across releases, expiries, crashes and restarts.
    """

    def acquire(self, name: str, *, holder: str, seconds: float) -> Lease:
        """Take a free lock, or raise `Unavailable` (code `lock.held`) at once, naming the holder.

        A lock that is held is not free for its own holder either: a name is no identity.
        """
        ...

    def renew(self, lease: Lease, *, seconds: float) -> Lease:
        """Move the end of a lease that is still held, or raise `Rejected` (code `lock.lost`).

        The token stays. A lease whose time is over is lost, also when nobody else has taken the lock.
        """
        ...

    def release(self, lease: Lease) -> None:
        """Give a lease back. A lease that was lost is left alone."""
        ...


# Offsets


class OffsetRecord(msgspec.Struct, frozen=True):
    """What one commit of a stream covers: for each partition the last offset, after merging all before it."""

    app_id: str
    version: int
    offsets: Mapping[int, int]
    token: int
    state: Literal["started", "completed", "failed"] = "started"


class OffsetLog(Protocol):
    """The write-ahead log of a stream's offsets: one record for each attempt to commit, in order.

    Each change is durable and atomic. A crash between `start` and `finish` leaves a started record; whoever takes the
    lease next looks whether its commit happened and finishes it as completed or failed.
    """

    def latest(self, app_id: str) -> OffsetRecord | None:
        """The record with the highest version, whatever its state."""
        ...

    def completed(self, app_id: str) -> OffsetRecord | None:
        """The completed record with the highest version: the truth about where to go on."""
        ...

    def start(self, record: OffsetRecord) -> None:
        """Write a started record.

        Refused with `Rejected`, the first that applies: code `offsets.fenced` when a higher token has written,
        `offsets.version` when the version is not the latest plus one, `offsets.unresolved` when the latest is still
        started. The first record of a stream may have any version, so that a lost log can be rebuilt from the table.
        """
        ...

    def finish(self, app_id: str, version: int, state: Literal["completed", "failed"], *, token: int) -> None:
        """Resolve a started record; to say the same again is nothing new.

        `Rejected`: code `offsets.fenced` when a higher token has written, `offsets.unknown` when there is no such
        record, `offsets.resolved` when it was resolved the other way. A finish is a write: its token fences too.
        """
        ...


# Dead letters


class DeadLetter(msgspec.Struct, frozen=True):
    """An event that could not go on: where it stopped, why, and since when.

    `remote` and `key_id` say who sent it, as far as that is known; `violations` are the rules that it breaks.
    """

    id: UUID
    stage: str
    code: str
    reason: str
    failed_at: datetime
    event: Event
    attempts: int = 1
    remote: str = ""
    key_id: str = ""
    violations: tuple[Violation, ...] = ()


class DeadLetters(Protocol):
    """What failed, kept where an operator can see it and send it again.

    A letter that was put is durable, and stays until somebody removes it. Putting an id again replaces the letter and
    makes no second one, so that a crash between putting and whatever follows can be answered by doing both again.
    An implementation may be bounded: the oldest then expire, counted and logged, and nothing else ever goes by itself.
    """

    def put(self, letters: Sequence[DeadLetter]) -> None:
        """Keep letters, all or none. Of two with the same id the later one stays."""
        ...

    def find(
        self,
        *,
        stage: str | None = None,
        code: str | None = None,
        after: UUID | None = None,
        limit: int = 100,
    ) -> Sequence[DeadLetter]:
        """Letters in the order of their ids; `after` leaves out all up to that id, so that one can turn pages."""
        ...

    def remove(self, ids: Iterable[UUID]) -> int:
        """Remove letters that were dealt with; return how many were there."""
        ...

    def count(self) -> Mapping[tuple[str, str], int]:
        """How many there are for each stage and code that has any."""
        ...


# Sending and writing


class Sent(msgspec.Struct, frozen=True):
    """The first `delivered` events are confirmed; when `refusal` is set, the next one was refused for good."""

    delivered: int
    refusal: str | None = None


class Backend(Protocol):
    """What the forwarder sends events to.

    `Unavailable` means that none of the events arrived, `OutcomeUnknown` that some may have: the forwarder sends them
    again with the same ids, so that a backend can see that they are the same. Order is that of the sequence. A send
    that was cancelled may have delivered a prefix; the backend can be used afterwards.
    """

    async def send(self, events: Sequence[Event]) -> Sent:
        """Deliver events in order, up to the first that is refused; none after that one arrives."""
        ...

    async def close(self) -> None:
        """Let go of connections. Closing twice does nothing."""
        ...


class ArrowStream(Protocol):
    """Anything that hands out Arrow record batches through the Arrow C stream interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any: ...


class Load(msgspec.Struct, frozen=True):
    """One write into one table. `key` names its source range and never the attempt."""

    key: str
    table: str
    lineage: bytes = b""


class Receipt(msgspec.Struct, frozen=True):
    """The destination's own record of a load. `rows` counts them as they came, replaced ones included."""

    load: Load
    rows: int


class Warehouse(Protocol):
    """Tables that take loads, each exactly once.

    `write` puts the rows and the load's receipt there together or not at all. A crash, a lost answer or a second
    process that writes the same key leaves one receipt and its rows once; after `OutcomeUnknown` the receipt tells.
    """

    def describe(self, table: str) -> Table | None:
        """The table as it stands now."""
        ...

    def patch(self, table: str, operations: Sequence[Operation]) -> Table:
        """Apply operations as `core.table.apply` does; return the table afterwards.

        Operations whose effect is there already do nothing, so that a plan made from an older look at the table does
        no harm: it never narrows or removes. `Rejected` (code `warehouse.missing`) when there is no such table.
        """
        ...

    def write(self, load: Load, rows: ArrowStream) -> Receipt:
        """Write all rows of a load, or return the receipt of the same load written before.

        Columns are matched by name; those that the rows lack are null. With a primary key, the last row with a key
        wins as a whole, so that the result does not depend on how rows were divided into loads. `Rejected` when the
        rows have a column that the table has not (code `warehouse.columns`) or there is no table
        (`warehouse.missing`); then, and when reading the rows fails, nothing is written.
        """
        ...

    def receipt(self, key: str) -> Receipt | None:
        """Whether a load is there."""
        ...
