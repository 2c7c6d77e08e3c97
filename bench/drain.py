"""How fast a backlog drains to a backend that takes batches: from 5 GB waiting (0.5 GB with --quick), in order.

The journal is filled first, then a sidecar is started on it. `drain_mb_per_second` is from first to last event;
memory is the peak of the sidecar; `disk_mb_half_way` is what is on disk when half is delivered: deleted files are
given back while it drains.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from bench.door import payload
from bench.harness import Spread, tell, tree_cpu_seconds, tree_memory_bytes
from thence.core.event import Event
from thence.core.ids import IdFactory
from thence.http.exchange import Request, Response, Route
from thence.http.server import HttpServer
from thence.journal.limits import Limits
from thence.journal.log import FileJournal
from thence.service.settings import Address

_TOGETHER = 1000


def measure(*, quick: bool) -> dict[str, Spread | float]:
    size_mb = 500 if quick else 5000
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        count = fill(state / "journal" / "lineage", size_mb)
        sink = Sink()
        server = HttpServer(Address("127.0.0.1:0"), {"/batch": {"POST": Route(sink.take, "whole", 64 << 20)}})
        server.start()
        try:
            return drain(state, server.url, sink, count)
        finally:
            server.stop()


def drain(state: Path, url: str, sink: Sink, count: int) -> dict[str, Spread | float]:
    options = [
        "--state",
        str(state),
        "--set",
        "log.level=error",
        "--set",
        "forward.backend.batch_path=/batch",
    ]
    command = [
        sys.executable,
        "-m",
        "thence",
        "--json",
        *options,
        "collect",
        "--listen",
        "127.0.0.1:0",
        "--backend",
        url,
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak = half_way = 0.0
    try:
        while sink.count < count:
            peak = max(peak, tree_memory_bytes(process.pid) / 1e6)
            if not half_way and sink.count > count / 2:
                half_way = disk_mb(state)
            if process.poll() is not None:
                sys.exit("bench: the sidecar ended")
            time.sleep(0.1)
        seconds, cpu = sink.last_at - sink.first_at, tree_cpu_seconds(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    return {
        "drain_mb_per_second": sink.bytes / 1e6 / seconds,
        "cpu_us_per_event": cpu / count * 1e6,
        "out_of_order": float(sink.out_of_order),
        "rss_mb_peak": peak,
        "waiting_mb": sink.bytes / 1e6,
        "disk_mb_half_way": half_way,
        "disk_mb_after": disk_mb(state),
    }


def fill(directory: Path, size_mb: int) -> int:
    """A journal with so much waiting, each event with its number in it."""
    body, ids, now = payload(), IdFactory(), datetime.now(UTC)
    count = size_mb * 1_000_000 // len(body) // _TOGETHER * _TOGETHER
    journal = FileJournal(directory, Limits(max_bytes=1 << 40, partition_bytes=256 << 20))
    journal.cursor("backend")
    for first in range(0, count, _TOGETHER):
        numbered = (body.replace(b"daily.orders", b"%012d" % (first + each)) for each in range(_TOGETHER))
        journal.append([Event(ids(), now, "lineage.run", "", each) for each in numbered])
        if first % (100 * _TOGETHER) == 0:
            tell(f"filled {first} of {count} events")
    journal.close()
    return count


def disk_mb(state: Path) -> float:
    found = subprocess.run(["du", "-sm", str(state)], capture_output=True, text=True, check=True)
    return float(found.stdout.split()[0])


class Sink:
    """Counts what arrives, and whether it is in order."""

    def __init__(self) -> None:
        self.count = self.bytes = self.out_of_order = 0
        self.first_at = self.last_at = 0.0
        self._expected = 0
        self._lock = threading.Lock()

    def take(self, request: Request) -> Response:
        with self._lock:
            self.first_at = self.first_at or time.perf_counter()
            found = json.loads(request.body)
            for event in found:
                number = int(event["job"]["name"])
                self.out_of_order += number != self._expected
                self._expected = number + 1
            self.count += len(found)
            self.bytes += len(request.body)
            self.last_at = time.perf_counter()
        return Response(status=204)
