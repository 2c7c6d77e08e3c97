"""What a statsd server receives, on a real socket."""

from __future__ import annotations

import socket
from collections.abc import Iterable

import pytest
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from thence.service.settings import Address
from thence.service.statsd import Statsd, packets


class Figures:
    def __init__(self) -> None:
        self.count = 3.0

    def collect(self) -> Iterable[Metric]:
        counter = CounterMetricFamily("thence_cursor_events", "", labels=["cursor", "outcome"])
        counter.add_metric(["a b|c", "delivered"], self.count)
        return (counter, GaugeMetricFamily("thence_journal_bytes", "", 12.5))


@pytest.mark.parametrize(
    ("tags", "first"),
    [
        (True, "thence.cursor_events:3|c|#cursor:a_b_c,outcome:delivered\nthence.journal_bytes:12.5|g"),
        (False, "thence.cursor_events.a_b_c.delivered:3|c\nthence.journal_bytes:12.5|g"),
    ],
)
def test_counters_are_sent_as_growth_and_gauges_as_they_are(tags: bool, first: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(30)
        figures = Figures()
        address = Address(f"127.0.0.1:{server.getsockname()[1]}")
        statsd = Statsd(address, figures.collect, tags=tags, interval_seconds=0.05)
        statsd.start()
        assert server.recv(2000).decode() == first
        assert server.recv(2000).decode() == "thence.journal_bytes:12.5|g"
        figures.count = 8.0
        while "cursor_events" not in (line := server.recv(2000).decode()):
            continue
        assert ":5|c" in line
        statsd.stop()


def test_packets_stay_below_what_a_network_carries() -> None:
    made = list(packets(f"name_{number}:1|c" for number in range(1000)))
    assert all(len(packet) <= 1400 for packet in made)
    assert b"\n".join(made).count(b"\n") == 999


def test_a_server_that_is_not_there_hurts_nobody() -> None:
    statsd = Statsd(Address("127.0.0.1:9"), Figures().collect, tags=True, interval_seconds=0.01)
    statsd.start()
    statsd.stop()
