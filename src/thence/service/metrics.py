"""Metrics in the Prometheus text format.

Packages hand out what they counted as plain numbers; here they get names, help and labels. Each metric is documented
in docs/reference/metrics.md, and a test keeps that true.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from thence import __version__
from thence.service.lifecycle import Status

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Metrics:
    """The registry of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._services = _Services()
        self.registry.register(self._services)
        ProcessCollector(registry=self.registry)
        self.requests = Counter(
            "thence_http_requests",
            "Requests answered, by route and status.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "thence_http_request_seconds",
            "Time from the last byte of a request's head to the answer, by route.",
            ["route"],
            buckets=_BUCKETS,
            registry=self.registry,
        )

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
