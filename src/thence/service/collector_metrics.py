"""What the collector counts, with the names that docs/reference/metrics.md explains."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector as Source

from thence.core.errors import ThenceError
from thence.core.tally import Tally
from thence.service.collector import Collector, Parts


class CollectorMetrics(Source):
    """Looks at a collector whenever somebody scrapes."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def collect(self) -> Iterable[Metric]:
        """All families; none while the collector does not run."""
        try:
            parts = self._collector.parts
        except ThenceError:
            return
        yield from _door(parts)
        yield from _journal(parts)
        yield from _cursors({name: parts.journal.cursor(name).tally() for name in parts.journal.cursors()})
        yield from _failed(parts)


def _door(parts: Parts) -> Iterable[Metric]:
    counted = parts.door.counters
    yield _counter("thence_events_received", "Events that came in.", counted.received)
    yield _counter(
        "thence_events_received_bytes", "Bytes of the events that came in.", counted.received_bytes
    )
    yield _counter("thence_events_accepted", "Events that were found valid.", counted.accepted)
    yield _counter(
        "thence_events_unauthorized", "Requests without a key that may send.", counted.unauthorized
    )
    yield _labelled("thence_events_rejected", "Events that break a rule.", "rule", counted.rejected)
    yield _labelled(
        "thence_events_warned", "Events that were accepted with a warning.", "rule", counted.warnings
    )


def _journal(parts: Parts) -> Iterable[Metric]:
    journal, commits = parts.journal, parts.committer.counters
    yield _counter("thence_journal_appended", "Events ever appended.", journal.last)
    yield GaugeMetricFamily("thence_journal_bytes", "Bytes on disk.", journal.size_bytes)
    yield GaugeMetricFamily("thence_journal_partitions", "Files on disk.", len(journal.partitions))
    yield _counter("thence_journal_commits", "Syncs to disk, each of one or many events.", commits.commits)
    yield _counter("thence_journal_commit_events", "Events in these commits.", commits.events)
    yield _counter("thence_journal_commit_seconds", "Time that commits took.", commits.seconds)
    yield _counter(
        "thence_journal_commit_failures", "Commits that the disk or a limit refused.", commits.failures
    )
    expired = journal.counters
    yield _counter("thence_journal_expired", "Events that were forgotten at a limit.", expired.expired_events)
    yield _counter(
        "thence_journal_expired_bytes", "Bytes that were forgotten at a limit.", expired.expired_bytes
    )
    yield _counter("thence_journal_damaged", "Records that could not be read.", expired.damaged_records)


def _cursors(tallies: dict[str, Tally]) -> Iterable[Metric]:
    events = CounterMetricFamily(
        "thence_cursor_events",
        "What became of the events, for each destination.",
        labels=["cursor", "outcome"],
    )
    appended = CounterMetricFamily("thence_cursor_appended", "Events ever appended.", labels=["cursor"])
    waiting = GaugeMetricFamily("thence_cursor_waiting", "Events that wait.", labels=["cursor"])
    for name, tally in tallies.items():
        appended.add_metric([name], tally.appended)
        waiting.add_metric([name], tally.waiting)
        for outcome, count in msgspec.structs.asdict(tally.settled).items():
            events.add_metric([name, outcome], count)
    yield from (appended, waiting, events)


def _failed(parts: Parts) -> Iterable[Metric]:
    family = CounterMetricFamily(
        "thence_failed_events", "Events given to failed-event handlers.", labels=["handler", "outcome"]
    )
    for name, counted in parts.failed.counters().items():
        for outcome in ("handled", "failures", "dropped", "late"):
            family.add_metric([name, outcome], getattr(counted, outcome))
    yield family


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value)


def _labelled(name: str, text: str, label: str, values: dict[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for each, value in values.items():
        family.add_metric([each], value)
    return family
