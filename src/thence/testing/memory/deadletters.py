"""Dead letters in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from uuid import UUID

from thence.core.ports import DeadLetter, DeadLetters
from thence.testing.memory.disk import Disk


class MemoryDeadLetters(DeadLetters):
    """`DeadLetters` whose disk is an object."""

    def __init__(self, disk: Disk | None = None) -> None:
        self._disk = disk or Disk()
        self._letters: dict[UUID, DeadLetter] = self._disk.state("deadletters", dict)

    def put(self, letters: Sequence[DeadLetter]) -> None:
        """Keep letters, all or none."""
        with self._disk.lock:
            batch = {}
            for letter in letters:
                self._disk.reach()
                batch[letter.id] = letter
            self._letters.update(batch)

    def find(
        self,
        *,
        stage: str | None = None,
        code: str | None = None,
        after: UUID | None = None,
        limit: int = 100,
    ) -> Sequence[DeadLetter]:
        """Letters in the order of their ids."""
        with self._disk.lock:
            chosen = (
                self._letters[key]
                for key in sorted(self._letters)
                if (after is None or key > after)
                and stage in {None, self._letters[key].stage}
                and code in {None, self._letters[key].code}
            )
            return list(islice(chosen, limit))

    def remove(self, ids: Iterable[UUID]) -> int:
        """Remove letters; return how many were there."""
        with self._disk.lock:
            return sum(self._letters.pop(key, None) is not None for key in ids)

    def count(self) -> Mapping[tuple[str, str], int]:
        """How many there are for each stage and code."""
        with self._disk.lock:
            return dict(Counter((letter.stage, letter.code) for letter in self._letters.values()))
