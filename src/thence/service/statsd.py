"""Sends the metrics to a statsd server over UDP, every few seconds: the same names as /metrics, with dots.

Counters are sent as what they grew by, gauges as they are. Labels become tags in the form that Datadog and most servers
know, or parts of the name for those that know no tags. A packet that is lost is lost: nobody waits for it.
"""

from __future__ import annotations

import logging
import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import Metric
from prometheus_client.samples import Sample

from thence.service.settings import Address

_log = logging.getLogger(__name__)
_PACKET_BYTES = 1400
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_SKIPPED = ("_bucket", "_created")


class Statsd:
    """A service that sends."""

    name = "statsd"

    def __init__(
        self,
        address: Address,
        collect: Callable[[], Iterable[Metric]],
        *,
        tags: bool,
        interval_seconds: float,
    ) -> None:
        self._address = address
        self._collect = collect
        self._tags = tags
        self._interval_seconds = interval_seconds
        self._sent: dict[str, float] = {}
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> str:
        """Begin to send."""
        self._ended.clear()
        self._thread = threading.Thread(target=self._run, name="statsd", daemon=True)
        self._thread.start()
        return f"to {self._address} every {self._interval_seconds:g} s"

    def stop(self) -> None:
        """Send once more, and end."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def trouble(self) -> str:
        """Nothing: UDP tells of no trouble."""
        return ""

    def _run(self) -> None:
        family = socket.AF_INET6 if ":" in self._address.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as channel:
            while True:
                ended = self._ended.wait(self._interval_seconds)
                try:
                    for packet in packets(self._lines()):
                        channel.sendto(packet, (self._address.host, self._address.port))
                except OSError as error:
                    _log.warning("statsd: %s", error, extra={"action": "statsd_not_sent"})
                if ended:
                    return

    def _lines(self) -> Iterator[str]:
        for metric in self._collect():
            for sample in metric.samples:
                if not sample.name.endswith(_SKIPPED):
                    yield from self._line(sample, is_counter=metric.type != "gauge")

    def _line(self, sample: Sample, *, is_counter: bool) -> Iterator[str]:
        name, tags = named(sample.name, sample.labels, tags=self._tags)
        if not is_counter:
            yield f"{name}:{sample.value:g}|g{tags}"
            return
        grown = sample.value - self._sent.get(name + tags, 0.0)
        self._sent[name + tags] = sample.value
        if grown > 0:
            yield f"{name}:{grown:.15g}|c{tags}"


def named(name: str, labels: Mapping[str, str], *, tags: bool) -> tuple[str, str]:
    """The name with dots after `thence`, and the tags; without tags the labels' values are parts of the name."""
    dotted = name.removesuffix("_total").replace("thence_", "thence.", 1)
    safe = {key: _UNSAFE.sub("_", value) for key, value in labels.items()}
    if tags:
        return dotted, "|#" + ",".join(f"{key}:{value}" for key, value in safe.items()) if safe else ""
    return ".".join((dotted, *(value.replace(".", "_") for value in safe.values()))), ""


def packets(lines: Iterable[str]) -> Iterator[bytes]:
    """Lines together, as many as fit into a packet."""
    packet = b""
    for line in lines:
        data = line.encode()
        if packet and len(packet) + 1 + len(data) > _PACKET_BYTES:
            yield packet
            packet = b""
        packet = packet + b"\n" + data if packet else data
    if packet:
        yield packet
