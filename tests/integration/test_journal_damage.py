"""One damaged byte, wherever it is, costs at most one record, and never a start."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from thence.core.event import Event
from thence.core.ports import Cursor
from thence.core.tally import Settled
from thence.journal.limits import Limits
from thence.journal.log import FileJournal

SMALL = Limits(partition_bytes=2000)


def event(number: int) -> Event:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Event(UUID(int=number), at, "lineage", "key", b"payload %d " % number * 5, "00-aa-bb-01")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three partitions with 40 records, one cursor at 7 and one at 0."""
    directory = tmp_path_factory.mktemp("original")
    journal = FileJournal(directory, SMALL)
    cursor = journal.cursor("some")
    journal.cursor("none")
    for number in range(1, 41):
        journal.append([event(number)])
    cursor.settle(Settled(delivered=7))
    assert len(list(directory.glob("partition-*"))) > 2
    journal.close()
    return directory


def files_of(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.suffix in (".log", ".cursor"))


def read_all(directory: Path) -> tuple[set[int], FileJournal]:
    journal = FileJournal(directory, SMALL)
    cursor = journal.cursor("none")
    found: set[int] = set()
    while records := cursor.read(9):
        for record in records:
            assert record.event == event(record.event.id.int), "a damaged record was handed out"
            assert record.position == record.event.id.int
            found.add(record.position)
        cursor.settle(Settled(delivered=len(records)))
    assert cursor.tally().holds
    return found, journal


def drain(cursor: Cursor) -> list[Event]:
    found: list[Event] = []
    while records := cursor.read(100):
        found += [record.event for record in records]
        cursor.settle(Settled(delivered=len(records)))
    return found


def test_every_damaged_byte_costs_at_most_one_record(original: Path, tmp_path: Path) -> None:
    names = files_of(original)
    for name in names:
        size = (original / name).stat().st_size
        # In one file every class of byte: both heads, then a frame; further on and in the others, samples.
        dense = (*range(0, 128, 5), *range(128, 260)) if name == names[-3] else ()
        for offset in (*dense, *range(0, size, 41)):
            directory = tmp_path / "copy"
            shutil.copytree(original, directory)
            content = bytearray((directory / name).read_bytes())
            content[offset] = content[offset] ^ 0x41
            (directory / name).write_bytes(content)
            found, journal = read_all(directory)
            assert len(found) >= 39, f"{name} at {offset}: lost {set(range(1, 41)) - found}"
            positions = journal.append([event(50)])
            assert positions[0] > 39
            some = journal.cursor("some")
            assert some.tally().holds
            assert some.tally().settled.delivered in (0, 7), "a cursor never passes what was not settled"
            assert event(50) in drain(some)
            journal.close()
            shutil.rmtree(directory)


def test_a_partition_without_a_head_is_put_aside(original: Path, tmp_path: Path) -> None:
    directory = tmp_path / "copy"
    shutil.copytree(original, directory)
    victim = sorted(directory.glob("partition-*"))[1]
    victim.write_bytes(b"\0" * victim.stat().st_size)
    found, journal = read_all(directory)
    assert journal.counters.damaged_files == 1
    assert (directory / "damaged" / victim.name).exists()
    tally = journal.cursor("none").tally()
    assert tally.settled == Settled(delivered=len(found), expired=40 - len(found))
    journal.close()


def test_both_slots_of_a_cursor_damaged_means_everything_is_read_again(
    original: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "copy"
    shutil.copytree(original, directory)
    for path in directory.glob("some*.cursor"):
        path.write_bytes(b"\0" * path.stat().st_size)
    journal = FileJournal(directory, SMALL)
    assert journal.cursors() == ["none"]
    assert len(journal.cursor("some").read(100)) == 40
    journal.close()


def test_an_event_cannot_pass_for_a_record(tmp_path: Path) -> None:
    """A payload that holds a whole frame of another journal, and a damaged head in front of it."""
    other = FileJournal(tmp_path / "other")
    other.append([event(2)])
    other.close()
    forged = next((tmp_path / "other").glob("partition-*")).read_bytes()[128:]
    journal = FileJournal(tmp_path / "mine")
    journal.append([event(1)])
    at = datetime(2026, 1, 1, tzinfo=UTC)
    journal.append([Event(UUID(int=9), at, "lineage", "key", b"x" * 100 + forged)])
    journal.close()
    path = next((tmp_path / "mine").glob("partition-*"))
    content = bytearray(path.read_bytes())
    content[content.index(b"x" * 100) - 20] ^= 1
    path.write_bytes(content)
    journal = FileJournal(tmp_path / "mine")
    assert [record.event for record in journal.cursor("c").read(10)] == [event(1)]
    journal.close()
