"""The verdict on an event: valid, valid with warnings, or what is wrong with it.

A valid event costs one parse and one call of a compiled schema. Everything that needs words happens only after
that call said no. The kind is told first (run, dataset, job), so that a fault is named where it stands. Nothing is
kept between events and nothing is fetched; a `Validator` may be built anew at any time to change the level.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import islice
from types import MappingProxyType

import jsonschema_rs
import msgspec

from thence.collect import spec as specification
from thence.collect.explain import explain, has_format, violation
from thence.collect.parse import DEPTH_LIMIT, parse
from thence.collect.policy import Exceptions, Level, read
from thence.collect.schema import compose
from thence.core.errors import InvalidEvent, InvariantBroken, Violation

VIOLATION_LIMIT = 20
_EVENTS = {"run": "RunEvent", "dataset": "DatasetEvent", "job": "JobEvent"}


class Verdict(msgspec.Struct, frozen=True):
    """What was found: the kind (empty if it cannot be told), the faults, and what was tolerated."""

    kind: str
    violations: tuple[Violation, ...] = ()
    warnings: tuple[Violation, ...] = ()

    @property
    def valid(self) -> bool:
        """Whether the event is accepted."""
        return not self.violations


_CLEAN = {kind: Verdict(kind) for kind in _EVENTS}


class Validator:
    """Checks events at one level, with exceptions for single facets."""

    def __init__(
        self,
        level: Level | str = Level.SPEC,
        exceptions: Exceptions = MappingProxyType({}),
        *,
        depth_limit: int = DEPTH_LIMIT,
    ) -> None:
        self.policy = read(level, exceptions)
        self._depth_limit = depth_limit
        self._spec = specification.load()
        self._accepts = {kind: self._compile(event).is_valid for kind, event in _EVENTS.items()}

    def _compile(self, event: str) -> jsonschema_rs.Draft202012Validator:
        schema = compose(self._spec, self.policy, event)
        return jsonschema_rs.Draft202012Validator(schema, validate_formats=True, offline=True)

    def check(self, payload: bytes) -> Verdict:
        """Parse and check; what cannot be parsed is a violation too."""
        try:
            event = parse(payload, self._depth_limit)
        except InvalidEvent as error:
            return Verdict("", violations=error.violations)
        return self.check_value(event)

    def check_batch(self, payloads: Iterable[bytes]) -> list[Verdict]:
        """A verdict for each event of a batch, as `parse.split` hands them out."""
        return [self.check(payload) for payload in payloads]

    def check_value(self, event: object) -> Verdict:
        """Check an event that is parsed already."""
        if not isinstance(event, dict):
            return Verdict("", violations=(violation("", "type", "the event is not an object", event),))
        kinds = _kinds(event)
        if len(kinds) == 1:
            return self._check_as(kinds[0], event)
        return self._undecided(kinds, event)

    def _undecided(self, kinds: tuple[str, ...], event: dict[str, object]) -> Verdict:
        """By the specification exactly one kind of event must fit."""
        verdicts = [self._check_as(kind, event) for kind in kinds]
        fitting = [verdict for verdict in verdicts if verdict.valid]
        if not verdicts:
            message = 'the event has none of "run", "dataset" and "job"'
            return Verdict("", violations=(violation("", "kind", message),))
        if len(fitting) > 1:
            message = 'the event has both "dataset" and "job" and can be read as either'
            return Verdict("", violations=(violation("", "kind", message),))
        return (fitting or verdicts)[0]

    def _check_as(self, kind: str, event: dict[str, object]) -> Verdict:
        if self._accepts[kind](event) and _common(event["eventTime"]):
            return _CLEAN[kind]
        patched, warnings = self._tolerate(event)
        violations = self._violations(kind, patched)
        return Verdict(kind, violations, warnings)

    def _tolerate(self, event: dict[str, object]) -> tuple[dict[str, object], tuple[Violation, ...]]:
        """The event as this level reads it, and what was read differently."""
        patches: dict[str, object] = {}
        warnings = []
        if self.policy.level is Level.LENIENT:
            for name in ("producer", "schemaURL"):
                if name not in event:
                    patches[name] = "about:blank"
                    warnings.append(violation(name, "required", "is missing"))
        time = event.get("eventTime")
        if (
            self.policy.level is not Level.STRICT
            and isinstance(time, str)
            and has_format(f"{time}Z", "date-time")
        ):
            patches["eventTime"] = f"{time}Z"
            warnings.append(violation("eventTime", "time_zone", "has no zone and is read as UTC", time))
        return event | patches, tuple(warnings)

    def _violations(self, kind: str, event: dict[str, object]) -> tuple[Violation, ...]:
        found: list[Violation] = []
        if not self._accepts[kind](event):
            found = list(islice(explain(self._spec, self.policy, _EVENTS[kind], event), VIOLATION_LIMIT))
            if not found:
                raise InvariantBroken(
                    "collect.verdict_unexplained",
                    f"An event was refused as {_EVENTS[kind]} and no rule says why.",
                    advice="Keep the event and report a bug.",
                )
        elif not _in_range(str(event["eventTime"])):
            message = "is outside of the years 0001 to 9999 in UTC"
            found.append(violation("eventTime", "time_range", message, event["eventTime"]))
        return tuple(found)


def _kinds(event: dict[str, object]) -> tuple[str, ...]:
    """The kinds that an event can be by its keys.

    With `run` and `job` it is a RunEvent, whatever else it has. `job` and `dataset` without `run` fit two kinds.
    """
    if "job" in event:
        if "run" in event:
            return ("run",)
        return ("dataset", "job") if "dataset" in event else ("job",)
    if "dataset" in event:
        return ("dataset",)
    return ("run",) if "run" in event else ()


def _common(time: object) -> bool:
    """Whether a time is so far from the ends of the calendar that its zone cannot push it over."""
    return isinstance(time, str) and "0001" < time[:4] < "9999"


def _in_range(time: str) -> bool:
    """Whether a date-time, brought to UTC, is one that databases and Python can hold."""
    zone = time[-6:] if time[-6] in "+-" else "+00:00"
    offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[4:]))
    try:
        minute = datetime.fromisoformat(time[:16])
        minute + offset if zone[0] == "-" else minute - offset
    except (ValueError, OverflowError):
        return False
    return True
