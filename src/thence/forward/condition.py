"""Whether a forwarder gets on, and if not, why: told once in the log for as long as it is the same.

Any thread may look at it; only the forwarder's own writes.
"""

from __future__ import annotations

import logging

from thence.core.clock import Clock
from thence.core.errors import OutcomeUnknown, Rejected, ThenceError
from thence.core.event import Record
from thence.forward.stats import Trouble, TroubleKind

_log = logging.getLogger(__name__)


class Condition:
    """One forwarder's. Its own thread writes, any thread reads `trouble`."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.trouble: Trouble | None = None
        self._name = name
        self._clock = clock

    def well(self) -> None:
        """It gets on."""
        if self.trouble is not None:
            self.trouble = None
            _log.info("forwarding goes on", extra={"action": "forward_recovered", "destination": self._name})

    def note(self, kind: TroubleKind, error: ThenceError) -> None:
        """It does not."""
        before = self.trouble
        if before is not None and (before.kind, before.code) == (kind, error.code):
            return
        self.trouble = Trouble(kind, error.code, error.message, error.advice, self._clock.now())
        level = logging.WARNING if kind == "unavailable" else logging.ERROR
        about = {"action": "forward_trouble", "destination": self._name, "kind": kind, "code": error.code}
        _log.log(level, "forwarding does not get on: %s", error.message, extra=about)

    def note_refusal(self, record: Record, refusal: str) -> None:
        """An event was refused, and stays in front."""
        error = Rejected(
            "forward.refused",
            f"event {record.event.id} at position {record.position} is refused: {refusal}",
            advice="Correct the destination, and it goes on; or set on_reject to park, to pass over such events.",
        )
        self.note("blocked", error)

    def note_failure(self, kind: TroubleKind, error: Exception) -> None:
        """Something happened that nobody foresaw."""
        if isinstance(error, ThenceError):
            self.note(kind, error)
            return
        _log.error("forwarding failed", exc_info=error, extra={"action": "forward_failed"})
        foreseen = OutcomeUnknown(
            "forward.failed",
            f"{type(error).__name__}: {error}",
            advice="Events wait, and are tried again soon. Please report this with the log.",
        )
        self.note(kind, foreseen)
