"""Dead letters in one SQLite file.

`put` is one transaction: all letters or none, on disk when it returns. Over the limits the oldest expire in the same
transaction; how many stands in the file itself and in the log. One connection, used in turns by all threads; other
processes open the file beside it, which WAL allows. A damaged file is put aside at the start, or by the first `put`
that meets the damage, and never stands in the way of what fails next.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from thence.core.clock import Clock, SystemClock
from thence.core.errors import InvariantBroken
from thence.core.ports import DeadLetter
from thence.journal.letters import database
from thence.journal.letters.limits import Expiry, LetterLimits, Totals, excess
from thence.journal.letters.queries import Filters, letter_of, query, row_of

_log = logging.getLogger(__name__)
_ALL = Filters()
_CHECKED_BYTES = 256 << 20
Result = TypeVar("Result")


class LetterCounters(msgspec.Struct):
    """What happened since the file was opened."""

    put_count: int = 0
    expired_count: int = 0
    expired_bytes: int = 0
    damaged_files: int = 0


class SqliteDeadLetters:
    """`DeadLetters` in a file. The collector owns it; a command that looks in opens it with `visit`."""

    def __init__(
        self,
        path: Path,
        limits: LetterLimits | None = None,
        clock: Clock | None = None,
        *,
        is_owner: bool = True,
    ) -> None:
        self.path = path
        self.limits = limits or LetterLimits()
        self.counters = LetterCounters()
        self._clock = clock or SystemClock()
        self._is_owner = is_owner
        self._turn = threading.Lock()
        self._is_closed = False
        with database.translating(path):
            self._connection = self._own() if is_owner else database.connect(path)

    @classmethod
    def visit(cls, path: Path, limits: LetterLimits | None = None) -> SqliteDeadLetters | None:
        """Open a file that another process may own; None when there is none."""
        return cls(path, limits, is_owner=False) if path.exists() else None

    def put(self, letters: Sequence[DeadLetter]) -> None:
        """See `DeadLetters.put`."""
        rows = [row_of(letter) for letter in letters]
        if not rows:
            return

        def work(connection: sqlite3.Connection) -> Expiry:
            connection.executemany(query("put"), rows)
            return self._expire(connection)

        self._note(self._write(work))
        self.counters.put_count += len(rows)

    def find(
        self,
        *,
        stage: str | None = None,
        code: str | None = None,
        after: UUID | None = None,
        limit: int = 100,
    ) -> Sequence[DeadLetter]:
        """See `DeadLetters.find`."""
        return self.search(Filters(stage=stage, code=code), after=after, limit=limit)

    def search(self, filters: Filters, *, after: UUID | None = None, limit: int = 100) -> list[DeadLetter]:
        """As `find`, with all filters."""
        arguments = {**filters.arguments(after), "limit": max(limit, 0)}
        return [letter_of(row) for row in self._read("find", arguments)]

    def get(self, identifier: UUID) -> DeadLetter | None:
        """One letter."""
        rows = self._read("get", {"id": identifier.bytes})
        return letter_of(rows[0]) if rows else None

    def newest(self) -> UUID | None:
        """The highest id."""
        rows = self._read("newest", {})
        return UUID(bytes=rows[0][0]) if rows else None

    def remove(self, ids: Iterable[UUID]) -> int:
        """See `DeadLetters.remove`."""
        rows = [{"id": identifier.bytes} for identifier in ids]
        if not rows:
            return 0
        return self._write(lambda connection: connection.executemany(query("remove"), rows).rowcount)

    def purge(self, filters: Filters = _ALL) -> int:
        """Throw away all that match, and give the space back; return how many there were."""
        arguments = filters.arguments()
        count = self._write(lambda connection: connection.execute(query("purge"), arguments).rowcount)
        with self._turn, database.translating(self.path):
            # Readers may hold the log; then the next checkpoint gives the space back.
            self._live().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return count

    def matching(self, filters: Filters = _ALL) -> int:
        """How many match."""
        return int(self._read("matching", filters.arguments())[0][0])

    def count(self) -> Mapping[tuple[str, str], int]:
        """See `DeadLetters.count`."""
        return {(stage, code): count for stage, code, count in self._read("count", {})}

    def totals(self) -> Totals:
        """How much is there, and how much had to go."""
        return Totals(*self._read("totals", {})[0])

    def maintain(self) -> None:
        """Expire what is too old. Call it now and then."""
        self._note(self._write(self._expire))

    def close(self) -> None:
        """Let go of the file. Closing twice does nothing."""
        with self._turn:
            if not self._is_closed:
                self._is_closed = True
                self._connection.close()

    # Inside

    def _own(self) -> sqlite3.Connection:
        try:
            connection = database.create(self.path)
            try:
                if self.path.stat().st_size <= _CHECKED_BYTES:
                    database.check(connection)
            except sqlite3.Error:
                connection.close()
                raise
        except sqlite3.Error as error:
            if not database.is_damage(error):
                raise
            return self._begin_anew()
        return connection

    def _begin_anew(self) -> sqlite3.Connection:
        database.put_aside(self.path, self._clock)
        self.counters.damaged_files += 1
        return database.create(self.path)

    def _live(self) -> sqlite3.Connection:
        if self._is_closed:
            raise InvariantBroken("failed.closed", f"the failed events in {self.path} are closed")
        return self._connection

    def _read(self, name: str, arguments: Mapping[str, object]) -> list[tuple[Any, ...]]:
        with self._turn, database.translating(self.path):
            return self._live().execute(query(name), arguments).fetchall()

    def _write(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        with self._turn, database.translating(self.path):
            try:
                return _in_transaction(self._live(), work)
            except sqlite3.Error as error:
                if not (self._is_owner and database.is_damage(error)):
                    raise
            self._connection.close()
            self._connection = self._begin_anew()
            return _in_transaction(self._connection, work)

    def _expire(self, connection: sqlite3.Connection) -> Expiry:
        totals = Totals(*connection.execute(query("totals")).fetchone())
        expiry = excess(totals, self.limits, self._clock.now(), connection.execute(query("oldest")))
        if expiry.ids:
            connection.executemany(query("remove"), [{"id": each} for each in expiry.ids])
            connection.execute(query("expired"), {"count": len(expiry.ids), "bytes": expiry.size_bytes})
        return expiry

    def _note(self, expiry: Expiry) -> None:
        if not expiry.ids:
            return
        count = len(expiry.ids)
        self.counters.expired_count += count
        self.counters.expired_bytes += expiry.size_bytes
        about = {
            "action": "failed_expired",
            "count": count,
            "size_bytes": expiry.size_bytes,
            "oldest": str(UUID(bytes=expiry.ids[0])),
            "newest": str(UUID(bytes=expiry.ids[-1])),
        }
        _log.warning("expired %d failed events", count, extra=about)


def _in_transaction(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], Result]) -> Result:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        # Some errors have ended the transaction already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result
