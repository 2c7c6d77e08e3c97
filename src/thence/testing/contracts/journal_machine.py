"""A state machine that drives any `Journal` with random calls and compares it with a tiny model after each.

An implementation is driven by making a machine for its suite, and running that as a test:

    TestSqliteJournalMachine = machine(SqliteJournals).TestCase

Needs hypothesis. The model is a list of what was appended and, for each cursor, its counts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from thence.core.errors import InvariantBroken
from thence.core.event import Event
from thence.core.ports import Journal
from thence.core.tally import Settled, Tally
from thence.testing.contracts.journal import JournalContract
from thence.testing.contracts.place import Place
from thence.testing.contracts.samples import event

NAMES = st.sampled_from(["a", "b", "c"])
COUNTS = st.integers(0, 4)


class JournalMachine(RuleBasedStateMachine):
    """Appends, reads, settles, makes and drops cursors, restarts and crashes. Made with `machine`."""

    make_contract: Callable[[], JournalContract]

    @initialize()
    def begin(self) -> None:
        """Open a journal in a new place."""
        self.folder = tempfile.TemporaryDirectory()
        self.place: Place[Journal] = Place(self.make_contract(), Path(self.folder.name))
        self.journal = self.place.open()
        self.appended: list[Event] = []
        self.settled: dict[str, Settled] = {}

    def teardown(self) -> None:
        """Close everything, also after a failure."""
        if hasattr(self, "place"):
            self.place.close()
            self.folder.cleanup()

    @rule(count=COUNTS)
    def append(self, count: int) -> None:
        """Append some events."""
        first = len(self.appended) + 1
        batch = [event(number) for number in range(first, first + count)]
        positions = self.journal.append(batch)
        assert list(positions) == list(range(first, first + count))
        self.appended += batch

    @rule(name=NAMES, start=st.sampled_from(["oldest", "newest"]))
    def open_cursor(self, name: str, start: Literal["oldest", "newest"]) -> None:
        """Make a cursor, or open it again."""
        self.journal.cursor(name, start=start)
        # Without a limit nothing goes, so the oldest record is the first.
        skipped = len(self.appended) if start == "newest" else 0
        self.settled.setdefault(name, Settled(skipped=skipped))

    @precondition(lambda self: self.settled)
    @rule(data=st.data(), limit=COUNTS, ahead=COUNTS)
    def read(self, data: st.DataObject, limit: int, ahead: int) -> None:
        """Read some records, perhaps ahead."""
        name = data.draw(st.sampled_from(sorted(self.settled)))
        first = self.settled[name].total + ahead
        read = self.journal.cursor(name).read(limit, ahead=ahead)
        assert [record.event for record in read] == self.appended[first : first + limit]
        assert [record.position for record in read] == list(range(first + 1, first + 1 + len(read)))

    @precondition(lambda self: self.settled)
    @rule(data=st.data(), settled=st.builds(Settled, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS))
    def settle(self, data: st.DataObject, settled: Settled) -> None:
        """Settle some records; more than are waiting must be refused."""
        name = data.draw(st.sampled_from(sorted(self.settled)))
        cursor = self.journal.cursor(name)
        if settled.total <= len(self.appended) - self.settled[name].total:
            cursor.settle(settled)
            self.settled[name] += settled
            return
        try:
            cursor.settle(settled)
        except InvariantBroken:
            return
        raise AssertionError(f"{name} took {settled}, though fewer were waiting")

    @rule(name=NAMES)
    def drop_cursor(self, name: str) -> None:
        """Forget a cursor, which may be unknown."""
        self.journal.drop_cursor(name)
        self.settled.pop(name, None)

    @rule()
    def crash(self) -> None:
        """Die and start again."""
        self.journal = self.place.revive(self.journal)

    @rule()
    def restart(self) -> None:
        """Close and open."""
        self.journal = self.place.restart(self.journal)

    @invariant()
    def the_law_holds(self) -> None:
        """Every cursor has every record, once."""
        if not hasattr(self, "place"):
            return
        assert list(self.journal.cursors()) == sorted(self.settled)
        for name, settled in self.settled.items():
            tally = self.journal.cursor(name).tally()
            assert tally.holds, f"the law does not hold for {name}: {tally}"
            assert tally == Tally(len(self.appended), settled, len(self.appended) - settled.total)


def machine(contract: Callable[[], JournalContract]) -> type[JournalMachine]:
    """The machine that drives the journals of a suite."""
    return type("JournalMachine", (JournalMachine,), {"make_contract": staticmethod(contract)})
