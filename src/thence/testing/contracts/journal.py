"""What a `Journal` and its `Cursor`s promise.

The suite opens a small journal through `open_small` for the promises about limits, and lets appending be interrupted
through `append_and_die`; an implementation on a real disk overrides the second with a real death.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from thence.core.clock import Clock
from thence.core.errors import InvariantBroken, Rejected, Unavailable
from thence.core.event import Event
from thence.core.ports import Cursor, Journal
from thence.core.tally import Settled, Tally
from thence.testing.contracts.place import Contract, Place
from thence.testing.contracts.samples import awkward, event, events
from thence.testing.contracts.together import together

# A journal that is not full after this many events of 1 KiB is not small.
_MANY = 10_000


class JournalContract(Contract[Journal]):
    """The suite of `thence.core.ports.Journal`."""

    def open_small(
        self, directory: Path, clock: Clock, *, when_full: Literal["refuse", "expire_oldest"]
    ) -> Journal:
        """Open a journal that holds some events of 1 KiB each: at least 8, and the fewer the faster."""
        raise NotImplementedError

    def append_and_die(self, opened: Journal, batch: Sequence[Event], moment: int) -> None:
        """Append, and die before, while or after it is written; the higher `moment`, the later.

        Called with moments from 0 to the number of events. As it stands here, the process dies right after.
        """
        opened.append(batch)
        self.crash(opened)

    def close(self, opened: Journal) -> None:
        """Close it."""
        opened.close()

    # Appending

    def test_positions_start_at_one_and_leave_no_gaps(self, place: Place[Journal]) -> None:
        """Positions are consecutive and start at 1."""
        journal = place.open()
        assert journal.append(events(3)) == range(1, 4)
        assert journal.append(events(1, first=4)) == range(4, 5)
        assert journal.append(events(2, first=5)) == range(5, 7)

    def test_events_come_back_as_they_went_in(self, place: Place[Journal]) -> None:
        """An event is kept byte for byte, and at its position in the order given."""
        journal = place.open()
        given = [*awkward(), *events(3, first=100)]
        positions = journal.append(given)
        read = journal.cursor("reader").read(100)
        assert [record.event for record in read] == given
        assert [record.position for record in read] == list(positions)

    def test_appending_none_changes_nothing(self, place: Place[Journal]) -> None:
        """Appending no events returns an empty range."""
        journal = place.open()
        assert len(journal.append([])) == 0
        assert journal.append(events(1)) == range(1, 2)
        assert len(journal.append([])) == 0
        assert law(journal.cursor("reader")).appended == 1

    def test_threads_append_side_by_side(self, place: Place[Journal]) -> None:
        """Concurrent batches get ranges that do not overlap, leave no gap, and hold what they say."""
        journal = place.open()
        batches = [events(5, first=100 * number) for number in range(1, 41)]

        def append_all(share: Sequence[list[Event]]) -> list[tuple[range, list[Event]]]:
            return [(journal.append(batch), batch) for batch in share]

        shares = together([partial(append_all, batches[i::8]) for i in range(8)])
        placed = [pair for share in shares for pair in share]
        assert sorted(p for positions, _ in placed for p in positions) == list(range(1, 201))
        wanted = {p: e for positions, batch in placed for p, e in zip(positions, batch, strict=True)}
        read = journal.cursor("reader").read(1000)
        assert [record.position for record in read] == list(range(1, 201))
        assert {record.position: record.event for record in read} == wanted

    def test_a_reader_sees_no_gap_while_threads_append(self, place: Place[Journal]) -> None:
        """A record becomes visible after all those before it, never before."""
        journal = place.open()
        cursor = journal.cursor("reader")
        done = threading.Event()
        seen: list[int] = []

        def append(first: int) -> None:
            for number in range(25):
                journal.append(events(2, first=first + 2 * number))

        def read() -> None:
            while not (done.is_set() and law(cursor, complete=False).waiting == 0):
                records = cursor.read(7)
                seen.extend(record.position for record in records)
                cursor.settle(Settled(delivered=len(records)))

        reader = threading.Thread(target=read)
        reader.start()
        try:
            together([partial(append, first) for first in (1_000, 2_000, 3_000, 4_000)])
        finally:
            done.set()
            reader.join(60)
        assert seen == list(range(1, 201))

    # Cursors

    def test_a_new_cursor_starts_at_the_oldest_record(self, place: Place[Journal]) -> None:
        """Oldest is where a new cursor starts unless told otherwise."""
        journal = place.open()
        journal.append(events(3))
        cursor = journal.cursor("reader")
        assert law(cursor) == Tally(3, Settled(), 3)

    def test_a_new_cursor_can_start_after_the_newest(self, place: Place[Journal]) -> None:
        """Records before the start of a new cursor count as skipped."""
        journal = place.open()
        journal.append(events(3))
        cursor = journal.cursor("reader", start="newest")
        assert law(cursor) == Tally(3, Settled(skipped=3), 0)
        journal.append(events(1, first=4))
        assert [record.position for record in cursor.read(10)] == [4]

    def test_start_is_for_new_cursors_only(self, place: Place[Journal]) -> None:
        """Opening a cursor that is there leaves it where it is."""
        journal = place.open()
        journal.append(events(3))
        journal.cursor("reader").settle(Settled(delivered=1))
        assert law(journal.cursor("reader", start="newest")) == Tally(3, Settled(delivered=1), 2)

    def test_reading_does_not_move(self, place: Place[Journal]) -> None:
        """What is not settled is read again."""
        journal = place.open()
        journal.append(events(3))
        cursor = journal.cursor("reader")
        assert positions(cursor, 2) == [1, 2]
        assert positions(cursor, 2) == [1, 2]
        assert law(cursor) == Tally(3, Settled(), 3)

    def test_reading_takes_at_most_the_limit(self, place: Place[Journal]) -> None:
        """A read returns as many as there are, and no more than asked."""
        journal = place.open()
        cursor = journal.cursor("reader")
        assert positions(cursor, 5) == []
        journal.append(events(3))
        assert positions(cursor, 0) == []
        assert positions(cursor, 1) == [1]
        assert positions(cursor, 5) == [1, 2, 3]

    def test_reading_ahead_leaves_records_out(self, place: Place[Journal]) -> None:
        """`ahead` counts from the first record that is not settled."""
        journal = place.open()
        journal.append(events(6))
        cursor = journal.cursor("reader")
        assert positions(cursor, 2, ahead=3) == [4, 5]
        cursor.settle(Settled(delivered=1))
        assert positions(cursor, 2, ahead=3) == [5, 6]
        assert positions(cursor, 2, ahead=4) == [6]
        assert positions(cursor, 2, ahead=5) == []
        assert positions(cursor, 2, ahead=50) == []

    def test_settling_moves_and_counts(self, place: Place[Journal]) -> None:
        """Each kind of settling is counted as itself, and adds up."""
        journal = place.open()
        journal.append(events(20))
        cursor = journal.cursor("reader")
        cursor.settle(Settled(delivered=5, parked=4, filtered=3, skipped=2, expired=1))
        assert law(cursor) == Tally(20, Settled(5, 4, 3, 2, 1), 5)
        cursor.settle(Settled(delivered=1, parked=1))
        assert law(cursor) == Tally(20, Settled(6, 5, 3, 2, 1), 3)
        assert positions(cursor, 10) == [18, 19, 20]

    def test_settling_nothing_changes_nothing(self, place: Place[Journal]) -> None:
        """To settle no records is no error."""
        journal = place.open()
        cursor = journal.cursor("reader")
        cursor.settle(Settled())
        journal.append(events(1))
        cursor.settle(Settled())
        assert law(cursor) == Tally(1, Settled(), 1)

    def test_settling_more_than_waits_is_refused(self, place: Place[Journal]) -> None:
        """More than are waiting: `InvariantBroken`, and nothing moves."""
        journal = place.open()
        journal.append(events(3))
        cursor = journal.cursor("reader")
        cursor.settle(Settled(delivered=1))
        with pytest.raises(InvariantBroken):
            cursor.settle(Settled(delivered=2, parked=1))
        assert law(cursor) == Tally(3, Settled(delivered=1), 2)
        cursor = place.revive(journal).cursor("reader")
        assert law(cursor) == Tally(3, Settled(delivered=1), 2)

    def test_cursors_do_not_touch_each_other(self, place: Place[Journal]) -> None:
        """Each destination has its own place and its own counts."""
        journal = place.open()
        journal.append(events(4))
        one, other = journal.cursor("one"), journal.cursor("other")
        one.settle(Settled(delivered=3))
        other.settle(Settled(filtered=1))
        assert law(one) == Tally(4, Settled(delivered=3), 1)
        assert law(other) == Tally(4, Settled(filtered=1), 3)
        assert positions(other, 10) == [2, 3, 4]

    def test_a_name_is_a_cursor(self, place: Place[Journal]) -> None:
        """The place belongs to the name and not to the object."""
        journal = place.open()
        journal.append(events(4))
        journal.cursor("reader").settle(Settled(delivered=3))
        assert positions(journal.cursor("reader"), 10) == [4]

    def test_cursors_are_listed_by_name(self, place: Place[Journal]) -> None:
        """Names are listed sorted, and may be any text."""
        journal = place.open()
        names = ["b", "a", "o'dd \"% \N{SNOWMAN}", "a/../b", "B"]
        assert list(journal.cursors()) == []
        for name in names:
            journal.cursor(name)
        journal.cursor("a")
        assert list(journal.cursors()) == sorted(names)

    def test_a_dropped_cursor_is_forgotten(self, place: Place[Journal]) -> None:
        """Dropping forgets the place and the counts; a cursor made anew starts anew."""
        journal = place.open()
        journal.append(events(3))
        journal.cursor("reader").settle(Settled(delivered=2))
        journal.cursor("other")
        journal.drop_cursor("reader")
        assert list(journal.cursors()) == ["other"]
        assert law(journal.cursor("reader", start="newest")) == Tally(3, Settled(skipped=3), 0)

    def test_dropping_an_unknown_cursor_does_nothing(self, place: Place[Journal]) -> None:
        """Forgetting an unknown cursor does nothing, and so does forgetting twice."""
        journal = place.open()
        journal.drop_cursor("nobody")
        journal.cursor("reader")
        journal.drop_cursor("reader")
        journal.drop_cursor("reader")
        assert list(journal.cursors()) == []

    def test_a_dropped_cursor_is_of_no_use(self, place: Place[Journal]) -> None:
        """Whoever still holds a dropped cursor is told, and cannot settle into the void."""
        journal = place.open()
        journal.append(events(3))
        cursor = journal.cursor("reader")
        journal.drop_cursor("reader")
        for use in (lambda: cursor.read(1), lambda: cursor.settle(Settled(delivered=1)), cursor.tally):
            with pytest.raises(Rejected) as caught:
                use()
            assert caught.value.code == "journal.cursor_dropped"
        assert list(journal.cursors()) == []

    # Closing and crashing

    def test_closing_twice_does_nothing(self, place: Place[Journal]) -> None:
        """Closing may be repeated."""
        journal = place.open()
        journal.append(events(1))
        journal.close()
        journal.close()

    def test_everything_is_there_after_a_restart(self, place: Place[Journal]) -> None:
        """Closing and opening changes nothing."""
        journal = place.open()
        journal.append(events(3))
        journal.cursor("reader").settle(Settled(parked=1))
        journal = place.restart(journal)
        assert law(journal.cursor("reader")) == Tally(3, Settled(parked=1), 2)
        assert journal.append(events(1, first=4)) == range(4, 5)

    def test_a_crash_keeps_what_was_appended(self, place: Place[Journal]) -> None:
        """When `append` has returned, its events are durable; positions go on after them."""
        journal = place.open()
        given = events(5)
        journal.append(given[:2])
        journal.append(given[2:])
        journal = place.revive(journal)
        assert [record.event for record in journal.cursor("reader").read(10)] == given
        assert journal.append(events(1, first=6)) == range(6, 7)

    def test_a_crash_keeps_cursors_and_their_counts(self, place: Place[Journal]) -> None:
        """After a crash a cursor stands where the last `settle` put it, with its counts."""
        journal = place.open()
        journal.append(events(6))
        cursor = journal.cursor("reader")
        cursor.settle(Settled(delivered=2, filtered=1))
        journal.cursor("dropped")
        journal.drop_cursor("dropped")
        assert positions(cursor, 2) == [4, 5]
        journal = place.revive(journal)
        assert list(journal.cursors()) == ["reader"]
        cursor = journal.cursor("reader")
        assert law(cursor) == Tally(6, Settled(delivered=2, filtered=1), 3)
        assert positions(cursor, 2) == [4, 5]

    def test_a_new_cursor_is_durable(self, place: Place[Journal]) -> None:
        """A cursor that was made holds its place across a crash, though nothing was settled."""
        journal = place.open()
        journal.append(events(2))
        journal.cursor("reader", start="newest")
        journal = place.revive(journal)
        journal.append(events(2, first=3))
        assert list(journal.cursors()) == ["reader"]
        assert law(journal.cursor("reader", start="newest")) == Tally(4, Settled(skipped=2), 2)

    @pytest.mark.parametrize("moment", range(5))
    def test_dying_while_appending_leaves_a_prefix(self, place: Place[Journal], moment: int) -> None:
        """If the process dies before `append` returned, any prefix may be there, and nothing else."""
        journal = place.open()
        before, batch, later = events(2), events(4, first=3), events(1, first=50)
        journal.append(before)
        journal.cursor("reader").settle(Settled(delivered=1))
        place.lose(journal)
        self.append_and_die(journal, batch, moment)
        journal = place.open()
        tally = law(journal.cursor("reader"))
        kept = [record.event for record in journal.cursor("other").read(100)]
        assert kept == [*before, *batch][: len(kept)], "what is there is not a prefix of what was given"
        assert len(kept) >= len(before)
        assert tally == Tally(len(kept), Settled(delivered=1), len(kept) - 1)
        assert journal.append(later) == range(len(kept) + 1, len(kept) + 2)

    # Limits

    def test_a_full_journal_refuses(self, place: Place[Journal]) -> None:
        """Refused means `journal.full` and nothing of the batch is there; nothing that waits is lost."""
        journal = place.keep(self.open_small(place.directory, place.clock, when_full="refuse"))
        cursor = journal.cursor("reader")
        count = fill(journal)
        assert law(cursor) == Tally(count, Settled(), count)
        assert [record.event for record in cursor.read(count)] == [large(n) for n in range(1, count + 1)]
        with pytest.raises(Unavailable) as caught:
            journal.append([large(_MANY), large(_MANY + 1)])
        assert caught.value.code == "journal.full"
        assert law(cursor) == Tally(count, Settled(), count)

    def test_a_batch_is_refused_whole(self, place: Place[Journal]) -> None:
        """A journal with some room takes all of a batch that is larger than itself, or nothing of it."""
        journal = place.keep(self.open_small(place.directory, place.clock, when_full="refuse"))
        cursor = journal.cursor("reader")
        count = fill(journal)
        cursor.settle(Settled(delivered=count))
        taken = 2 * count
        try:
            journal.append([large(_MANY + number) for number in range(taken)])
        except Unavailable:
            taken = 0
        assert law(cursor) == Tally(count + taken, Settled(delivered=count), taken)

    def test_settling_makes_room(self, place: Place[Journal]) -> None:
        """Records that every cursor has passed may go, and their positions are not used again."""
        journal = place.keep(self.open_small(place.directory, place.clock, when_full="refuse"))
        one, other = journal.cursor("one"), journal.cursor("other")
        count = fill(journal)
        one.settle(Settled(delivered=count))
        with pytest.raises(Unavailable):
            journal.append([large(_MANY)])
        other.settle(Settled(delivered=count))
        assert journal.append([large(_MANY)]) == range(count + 1, count + 2)
        assert positions(one, 10) == [count + 1]
        assert law(other) == Tally(count + 1, Settled(delivered=count), 1)
        late = law(journal.cursor("late"))
        assert late.settled == Settled(skipped=late.settled.total), "what was gone before counts as skipped"

    def test_dropping_a_cursor_makes_room(self, place: Place[Journal]) -> None:
        """A dropped cursor holds nothing back any more."""
        journal = place.keep(self.open_small(place.directory, place.clock, when_full="refuse"))
        cursor = journal.cursor("reader")
        journal.cursor("laggard")
        count = fill(journal)
        cursor.settle(Settled(delivered=count))
        journal.drop_cursor("laggard")
        assert journal.append([large(_MANY)]) == range(count + 1, count + 2)

    def test_nothing_goes_before_there_is_a_cursor(self, place: Place[Journal]) -> None:
        """A journal without cursors keeps what it has: nobody has passed anything."""
        journal = place.keep(self.open_small(place.directory, place.clock, when_full="refuse"))
        count = fill(journal)
        assert law(journal.cursor("reader")) == Tally(count, Settled(), count)

    def test_what_expires_is_counted(self, place: Place[Journal]) -> None:
        """Expired records count at every cursor that had not passed them, and at no other."""
        journal = place.keep(self.open_small(place.directory, place.clock, when_full="expire_oldest"))
        behind, prompt = journal.cursor("behind"), journal.cursor("prompt")
        count = overflow(journal, behind, prompt)
        expired = law(behind).settled.expired
        assert law(behind) == Tally(count, Settled(expired=expired), count - expired)
        assert law(prompt) == Tally(count, Settled(delivered=count), 0)
        first = behind.read(1)[0]
        assert (first.position, first.event) == (expired + 1, large(expired + 1))
        late = law(journal.cursor("late"))
        assert late.settled == Settled(skipped=late.settled.total)
        place.crash(journal)
        journal = place.keep(self.open_small(place.directory, place.clock, when_full="expire_oldest"))
        assert law(journal.cursor("behind")) == Tally(count, Settled(expired=expired), count - expired)

    def test_expiry_does_not_mislead_a_reader(self, place: Place[Journal]) -> None:
        """What a reader had read and settles after it expired is counted as settled, and no record is passed unread."""
        journal = place.keep(self.open_small(place.directory, place.clock, when_full="expire_oldest"))
        behind = journal.cursor("behind")
        journal.append([large(number) for number in range(1, 9)])
        assert positions(behind, 3) == [1, 2, 3]
        count = overflow(journal, journal.cursor("watch"), first=9)
        gone = law(journal.cursor("watch")).settled.expired
        left = max(gone, 3)
        assert positions(behind, 1, ahead=3) == [left + 1]
        behind.settle(Settled(delivered=2, parked=1))
        expected = Settled(delivered=2, parked=1, expired=left - 3)
        assert law(journal.cursor("behind")) == Tally(count, expected, count - left)
        assert positions(behind, 1) == [left + 1]


def law(cursor: Cursor, *, complete: bool = True) -> Tally:
    """The tally of a cursor, after a look at whether it is true."""
    tally = cursor.tally()
    assert tally.holds, f"the law does not hold: {tally}"
    if complete:
        waiting = [record.position for record in cursor.read(tally.waiting + 1)]
        first = tally.settled.total + 1
        assert waiting == list(range(first, first + tally.waiting)), f"{tally} does not fit what can be read"
    return tally


def positions(cursor: Cursor, limit: int, *, ahead: int = 0) -> list[int]:
    """Where the next records are."""
    return [record.position for record in cursor.read(limit, ahead=ahead)]


def large(number: int) -> Event:
    """An event of 1 KiB."""
    return event(number, size_bytes=1024)


def fill(journal: Journal) -> int:
    """Append until the journal refuses; return how many it took."""
    for number in range(1, _MANY):
        if (code := refusal(journal, number)) is not None:
            assert code == "journal.full"
            assert number > 8, "the small journal is too small for this suite"
            return number - 1
    pytest.fail(f"the small journal is not full after {_MANY} events of 1 KiB")


def refusal(journal: Journal, number: int) -> str | None:
    """Append one event; the code of the error if it was not taken."""
    try:
        journal.append([large(number)])
    except Unavailable as error:
        return error.code
    return None


def overflow(journal: Journal, behind: Cursor, prompt: Cursor | None = None, *, first: int = 1) -> int:
    """Append until records expire at a cursor that waits; another one keeps up. Return how many there are then."""
    for count in range(first, _MANY):
        journal.append([large(count)])
        if prompt is not None:
            prompt.settle(Settled(delivered=prompt.tally().waiting))
        if behind.tally().settled.expired:
            return count
    pytest.fail(f"nothing has expired after {_MANY} events of 1 KiB")
