"""What the forwarders count, with the names that docs/reference/metrics.md explains."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector as Source

from thence.service.forward import Forwarding

_BREAKER = {"closed": 0, "half_open": 1, "open": 2}


class ForwardMetrics(Source):
    """Looks at the forwarders whenever somebody scrapes."""

    def __init__(self, forwarding: Forwarding) -> None:
        self._forwarding = forwarding

    def collect(self) -> Iterable[Metric]:
        """All families, with a sample for each destination."""
        lag_events = _gauge("lag_events", "Events that wait for the destination.")
        lag_bytes = _gauge("lag_bytes", "Bytes that wait for the destination, about.")
        lag_seconds = _gauge("lag_seconds", "Age of the oldest event that waits.")
        trouble = _gauge("trouble", "1 while the destination does not take events.")
        breaker = _gauge("breaker", "0 closed, 1 probing, 2 open.")
        sends = _counter("sends", "Calls to the destination.")
        retries = _counter("retries", "Calls that were repeated.")
        for forwarder in self._forwarding.forwarders:
            stats = forwarder.stats()
            name = [forwarder.name]
            lag_events.add_metric(name, stats.lag_events)
            lag_bytes.add_metric(name, stats.lag_bytes)
            lag_seconds.add_metric(name, stats.lag_seconds)
            trouble.add_metric(name, float(stats.trouble is not None))
            breaker.add_metric(name, _BREAKER[stats.breaker])
            sends.add_metric(name, stats.counters.sends)
            retries.add_metric(name, stats.counters.retries)
        return (lag_events, lag_bytes, lag_seconds, trouble, breaker, sends, retries)


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"thence_forward_{name}", text, labels=["destination"])


def _counter(name: str, text: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"thence_forward_{name}", text, labels=["destination"])
