"""The unmodified OpenLineage client for Python writes through the proxy to a backend that dies in between."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from openlineage.client.uuid import generate_new_uuid

from tests.faults.door import Backend, Sidecar
from thence.testing.ports import free_port


def event(number: int) -> RunEvent:
    return RunEvent(
        eventType=RunState.START,
        eventTime=datetime.now(UTC).isoformat(),
        run=Run(str(generate_new_uuid())),
        job=Job("compat", f"{number}"),
        producer="https://producer.example",
    )


@pytest.mark.parametrize(
    "transport",
    [
        {"type": "http"},
        {"type": "http", "compression": "gzip"},
        {"type": "async_http", "max_concurrent_requests": 1},
        {"type": "async_http", "compression": "gzip", "max_concurrent_requests": 1},
    ],
    ids=["sync", "sync-gzip", "async", "async-gzip"],
)
def test_all_events_arrive_in_order_though_the_backend_dies(
    transport: dict[str, object], tmp_path: Path
) -> None:
    port = free_port()
    with Backend(random.Random(1)) as backend, Sidecar(tmp_path, port, backend.port):
        client = OpenLineageClient(config={"transport": {**transport, "url": f"http://127.0.0.1:{port}"}})
        for number in range(60):
            client.emit(event(number))
            if number in (15, 40):
                backend.restart()
        assert client.close(timeout=30)
        wanted = [str(number) for number in range(60)]
        deadline = time.monotonic() + 60
        while set(backend.arrived) != set(wanted) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert list(dict.fromkeys(backend.arrived)) == wanted
