"""Each system call of the journal fails once, at each place in turn: what was acknowledged before and after stays."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from thence.core.errors import Unavailable
from thence.core.event import Event
from thence.core.tally import Settled
from thence.journal.limits import Limits
from thence.journal.log import FileJournal

SMALL = Limits(partition_bytes=3000)
CALLS = ("pwritev", "pwrite", "fsync", "fdatasync", "replace", "unlink", "open")


@contextmanager
def failing(call: str, at: int) -> Iterator[list[int]]:
    """The n-th use of a call raises EIO, after having done its work or before; counts the uses."""
    whole, count = getattr(os, call), [0]

    def wrapped(*arguments: Any, **options: Any) -> Any:
        count[0] += 1
        if count[0] == at and at % 2:
            raise OSError(errno.EIO, "planted")
        result = whole(*arguments, **options)
        if count[0] == at:
            if call == "open":
                os.close(result)
            raise OSError(errno.EIO, "planted")
        return result

    setattr(os, call, wrapped)
    try:
        yield count
    finally:
        setattr(os, call, whole)


def event(number: int) -> Event:
    return Event(UUID(int=number), datetime(2026, 1, 1, tzinfo=UTC), "lineage", "key", b"%d " % number * 100)


def work(directory: Path, acknowledged: list[int]) -> int:
    """Append, settle and maintain in spite of errors; what was acknowledged is noted; returns what was settled."""
    settled = refused = 0
    journal = opened(directory)
    cursor = journal.cursor("reader")
    for number in range(1, 21):
        try:
            journal.append([event(number)])
            acknowledged.append(number)
            if number % 3 == 0:
                cursor.settle(Settled(delivered=len(cursor.read(2))))
                settled += 2
            if number % 5 == 0:
                journal.maintain()
        except Unavailable:
            refused += 1
    assert refused <= 1, "one error is one refusal"
    journal.close()
    return settled


def opened(directory: Path) -> FileJournal:
    for _ in range(2):
        try:
            journal = FileJournal(directory, SMALL)
        except Unavailable:
            continue
        try:
            journal.cursor("reader")
        except Unavailable:
            journal.close()
            continue
        return journal
    raise AssertionError("it does not open after one error")


@pytest.mark.parametrize("call", CALLS)
def test_an_error_costs_at_most_what_was_refused(call: str, tmp_path: Path) -> None:
    at = 0
    while True:
        at += 1
        directory = tmp_path / str(at)
        acknowledged: list[int] = []
        with failing(call, at) as count:
            settled = work(directory, acknowledged)
        journal = FileJournal(directory, SMALL)
        cursor = journal.cursor("reader")
        passed = cursor.tally().settled.total
        assert settled <= passed <= settled + 2
        found: list[int] = []
        while records := cursor.read(100):
            found += [record.event.id.int for record in records]
            cursor.settle(Settled(delivered=len(records)))
        waiting = iter(found)
        missing = [number for number in acknowledged[passed:] if number not in waiting]
        assert not missing, f"{call} number {at}: lost {missing}"
        journal.close()
        if count[0] < at:
            assert at > 3
            return
