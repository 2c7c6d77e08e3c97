"""Sends failed events again: through the door of a running collector, or straight into the journal when none runs.

1. The event is checked again, as if it had just come; its id stays the same.
2. Accepted: it is in the journal, durably. Then its letter is removed. A crash in between leaves the letter, and the
   next replay sends the event a second time, with the same id.
3. Refused: the letter stays, with the new reason and one attempt more.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Sequence
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from thence.collect.failed import reason_of
from thence.collect.lineage import EVENT_ID
from thence.collect.validate import Validator
from thence.core.errors import ConfigError, Rejected, Unavailable, Violation
from thence.core.event import Event
from thence.core.ports import DeadLetter, Journal
from thence.journal.letters.queries import Filters
from thence.journal.letters.store import SqliteDeadLetters

PATH = "/api/v1/lineage"
_PAGE = 100
_TIMEOUT_SECONDS = 30.0
_ACCEPTED = range(200, 300)
_REFUSED = (400, 413, 415, 422)
_NOT_ALLOWED = (401, 403)


class Answer(msgspec.Struct, frozen=True):
    """What became of one letter; without a code it was accepted."""

    letter: DeadLetter
    code: str = ""
    reason: str = ""
    violations: tuple[Violation, ...] = ()


class Way(Protocol):
    """How events get in again."""

    def send(self, letters: Sequence[DeadLetter]) -> Iterator[list[Answer]]:
        """Send letters in order. What is yielded as accepted is durable."""
        ...


class Outcome(msgspec.Struct):
    """How many letters were accepted and removed, and how many were refused and stay."""

    accepted: int = 0
    refused: int = 0


class Replay:
    """One run over the letters that match. `outcome` is right at every moment, also after an error."""

    def __init__(self, letters: SqliteDeadLetters, way: Way, *, is_dry: bool = False) -> None:
        self.outcome = Outcome()
        self._letters = letters
        self._way = way
        self._is_dry = is_dry

    def run(self, filters: Filters, limit: int | None = None) -> Iterator[Answer]:
        """Send letters in the order of their ids; yields what became of each."""
        for page in self._pages(filters, limit):
            for answers in self._way.send(page):
                self._settle(answers)
                yield from answers

    def _pages(self, filters: Filters, limit: int | None) -> Iterator[list[DeadLetter]]:
        # Letters that come while this runs are left for the next time.
        newest = self._letters.newest()
        after, left = None, limit
        while newest is not None:
            size = _PAGE if left is None else min(left, _PAGE)
            page = self._letters.search(filters, after=after, limit=size)
            page = [letter for letter in page if letter.id <= newest]
            if not page:
                return
            yield page
            after = page[-1].id
            left = None if left is None else left - len(page)

    def _settle(self, answers: Sequence[Answer]) -> None:
        refused = [answer for answer in answers if answer.code]
        accepted = [answer.letter.id for answer in answers if not answer.code]
        if not self._is_dry:
            self._letters.remove(accepted)
            self._letters.put([_again(answer) for answer in refused])
        self.outcome.accepted += len(accepted)
        self.outcome.refused += len(refused)


class Direct:
    """Into the journal of this machine, while nobody else has it. Without a journal events are only checked."""

    def __init__(self, validator: Validator, journal: Journal | None) -> None:
        self._validator = validator
        self._journal = journal

    def send(self, letters: Sequence[DeadLetter]) -> Iterator[list[Answer]]:
        """See Way."""
        answers: list[Answer] = []
        events: list[Event] = []
        for letter in letters:
            verdict = self._validator.check(letter.event.payload)
            answers.append(_refused(letter, verdict.violations) if verdict.violations else Answer(letter))
            if verdict.valid:
                # What it is, nobody could tell before; the door says it in the same words.
                kind = f"lineage.{verdict.kind}"
                events.append(msgspec.structs.replace(letter.event, kind=kind))
        if self._journal is not None:
            self._journal.append(events)
        yield answers


class Door:
    """Over HTTP, one request for each event, on one connection."""

    def __init__(self, url: str, *, api_key: str = "") -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                "failed.replay_url",
                f"{url!r} is no address of a collector",
                advice="Write --url http://127.0.0.1:8080.",
            )
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._url = url
        self._path = parts.path.rstrip("/") + PATH
        self._connection = kind(parts.hostname, parts.port, timeout=_TIMEOUT_SECONDS)
        self._headers = {"content-type": "application/json"}
        if api_key:
            self._headers["authorization"] = f"Bearer {api_key}"

    def send(self, letters: Sequence[DeadLetter]) -> Iterator[list[Answer]]:
        """See Way."""
        for letter in letters:
            yield [self._send(letter)]

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def _send(self, letter: DeadLetter) -> Answer:
        headers = {**self._headers, EVENT_ID: str(letter.event.id)}
        if letter.event.traceparent:
            headers["traceparent"] = letter.event.traceparent
        try:
            self._connection.request("POST", self._path, letter.event.payload, headers)
            response = self._connection.getresponse()
            status, body = response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise _unavailable(self._url, str(error) or type(error).__name__) from error
        if status in _ACCEPTED:
            return Answer(letter)
        if status in _NOT_ALLOWED:
            raise Rejected(
                "failed.replay_not_allowed",
                f"the collector at {self._url} answered {status}",
                advice="Give a key that may send events: --api-key, or OPENLINEAGE_API_KEY.",
            )
        if status not in _REFUSED:
            raise _unavailable(self._url, f"it answered {status}")
        return _refused(letter, violations_in(body), f"the collector answered {status}")


def violations_in(body: bytes) -> tuple[Violation, ...]:
    """The faults that the body of a refusal names, wherever they stand."""
    try:
        content = msgspec.json.decode(body)
        for key in ("error", "violations"):
            content = content.get(key, content) if isinstance(content, dict) else content
        return msgspec.convert(content, tuple[Violation, ...])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ()


def _refused(letter: DeadLetter, violations: tuple[Violation, ...], reason: str = "") -> Answer:
    code = violations[0].rule if violations else "event.invalid"
    return Answer(letter, code, reason_of(violations) if violations else reason, violations)


def _again(answer: Answer) -> DeadLetter:
    return msgspec.structs.replace(
        answer.letter,
        code=answer.code,
        reason=answer.reason,
        violations=answer.violations,
        attempts=answer.letter.attempts + 1,
    )


def _unavailable(url: str, reason: str) -> Unavailable:
    return Unavailable(
        "failed.replay_unavailable",
        f"the collector at {url} does not take events: {reason}",
        advice="Try again when it does. What it did not accept is still among the failed events.",
    )
