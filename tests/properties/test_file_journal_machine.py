"""Random calls, restarts and crashes on the journal on disk, with partitions so small that they change all the time."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, settings

from tests.contracts.test_journal import TestFileJournal as Contract
from thence.core.clock import Clock
from thence.core.ports import Journal
from thence.journal.limits import Limits
from thence.journal.log import FileJournal
from thence.testing.contracts.journal_machine import machine


class SmallPartitions(Contract):
    __test__ = False

    def open(self, directory: Path, clock: Clock) -> Journal:
        return FileJournal(directory, Limits(partition_bytes=700), clock=clock)


TestFileJournalMachine = machine(SmallPartitions).TestCase
TestFileJournalMachine.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
del Contract
