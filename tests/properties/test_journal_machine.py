"""The journal in memory agrees with the model, whatever is done in whatever order; a broken one does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from thence.core.clock import Clock
from thence.core.event import Event
from thence.core.ports import Cursor, Journal
from thence.core.tally import Settled
from thence.testing.contracts.journal import JournalContract
from thence.testing.contracts.journal_machine import machine
from thence.testing.memory import Disk, MemoryJournal

SETTINGS = settings(
    max_examples=80,
    stateful_step_count=25,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


class Journals(JournalContract):
    """Journals of one kind, on one disk."""

    kind: Callable[[Disk], Journal] = MemoryJournal

    def __init__(self) -> None:
        self.disk = Disk()

    def open(self, directory: Path, clock: Clock) -> Journal:
        return self.kind(self.disk)

    def crash(self, opened: Journal) -> None:
        pass


def test_the_journal_in_memory_agrees_with_the_model() -> None:
    run_state_machine_as_test(machine(Journals), settings=SETTINGS)


class LosesOneInACrash(Journals):
    def crash(self, opened: Journal) -> None:
        assert isinstance(opened, MemoryJournal)
        if opened._state.records:
            opened._state.records.pop()
            opened._state.appended -= 1


class ForgetsCounts(Journals):
    class kind(MemoryJournal):  # noqa: N801 - takes the place of an attribute
        def drop_cursor(self, name: str) -> None:
            for other in self.cursors():
                super().drop_cursor(other)


class AppendsTwice(Journals):
    class kind(MemoryJournal):  # noqa: N801
        def append(self, events: Sequence[Event]) -> range:
            positions = super().append(events)
            if len(events) == 3:
                super().append(events[:1])
            return positions


class SettlesAllAsDelivered(Journals):
    class kind(MemoryJournal):  # noqa: N801
        def cursor(self, name: str, **start: object) -> Cursor:
            cursor = super().cursor(name, **start)  # type: ignore[arg-type]
            settle = cursor.settle
            cursor.settle = lambda settled: settle(Settled(delivered=settled.total))  # type: ignore[method-assign]
            return cursor


@pytest.mark.parametrize("broken", [LosesOneInACrash, ForgetsCounts, AppendsTwice, SettlesAllAsDelivered])
def test_the_machine_finds_what_is_broken(broken: type[Journals]) -> None:
    without_shrinking = settings(SETTINGS, phases=[Phase.generate], derandomize=True)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine(broken), settings=without_shrinking)
