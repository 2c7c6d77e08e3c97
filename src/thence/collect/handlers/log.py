"""Writes one log record for each failed event: why and where from, never what stood in it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from thence.core.ports import DeadLetter

_log = logging.getLogger(__name__)


class LogHandler:
    """The handler `log`."""

    name = "log"

    def handle(self, letters: Sequence[DeadLetter]) -> None:
        """See FailedEventHandler."""
        for letter in letters:
            about = {
                "action": "event_failed",
                "event": str(letter.event.id),
                "stage": letter.stage,
                "code": letter.code,
                "path": letter.violations[0].path if letter.violations else "",
                "size_bytes": len(letter.event.payload),
                "remote": letter.remote,
                "key_id": letter.key_id,
            }
            _log.warning("an event failed", extra=about)

    def close(self) -> None:
        """There is nothing to let go of."""
