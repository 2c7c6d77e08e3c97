"""What one destination gets to see, decided from data: which events it is spared, and what is changed in the others.

`Rules.apply` is pure. An event that no rule changes keeps its bytes exactly. One that rules must look into and that
cannot be read is parked: it might hold what a rule would have taken out.
"""

from __future__ import annotations

import re
from fnmatch import translate
from functools import lru_cache
from typing import Literal

import msgspec

from thence.core.errors import ConfigError
from thence.core.event import Event
from thence.forward import rewrite
from thence.forward.rewrite import Change

Kind = Literal["RunEvent", "DatasetEvent", "JobEvent"]
KINDS: frozenset[Kind] = frozenset(("RunEvent", "DatasetEvent", "JobEvent"))


class Drop(msgspec.Struct, frozen=True):
    """Spare the destination events by one of their names. An event that lacks the name is not dropped."""

    field: Literal["job.name", "job.namespace", "dataset.name", "dataset.namespace", "kind", "event_type"]
    pattern: str
    match: Literal["exact", "glob", "regex"] = "exact"

    def __post_init__(self) -> None:
        if self.match == "regex":
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise ConfigError(
                    "forward.rule",
                    f"the pattern {self.pattern!r} is no regular expression: {error}",
                    advice="Correct the pattern, or match by glob.",
                ) from error


class Takes(msgspec.Struct, frozen=True):
    """What a destination can take; the rest is parked at once, with the reason."""

    kinds: frozenset[Kind] = KINDS
    event_types: frozenset[str] | None = None
    """Run events of other types are dropped as noise; None: all types are wanted."""
    max_bytes: int | None = None


class Facts(msgspec.Struct, frozen=True):
    """What rules know of an event."""

    kind: Kind
    event_type: str | None
    job_name: str | None
    job_namespace: str | None
    dataset_name: str | None
    dataset_namespace: str | None

    def get(self, field: str) -> str | None:
        """The value that a rule names."""
        value: str | None = getattr(self, field.replace(".", "_"))
        return value


class Filtered(msgspec.Struct, frozen=True):
    """The destination is spared this event."""


class Parked(msgspec.Struct, frozen=True):
    """The destination cannot take this event."""

    code: str
    reason: str


class Rules(msgspec.Struct, frozen=True):
    """Everything for one destination."""

    drop: tuple[Drop, ...] = ()
    change: tuple[Change, ...] = ()
    takes: Takes = Takes()

    def apply(self, event: Event) -> Event | Filtered | Parked:
        """The event as the destination gets it, or why it does not."""
        takes = self.takes
        if self.drop or takes.kinds != KINDS or takes.event_types is not None:
            facts = read(event.payload)
            if facts is None:
                return _unreadable()
            judged = self._judge(facts)
            if judged is not None:
                return judged
        if self.change:
            try:
                event = rewrite.applied(self.change, event)
            except (msgspec.MsgspecError, RecursionError):
                return _unreadable()
        if takes.max_bytes is not None and len(event.payload) > takes.max_bytes:
            why = f"it has {len(event.payload)} bytes, the destination takes {takes.max_bytes}"
            return Parked("forward.too_large", why)
        return event

    def _judge(self, facts: Facts) -> Filtered | Parked | None:
        if any(_matches(rule, facts.get(rule.field)) for rule in self.drop):
            return Filtered()
        if facts.kind not in self.takes.kinds:
            return Parked("forward.kind_not_taken", f"the destination takes no {facts.kind}")
        wanted = self.takes.event_types
        if facts.kind == "RunEvent" and wanted is not None and (facts.event_type or "OTHER") not in wanted:
            return Filtered()
        return None


def read(payload: bytes) -> Facts | None:
    """The facts of an event; None when it is no JSON object of the three kinds."""
    try:
        head = _decode(payload)
    except (msgspec.MsgspecError, RecursionError):
        return None
    kind: Kind | None = None
    if head.run is not msgspec.UNSET:
        kind = "RunEvent"
    elif head.dataset is not msgspec.UNSET:
        kind = "DatasetEvent"
    elif head.job is not msgspec.UNSET:
        kind = "JobEvent"
    if kind is None:
        return None
    job = head.job or _Named()
    dataset = head.dataset or _Named()
    return Facts(kind, head.eventType, job.name, job.namespace, dataset.name, dataset.namespace)


class _Named(msgspec.Struct):
    name: str | None = None
    namespace: str | None = None


class _Head(msgspec.Struct):
    eventType: str | None = None  # noqa: N815 - as the specification spells it
    run: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    job: _Named | msgspec.UnsetType | None = msgspec.UNSET
    dataset: _Named | msgspec.UnsetType | None = msgspec.UNSET


_decode = msgspec.json.Decoder(_Head).decode


def _matches(rule: Drop, value: str | None) -> bool:
    if value is None:
        return False
    if rule.match == "exact":
        return value == rule.pattern
    return _compiled(rule.pattern, rule.match).search(value) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str, match: str) -> re.Pattern[str]:
    return re.compile(translate(pattern) if match == "glob" else pattern)


def _unreadable() -> Parked:
    return Parked("forward.unreadable", "it cannot be read as an event, so no rule can be applied to it")
