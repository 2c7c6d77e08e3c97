"""What survives when an implementation in memory "crashes": the state that it keeps, outside of itself.

Implementations change the state in small steps and call `reach` before each. A test can let the power fail at one of
them, and then sees what a process would find that starts afterwards.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

State = TypeVar("State")


class PowerFailure(BaseException):
    """The power went off before this step of a write. No code may catch this: a process never sees its own death."""


class Disk:
    """Named states, and the power that a test may switch off."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._states: dict[str, object] = {}
        self._steps_left: int | None = None

    def state(self, name: str, make: Callable[[], State]) -> State:
        """The state of that name; made when it is not there."""
        with self.lock:
            found: State = self._states.setdefault(name, make())  # type: ignore[assignment]
            return found

    def fail_after(self, steps: int) -> None:
        """Let the power fail once that many more steps have been made."""
        with self.lock:
            self._steps_left = steps

    def repair(self) -> None:
        """Switch the power on again."""
        with self.lock:
            self._steps_left = None

    def reach(self) -> None:
        """Make one step, or die."""
        with self.lock:
            if self._steps_left is None:
                return
            if self._steps_left == 0:
                raise PowerFailure
            self._steps_left -= 1
