"""Where OpenLineage events come in: one, or many at once.

An event is checked, appended to the journal and synced, and only then answered with 200, whatever is behind that.
One that breaks the specification is handed to the failed-event handlers and answered with 400 and what is wrong.
Whether a backend lives is of no interest here.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

import msgspec

from thence.collect.committer import Committer
from thence.collect.keys import Key, Keys, Role
from thence.collect.parse import split
from thence.collect.validate import Validator, Verdict
from thence.core.clock import Clock, SystemClock
from thence.core.errors import InvalidEvent, Unavailable, Violation
from thence.core.event import Event
from thence.core.ids import IdFactory
from thence.http.exchange import Request, Response, answer, refusal

MAX_BODY_BYTES = 32 << 20
EVENT_ID = "thence-event-id"
UNAUTHORIZED = msgspec.structs.replace(
    refusal(401, "collect.key", "a valid API key is needed", "Send it as: Authorization: Bearer KEY"),
    headers=(("www-authenticate", "Bearer"),),
)


class Failures(Protocol):
    """Where events go that break the specification."""

    def submit(self, event: Event, violations: Sequence[Violation], remote: str) -> asyncio.Future[None]:
        """A future that resolves when the event is kept, or could not be."""
        ...


class LineageCounters(msgspec.Struct):
    """What came in since the start."""

    received: int = 0
    received_bytes: int = 0
    accepted: int = 0
    unauthorized: int = 0
    rejected: Counter[str] = msgspec.field(default_factory=Counter)
    warnings: Counter[str] = msgspec.field(default_factory=Counter)


class LineageDoor:
    """Handlers for OpenLineage events.

    A client that sends an event again may name the event's id in the header `thence-event-id`; the event keeps it.
    """

    def __init__(
        self,
        committer: Committer,
        validator: Validator,
        failures: Failures,
        *,
        keys: Keys | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.counters = LineageCounters()
        self._committer = committer
        self._validator = validator
        self._failures = failures
        self._keys = keys or Keys()
        self._clock = clock or SystemClock()
        self._ids = IdFactory(self._clock)

    def reconfigure(self, validator: Validator, keys: Keys) -> None:
        """Use another level and other keys from the next request on."""
        self._validator, self._keys = validator, keys

    def admits(self, request: Request, role: Role) -> bool:
        """Whether the key of a request may do this."""
        return self._keys.find(request.headers.get("authorization", ""), role) is not None

    def post(self, request: Request) -> Response | asyncio.Future[Response]:
        """One event."""
        key = self._keys.find(request.headers.get("authorization", ""), Role.WRITE)
        if key is None:
            self.counters.unauthorized += 1
            return UNAUTHORIZED
        verdict = self._examine(request.body)
        event = self._event(request, key, verdict, request.body)
        if verdict.violations:
            return self._refuse(event, verdict.violations, request.remote)
        self.counters.accepted += 1
        return self._committer.submit((event,), Response(b'{"id":"%s"}' % str(event.id).encode()))

    async def post_batch(self, request: Request) -> Response:
        """Many events, with a verdict for each; the valid ones are kept whatever becomes of the others."""
        key = self._keys.find(request.headers.get("authorization", ""), Role.WRITE)
        if key is None:
            self.counters.unauthorized += 1
            return UNAUTHORIZED
        try:
            bodies = split(request.body)
        except InvalidEvent as error:
            return _bad_request(error.violations)
        verdicts = [self._examine(body) for body in bodies]
        events = [self._event(request, key, *pair) for pair in zip(verdicts, bodies, strict=True)]
        valid = [event for event, verdict in zip(events, verdicts, strict=True) if verdict.valid]
        broken = [index for index, verdict in enumerate(verdicts) if not verdict.valid]
        keeping = [self._failures.submit(events[i], verdicts[i].violations, request.remote) for i in broken]
        failed = [_failure(i, verdicts[i].violations) for i in broken]
        try:
            if valid:
                await self._committer.submit(valid, None)
        except Unavailable:
            if not broken:
                raise
            failed += [_later(index) for index, verdict in enumerate(verdicts) if verdict.valid]
        else:
            self.counters.accepted += len(valid)
        await asyncio.gather(*keeping)
        return _summary(len(bodies), failed)

    def _examine(self, body: bytes) -> Verdict:
        verdict = self._validator.check(body)
        counters = self.counters
        counters.received += 1
        counters.received_bytes += len(body)
        for warning in verdict.warnings:
            counters.warnings[warning.rule] += 1
        if verdict.violations:
            counters.rejected[verdict.violations[0].rule] += 1
        return verdict

    def _event(self, request: Request, key: Key, verdict: Verdict, body: bytes) -> Event:
        kind = f"lineage.{verdict.kind}" if verdict.kind else "lineage"
        given = request.headers.get(EVENT_ID)
        identifier = self._ids() if given is None else _given_id(given) or self._ids()
        return Event(identifier, self._clock.now(), kind, key.id, body, request.traceparent)

    def _refuse(
        self, event: Event, violations: tuple[Violation, ...], remote: str
    ) -> asyncio.Future[Response]:
        refused: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

        def kept(_: asyncio.Future[None]) -> None:
            if not refused.done():
                refused.set_result(_bad_request(violations))

        self._failures.submit(event, violations, remote).add_done_callback(kept)
        return refused


def _given_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _bad_request(violations: Sequence[Violation]) -> Response:
    first = violations[0]
    return refusal(
        400,
        "event.invalid",
        f"{first.path or 'the event'}: {first.message}",
        "Correct the event; docs/reference/validation.md explains the rules.",
        violations=violations,
    )


def _failure(index: int, violations: Sequence[Violation]) -> dict[str, object]:
    reason = "; ".join(f"{each.path or 'the event'}: {each.message}" for each in violations[:3])
    return {"index": index, "reason": reason, "retriable": False, "violations": violations}


def _later(index: int) -> dict[str, object]:
    return {"index": index, "reason": "the journal cannot take it now", "retriable": True}


def _summary(received: int, failed: Sequence[dict[str, object]]) -> Response:
    if not failed:
        return Response(status=204)
    retriable = sum(bool(each["retriable"]) for each in failed)
    summary = {
        "received": received,
        "successful": received - len(failed),
        "failed": len(failed),
        "retriable": retriable,
        "non_retriable": len(failed) - retriable,
    }
    ordered = sorted(failed, key=lambda each: int(str(each["index"])))
    return answer({"status": "partial_success", "summary": summary, "failed_events": ordered})
