"""What an OpenLineage event costs at the door: received, checked, synced to disk, answered. Needs `wrk`.

CPU time is that of the collector's process for each event, from /proc, with a real event of 2.3 KB. `tx` is the same
server that commits each event by itself, as the proposal's pseudo code does; both take turns in one run. `batch` posts
100 events a request. Latency is measured at half of the rate that 32 connections reach.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.harness import Spread, tell, tree_cpu_seconds, tree_memory_bytes

_TX = """
import sys
from thence.collect import committer
whole = committer.Committer._commit
committer.Committer._commit = lambda self, batch: [whole(self, [each]) for each in batch]
from thence.cli.main import main
main()
"""


def measure(*, quick: bool) -> dict[str, Spread | float]:
    wrk = shutil.which("wrk")
    if wrk is None:
        sys.exit("bench: this bench needs wrk. Debian: apt-get install wrk")
    seconds, rounds = (3, 2) if quick else (8, 5)
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        one, many = (
            script(here / "one.lua", payload()),
            script(here / "many.lua", b"[" + b",".join([payload()] * 100) + b"]"),
        )
        with collector(here / "ours") as ours, collector(here / "tx", _TX) as tx:
            figures: dict[str, Spread | float] = {"event_bytes": float(len(payload()))}
            figures["rss_mb_idle"] = tree_memory_bytes(ours.process.pid) / 1e6
            figures["ready_seconds"] = ours.ready_seconds
            costs: dict[str, list[float]] = {}
            for number in range(rounds):
                for name, at, connections, lua, path in (
                    ("cpu_us_per_event_c128", ours, 128, one, "/api/v1/lineage"),
                    ("tx_cpu_us_per_event_c128", tx, 128, one, "/api/v1/lineage"),
                    ("cpu_us_per_event_c32", ours, 32, one, "/api/v1/lineage"),
                    ("batch_cpu_us_per_event", ours, 8, many, "/api/v1/lineage/batch"),
                ):
                    cost, rate = load(wrk, at, connections, seconds, lua, path)
                    costs.setdefault(name, []).append(cost)
                    costs.setdefault(name.replace("cpu_us_per_event", "events_per_second"), []).append(rate)
                    tell(f"round {number + 1}/{rounds}  {name}: {cost:.1f} us, {rate:.0f} events/s")
            figures |= {name: Spread.of(values) for name, values in costs.items()}
            figures["rss_mb_after"] = tree_memory_bytes(ours.process.pid) / 1e6
    ours_cpu, tx_cpu = figures["cpu_us_per_event_c128"], figures["tx_cpu_us_per_event_c128"]
    assert isinstance(ours_cpu, Spread)
    assert isinstance(tx_cpu, Spread)
    figures["times_cheaper_than_tx_per_event"] = tx_cpu.median / ours_cpu.median
    return figures


class Running:
    def __init__(self, process: subprocess.Popen[str], url: str, ready_seconds: float) -> None:
        self.process = process
        self.url = url
        self.ready_seconds = ready_seconds

    def accepted(self) -> int:
        with urllib.request.urlopen(self.url + "metrics") as answer:
            return int(
                float(re.findall(rb"^thence_journal_appended_total (\S+)", answer.read(), re.MULTILINE)[0])
            )


@contextmanager
def collector(state: Path, program: str | None = None) -> Iterator[Running]:
    start = [sys.executable, "-c", program] if program else [sys.executable, "-m", "thence"]
    limits = ["--set", "journal.lineage.max_bytes=2GiB", "--set", "log.level=error"]
    command = [*start, "--json", "--state", str(state), *limits, "collect", "--listen", "127.0.0.1:0"]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = next(line["url"] for line in map(json.loads, process.stdout) if "url" in line)
        yield Running(process, url, time.perf_counter() - began)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def load(wrk: str, at: Running, connections: int, seconds: int, lua: Path, path: str) -> tuple[float, float]:
    """CPU microseconds for each event, and events a second."""
    before, cpu, began = at.accepted(), tree_cpu_seconds(at.process.pid), time.perf_counter()
    command = [
        wrk,
        "-t1",
        f"-c{connections}",
        f"-d{seconds}s",
        "--timeout",
        "20s",
        "-s",
        str(lua),
        at.url.rstrip("/") + path,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    if "Non-2xx" in done.stdout:
        sys.exit(f"bench: some requests failed:\n{done.stdout}")
    events = at.accepted() - before
    return (tree_cpu_seconds(at.process.pid) - cpu) / events * 1e6, events / (time.perf_counter() - began)


def script(path: Path, body: bytes) -> Path:
    """A script for wrk that posts one body again and again."""
    path.write_text(
        f'wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\nwrk.body = [==[{body.decode()}]==]\n'
    )
    return path


def payload() -> bytes:
    """A run event of 2.3 KB with seven facets, such as a Spark job sends."""
    base = {
        "_producer": "https://producer.example/spark",
        "_schemaURL": "https://openlineage.io/spec/facets/1-0-0/X.json#/$defs/X",
    }
    fields = [{"name": f"column_{number}", "type": "string"} for number in range(12)]
    dataset = {
        "namespace": "s3://lake",
        "name": "shop/orders",
        "facets": {
            "dataSource": base | {"name": "s3://lake", "uri": "s3://lake"},
            "schema": base | {"fields": fields},
        },
    }
    event = {
        "eventType": "COMPLETE",
        "eventTime": "2026-11-19T10:00:00.123Z",
        "producer": base["_producer"],
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {
            "runId": "0190f2d0-0000-7000-8000-000000000000",
            "facets": {
                "nominalTime": base | {"nominalStartTime": "2026-11-19T10:00:00Z"},
                "parent": base
                | {
                    "run": {"runId": "0190f2d0-0000-7000-8000-000000000001"},
                    "job": {"namespace": "shop", "name": "daily"},
                },
                "processing_engine": base | {"version": "4.2.0", "name": "spark"},
            },
        },
        "job": {
            "namespace": "shop",
            "name": "daily.orders",
            "facets": {
                "jobType": base | {"processingType": "BATCH", "integration": "SPARK", "jobType": "JOB"}
            },
        },
        "inputs": [dataset],
        "outputs": [
            {
                **dataset,
                "facets": {},
                "outputFacets": {"outputStatistics": base | {"rowCount": 123, "size": 35602}},
            }
        ],
    }
    return json.dumps(event).encode()
