"""What all suites share: a place where an implementation is opened, crashed and opened again.

Everything that a test opened is closed when the test ends, whether it passed or not; what crashed is never closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

import pytest

from thence.core.clock import Clock
from thence.testing.clock import ManualClock

Port = TypeVar("Port")


class Contract(Generic[Port]):
    """The root of the suites: the three things that an implementation must tell its suite."""

    def open(self, directory: Path, clock: Clock) -> Port:
        """Open the implementation; the same directory means the same durable state, also at the same time."""
        raise NotImplementedError

    def crash(self, opened: Port) -> None:
        """Drop an open implementation as a dying process does, without closing it."""
        raise NotImplementedError

    def close(self, opened: Port) -> None:
        """Close an open implementation. Override this where there is something to close."""

    @contextmanager
    def at(self, directory: Path) -> Iterator[Place[Port]]:
        """A place on a directory, cleaned up afterwards."""
        place = Place(self, directory)
        try:
            yield place
        finally:
            place.close()

    @pytest.fixture
    def place(self, tmp_path: Path) -> Iterator[Place[Port]]:
        """Where a test opens the implementation."""
        with self.at(tmp_path) as place:
            yield place


class Place(Generic[Port]):
    """A directory, a clock, and what is open there."""

    def __init__(self, contract: Contract[Port], directory: Path) -> None:
        self.directory = directory
        self.clock = ManualClock()
        self._contract = contract
        self._opened: list[Port] = []

    def open(self) -> Port:
        """Open the implementation; a second time stands for a second process."""
        return self.keep(self._contract.open(self.directory, self.clock))

    def keep(self, opened: Port) -> Port:
        """Close this too when the test ends."""
        self._opened.append(opened)
        return opened

    def crash(self, opened: Port) -> None:
        """Let the process die that has it open."""
        self.lose(opened)
        self._contract.crash(opened)

    def lose(self, opened: Port) -> None:
        """Close this no more: whoever has it is about to die."""
        self._opened = [other for other in self._opened if other is not opened]

    def revive(self, opened: Port) -> Port:
        """Let the process die, and start another on the same directory."""
        self.crash(opened)
        return self.open()

    def restart(self, opened: Port) -> Port:
        """Close in good order, and open again."""
        self.lose(opened)
        self._contract.close(opened)
        return self.open()

    def close(self) -> None:
        """Close everything that is still open."""
        while self._opened:
            self._contract.close(self._opened.pop())
