"""Metrics in the Prometheus text format.

Packages hand out what they counted as plain numbers; here they get names, help and labels. Each metric is documented
in docs/reference/metrics.md, and a test keeps that true.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from thence import __version__
from thence.http.counters import BUCKETS, Counters
from thence.service.collector import Collector as CollectorService
from thence.service.collector_metrics import CollectorMetrics
from thence.service.forward import Forwarding
from thence.service.forward_metrics import ForwardMetrics
from thence.service.lifecycle import Status


class Metrics:
    """The registry of one process."""

    def __init__(self, http: Counters, collector: CollectorService, forwarding: Forwarding) -> None:
        self.registry = CollectorRegistry()
        self._services = _Services()
        self.registry.register(self._services)
        self.registry.register(_Http(http))
        self.registry.register(CollectorMetrics(collector))
        self.registry.register(ForwardMetrics(forwarding))
        ProcessCollector(registry=self.registry)

    def collect(self, statuses: Sequence[Status]) -> Iterable[Metric]:
        """All metrics as values."""
        self._services.statuses = statuses
        return self.registry.collect()

    def render(self, accept: str, statuses: Sequence[Status]) -> tuple[bytes, str]:
        """All metrics, and the content type that suits the reader."""
        self._services.statuses = statuses
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type


class _Services(Collector):
    statuses: Sequence[Status] = ()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        build = GaugeMetricFamily("thence_build", "Always 1; the version is the label.", labels=["version"])
        build.add_metric([__version__], 1)
        ready = GaugeMetricFamily("thence_service_ready", "1 while a service is ready.", labels=["service"])
        start = GaugeMetricFamily(
            "thence_service_start_seconds", "How long a service took to get ready.", labels=["service"]
        )
        for status in self.statuses:
            ready.add_metric([status.name], float(status.phase == "ready"))
            start.add_metric([status.name], status.seconds)
        return (build, ready, start)


class _Http(Collector):
    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def collect(self) -> Iterable[Metric]:
        counters = self._counters
        requests = CounterMetricFamily(
            "thence_http_requests",
            "Requests answered, by route and status.",
            labels=["method", "route", "status"],
        )
        for (method, route, status), count in counters.requests.items():
            requests.add_metric([method, route, str(status)], count)
        refused = CounterMetricFamily(
            "thence_http_refused",
            "Requests and connections that were not served, by reason.",
            labels=["reason"],
        )
        for reason, count in counters.refused.items():
            refused.add_metric([reason], count)
        yield from (requests, refused, self._seconds())
        yield GaugeMetricFamily("thence_http_connections", "Connections that are open.", counters.connections)
        yield CounterMetricFamily(
            "thence_http_received_bytes", "Bytes read from clients.", counters.received_bytes
        )
        yield CounterMetricFamily("thence_http_sent_bytes", "Bytes written to clients.", counters.sent_bytes)

    def _seconds(self) -> HistogramMetricFamily:
        family = HistogramMetricFamily(
            "thence_http_request_seconds",
            "Time from the last byte of a request's head to the answer, by route.",
            labels=["route"],
        )
        for route, durations in self._counters.seconds.items():
            totals = accumulate(durations.counts)
            bounds = [*map(str, BUCKETS), "+Inf"]
            family.add_metric([route], list(zip(bounds, totals, strict=True)), durations.sum)
        return family
