"""The collector: journal, failed events, and the door for OpenLineage events, started and stopped as one service.

Order of start: failed events, journal, committer. Order of stop, after the last answer: committer, handlers, stores.
A housekeeping thread gives back what is done with and expires what is too old.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from thence.collect.committer import Committer
from thence.collect.failed import FailedEvents, Refusals
from thence.collect.keys import PREFIX, Key, Keys, Role, hash_of
from thence.collect.lineage import MAX_BODY_BYTES, LineageDoor
from thence.core.clock import Clock, SystemClock
from thence.core.errors import InvariantBroken, ThenceError
from thence.http.exchange import Request, Response, Route
from thence.http.routes import Routes
from thence.journal.letters.store import SqliteDeadLetters
from thence.journal.log import FileJournal
from thence.service import lanes
from thence.service.failed import failed_events
from thence.service.settings import KeySettings, LineageSettings, Settings

_log = logging.getLogger(__name__)
_HOUSEKEEPING_SECONDS = 5.0


class Parts(msgspec.Struct, frozen=True):
    """What runs while the collector does."""

    journal: FileJournal
    letters: SqliteDeadLetters
    failed: FailedEvents
    committer: Committer
    door: LineageDoor


class Collector:
    """The service of that name. `on_commit` is called after each batch of events is durable."""

    name = "collector"

    def __init__(
        self,
        settings: Settings,
        state: Path,
        *,
        on_commit: Callable[[], None] = lambda: None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._state = state
        self._on_commit = on_commit
        self._clock = clock or SystemClock()
        self._parts: Parts | None = None
        self._ended = threading.Event()
        self._housekeeper: threading.Thread | None = None

    @property
    def parts(self) -> Parts:
        """What runs; only between start and stop."""
        if self._parts is None:
            raise InvariantBroken("collect.not_started", "the collector was not started")
        return self._parts

    @property
    def lineage(self) -> LineageSettings:
        """The settings of the door, as they are in force."""
        return self._settings.collect.lineage

    def routes(self) -> Routes:
        """Paths and methods. They may be asked from the start of the service to its stop."""
        return {
            "/api/v1/lineage": {"POST": Route(self._post, "whole", MAX_BODY_BYTES)},
            "/api/v1/lineage/batch": {"POST": Route(self._post_batch, "whole", MAX_BODY_BYTES)},
        }

    def start(self) -> str:
        """Open everything; returns how much waits."""
        lineage = self._settings.collect.lineage
        validator, keys = lanes.validator_of(lineage), keys_of(lineage.keys)
        limits = lanes.letter_limits_of(lineage.failed.journal)
        letters = SqliteDeadLetters(lanes.letters_path(self._state), limits, self._clock)
        try:
            failed = failed_events(lineage.failed, self._state, letters)
            directory = lanes.journal_directory(self._state)
            journal = FileJournal(
                directory, lanes.limits_of(self._settings.journal.lineage), clock=self._clock
            )
        except ThenceError:
            letters.close()
            raise
        committer = Committer(journal, on_commit=self._on_commit, clock=self._clock)
        door = LineageDoor(committer, validator, Refusals(failed, self._clock), keys=keys, clock=self._clock)
        self._parts = Parts(journal, letters, failed, committer, door)
        committer.start()
        self._ended.clear()
        self._housekeeper = threading.Thread(target=self._keep_house, name="housekeeping", daemon=True)
        self._housekeeper.start()
        return f"{journal.last} events so far, {journal.size_bytes / 1e6:.0f} MB on disk"

    def stop(self) -> None:
        """Commit what was accepted, let the handlers finish, close the files."""
        self._ended.set()
        if self._housekeeper is not None:
            self._housekeeper.join()
        if self._parts is not None:
            self._parts.committer.stop()
            self._parts.failed.close()
            self._parts.letters.close()
            self._parts.journal.close()
        self._parts = self._housekeeper = None

    def trouble(self) -> str:
        """Whether events can be written."""
        return self.parts.committer.trouble

    def reconfigure(self, settings: Settings) -> None:
        """Use other levels, keys and limits from now on."""
        lineage = settings.collect.lineage
        self.parts.door.reconfigure(lanes.validator_of(lineage), keys_of(lineage.keys))
        self.parts.journal.limits = lanes.limits_of(settings.journal.lineage)
        self._settings = settings

    def _post(self, request: Request) -> Response | asyncio.Future[Response]:
        return self.parts.door.post(request)

    async def _post_batch(self, request: Request) -> Response:
        return await self.parts.door.post_batch(request)

    def _keep_house(self) -> None:
        while not self._ended.wait(_HOUSEKEEPING_SECONDS):
            for keep in (self.parts.journal.maintain, self.parts.letters.maintain):
                try:
                    keep()
                except ThenceError as error:
                    _log.error(str(error), extra={"action": "housekeeping_failed"})


def keys_of(settings: list[KeySettings]) -> Keys:
    """The API keys; a setting holds the key itself or its hash."""
    return Keys(Key(each.id, _hashed(each.key.reveal()), Role(each.role)) for each in settings)


def _hashed(key: str) -> str:
    return key if key.startswith(PREFIX) else hash_of(key)
