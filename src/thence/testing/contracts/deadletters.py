"""What `DeadLetters` promise. An implementation on a real disk overrides `put_and_die` with a real death."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from uuid import UUID

import msgspec
import pytest

from thence.core.errors import Violation
from thence.core.ports import DeadLetter, DeadLetters
from thence.testing.contracts.place import Contract, Place
from thence.testing.contracts.samples import awkward, event, identifier
from thence.testing.contracts.together import together


class DeadLettersContract(Contract[DeadLetters]):
    """The suite of `thence.core.ports.DeadLetters`."""

    def put_and_die(self, opened: DeadLetters, batch: Sequence[DeadLetter], moment: int) -> None:
        """Put letters, and die before, while or after they are written; the higher `moment`, the later.

        Called with moments from 0 to the number of letters. As it stands here, the process dies right after.
        """
        opened.put(batch)
        self.crash(opened)

    def test_letters_come_back_as_they_were(self, place: Place[DeadLetters]) -> None:
        """A letter keeps its reason, its times, its sender, its faults and its event, byte for byte."""
        letters = place.open()
        odd_ones = {
            "reason": "o'dd\n\N{SNOWMAN}",
            "remote": "[::1]:80",
            "key_id": "o'dd",
            "violations": (
                Violation("run/runId", "format.uuid", "o'dd\n", "\N{SNOWMAN}"),
                Violation("", "", "", ""),
            ),
        }
        given = [
            letter(number, event=odd, attempts=number, **odd_ones)
            for number, odd in enumerate(awkward(), start=1)
        ]
        letters.put(given)
        assert list(letters.find()) == given

    def test_putting_none_does_nothing(self, place: Place[DeadLetters]) -> None:
        """No letters are no error."""
        letters = place.open()
        letters.put([])
        assert list(letters.find()) == []
        assert dict(letters.count()) == {}

    def test_letters_are_found_in_the_order_of_their_ids(self, place: Place[DeadLetters]) -> None:
        """The order is that of the ids, however they were put."""
        letters = place.open()
        ids = [UUID(bytes=hashlib.sha256(bytes([number])).digest()[:16]) for number in range(40)]
        given = [letter(0, id=scattered) for scattered in ids]
        for one in given:
            letters.put([one])
        assert [found.id for found in letters.find()] == sorted(ids)

    def test_letters_are_found_by_stage_and_code(self, place: Place[DeadLetters]) -> None:
        """Both filters hold together, and either may be left out."""
        letters = place.open()
        letters.put([letter(n, stage="ab"[n % 2], code="xyz"[n % 3]) for n in range(12)])
        assert numbers(letters.find(stage="a")) == [0, 2, 4, 6, 8, 10]
        assert numbers(letters.find(code="x")) == [0, 3, 6, 9]
        assert numbers(letters.find(stage="b", code="x")) == [3, 9]
        assert numbers(letters.find(stage="A")) == []
        assert numbers(letters.find(stage="", code="")) == []

    def test_a_limit_takes_the_first(self, place: Place[DeadLetters]) -> None:
        """The limit counts what was found, not what was looked at; unless given, it is 100."""
        letters = place.open()
        letters.put([letter(n, stage="ab"[n % 2]) for n in range(220)])
        assert numbers(letters.find(stage="b", limit=3)) == [1, 3, 5]
        assert numbers(letters.find(limit=0)) == []
        assert numbers(letters.find()) == list(range(100))

    def test_pages_can_be_turned(self, place: Place[DeadLetters]) -> None:
        """`after` leaves out everything up to an id, whether a letter with that id is there or not."""
        letters = place.open()
        letters.put([letter(n, stage="ab"[n % 2]) for n in range(10)])
        assert numbers(letters.find(after=identifier(3), limit=4)) == [4, 5, 6, 7]
        assert numbers(letters.find(stage="a", after=identifier(4))) == [6, 8]
        letters.remove([identifier(5)])
        assert numbers(letters.find(after=identifier(5))) == [6, 7, 8, 9]
        assert numbers(letters.find(after=identifier(9))) == []

    def test_putting_an_id_again_replaces_the_letter(self, place: Place[DeadLetters]) -> None:
        """There is one letter for each id: the last one that was put."""
        letters = place.open()
        letters.put([letter(1), letter(2)])
        again = letter(1, stage="later", code="other", reason="again", attempts=2, event=event(77))
        letters.put([again])
        assert list(letters.find()) == [again, letter(2)]
        assert list(letters.find(stage="later")) == [again]
        assert dict(letters.count()) == {("later", "other"): 1, ("stage", "code"): 1}

    def test_the_later_of_two_in_one_call_stays(self, place: Place[DeadLetters]) -> None:
        """The same holds within one call."""
        letters = place.open()
        letters.put([letter(1, reason="first"), letter(2), letter(1, reason="second")])
        assert list(letters.find()) == [letter(1, reason="second"), letter(2)]

    def test_removing_says_how_many_were_there(self, place: Place[DeadLetters]) -> None:
        """Ids that are unknown or repeated are not counted; others stay."""
        letters = place.open()
        letters.put([letter(n) for n in range(5)])
        assert letters.remove(identifier(n) for n in (1, 3, 3, 99)) == 2
        assert letters.remove([identifier(1)]) == 0
        assert letters.remove([]) == 0
        assert numbers(letters.find()) == [0, 2, 4]

    def test_letters_are_counted_by_stage_and_code(self, place: Place[DeadLetters]) -> None:
        """Each pair that has letters is there, and no other."""
        letters = place.open()
        letters.put([letter(n, stage="ab"[n % 2], code="x") for n in range(5)])
        assert dict(letters.count()) == {("a", "x"): 3, ("b", "x"): 2}
        letters.remove([identifier(1), identifier(3)])
        assert dict(letters.count()) == {("a", "x"): 3}

    def test_a_crash_keeps_letters(self, place: Place[DeadLetters]) -> None:
        """What was put is durable, and what was removed stays away."""
        letters = place.open()
        letters.put([letter(n) for n in range(4)])
        letters.put([letter(2, reason="again")])
        letters.remove([identifier(0)])
        letters = place.revive(letters)
        assert list(letters.find()) == [letter(1), letter(2, reason="again"), letter(3)]

    @pytest.mark.parametrize("moment", range(5))
    def test_dying_while_putting_leaves_all_or_none(self, place: Place[DeadLetters], moment: int) -> None:
        """All letters of a call are there, or none of them; doing it again makes no second ones."""
        letters = place.open()
        letters.put([letter(0)])
        batch = [letter(number) for number in range(1, 5)]
        place.lose(letters)
        self.put_and_die(letters, batch, moment)
        letters = place.open()
        assert numbers(letters.find()) in ([0], [0, 1, 2, 3, 4])
        letters.put(batch)
        assert numbers(letters.find()) == [0, 1, 2, 3, 4]

    def test_threads_put_side_by_side(self, place: Place[DeadLetters]) -> None:
        """Nothing is lost when several put and remove at the same time."""
        stores = [place.open() for _ in range(4)]

        def work(share: int) -> int:
            mine = [letter(100 * share + n) for n in range(20)]
            for one in mine:
                stores[share].put([one, letter(9_999)])
            return stores[share].remove(one.id for one in mine[::2])

        assert together([partial(work, share) for share in range(4)]) == [10] * 4
        left = [100 * share + n for share in range(4) for n in range(1, 20, 2)]
        assert numbers(stores[0].find()) == [*left, 9_999]


def letter(number: int, **changes: object) -> DeadLetter:
    """A letter; a higher number has a higher id."""
    plain = DeadLetter(
        id=identifier(number),
        stage="stage",
        code="code",
        reason="reason",
        failed_at=datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=UTC),
        event=event(number),
    )
    return msgspec.structs.replace(plain, **changes)


def numbers(letters: Sequence[DeadLetter]) -> list[int]:
    """The numbers that letters were made with."""
    return [one.id.int & 0xFFFF for one in letters]
