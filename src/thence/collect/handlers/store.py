"""Keeps failed events where `thence failed` lists, shows and replays them. Durable."""

from __future__ import annotations

from collections.abc import Sequence

from thence.core.ports import DeadLetter, DeadLetters


class JournalHandler:
    """The handler `journal`: one transaction for each batch."""

    name = "journal"

    def __init__(self, letters: DeadLetters) -> None:
        self._letters = letters

    def handle(self, letters: Sequence[DeadLetter]) -> None:
        """See FailedEventHandler."""
        self._letters.put(letters)

    def close(self) -> None:
        """The store belongs to whoever opened it."""
