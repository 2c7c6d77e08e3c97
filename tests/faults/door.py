"""The sidecar is killed under load, and its backend dies in between: nothing that was answered with 200 is lost.

Clients note what was answered with 200; a backend notes what arrives, in which order, and drops answers now and then.
The two logs are compared at the end; nothing of thence is asked.
"""

from __future__ import annotations

import http.client
import http.server
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from thence.testing.ports import free_port

SHORT: dict[str, Any] = {"rounds": 5}
LONG: dict[str, Any] = {"rounds": 1000}
CLIENTS = 6
DRAIN_SECONDS = 120


def run(*, rounds: int, seed: int) -> dict[str, object]:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder, Backend(random.Random(seed + 1)) as backend:
        port = free_port()
        clients = [Client(number, port) for number in range(CLIENTS)]
        kills = 0
        try:
            for _ in range(rounds):
                with Sidecar(Path(folder), port, backend.port) as sidecar:
                    time.sleep(chance.uniform(0.05, 0.5))
                    sidecar.process.send_signal(signal.SIGKILL)
                    kills += 1
                if chance.random() < 0.1:
                    backend.restart()
            for client in clients:
                client.stop()
            with Sidecar(Path(folder), port, backend.port):
                answered = [event for client in clients for event in client.answered]
                deadline = time.monotonic() + DRAIN_SECONDS
                while not set(answered) <= set(backend.arrived) and time.monotonic() < deadline:
                    time.sleep(0.1)
        finally:
            for client in clients:
                client.stop()
        return judge(clients, backend, kills)


def judge(clients: list[Client], backend: Backend, kills: int) -> dict[str, object]:
    first: dict[str, int] = {}
    for place, event in enumerate(backend.arrived):
        first.setdefault(event, place)
    for client in clients:
        lost = [event for event in client.answered if event not in first]
        assert not lost, (
            f"client {client.number}: {len(lost)} acknowledged events are lost, such as {lost[:3]}"
        )
        places = [first[event] for event in client.answered]
        assert places == sorted(places), f"client {client.number}: events arrived in another order"
    answered = sum(len(client.answered) for client in clients)
    assert answered > kills, "the clients got too few answers for this run to mean anything"
    return {
        "kills": kills,
        "backend_restarts": backend.restarts,
        "answers_dropped_by_backend": backend.dropped,
        "acknowledged": answered,
        "acknowledged_lost": 0,
        "out_of_order": 0,
        "arrived": len(backend.arrived),
        "arrived_twice": len(backend.arrived) - len(first),
    }


class Sidecar:
    def __init__(self, folder: Path, port: int, backend: int) -> None:
        options = [
            "--state",
            str(folder / "state"),
            "--set",
            "log.level=error",
            "--set",
            "forward.backend.batch_path=/batch",
        ]
        command = [sys.executable, "-m", "thence", "--json", *options, "collect"]
        command += ["--listen", f"127.0.0.1:{port}", "--backend", f"http://127.0.0.1:{backend}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        if not any('"url"' in line for line in self.process.stdout):
            raise AssertionError(f"the sidecar did not start: {self.process.communicate()[1]}")

    def __enter__(self) -> Sidecar:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.communicate(timeout=30)


class Client:
    """Posts one event after the other; goes on to the next only when one was answered with 200."""

    def __init__(self, number: int, port: int) -> None:
        self.number = number
        self.answered: list[str] = []
        self._port = port
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._post_all, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(30)

    def _post_all(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
        count = 0
        while not self._ended.is_set():
            name = f"{self.number}-{count}"
            try:
                connection.request("POST", "/api/v1/lineage", event(name))
                answer = connection.getresponse()
                answer.read()
                if answer.status == 200:
                    self.answered.append(name)
                    count += 1
            except (OSError, http.client.HTTPException):
                connection.close()
                time.sleep(0.01)


class Backend:
    """Notes the name of each event that arrives, then answers, or hangs up instead."""

    def __init__(self, chance: random.Random) -> None:
        self.arrived: list[str] = []
        self.dropped = self.restarts = 0
        self._chance = chance
        self.port = free_port()
        self._start()

    def __enter__(self) -> Backend:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def restart(self) -> None:
        self._stop()
        self.restarts += 1
        self._start()

    def take(self, body: bytes) -> bool:
        """Note what came; False means that the answer is lost."""
        content = json.loads(body)
        self.arrived += [
            each["job"]["name"] for each in (content if isinstance(content, list) else [content])
        ]
        lost = self._chance.random() < 0.01
        self.dropped += lost
        return not lost

    def _start(self) -> None:
        backend = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                if backend.take(self.rfile.read(int(self.headers["content-length"]))):
                    self.send_response(204)
                    self.end_headers()
                else:
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                return

        class Server(http.server.ThreadingHTTPServer):
            allow_reuse_address = True
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                return  # a client that was killed

        self._server = Server(("127.0.0.1", self.port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def _stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def event(name: str) -> bytes:
    content = {
        "eventType": "START",
        "eventTime": "2026-11-19T10:00:00Z",
        "producer": "https://producer.example",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": "0190f2d0-0000-7000-8000-000000000000"},
        "job": {"namespace": "faults", "name": name},
    }
    return json.dumps(content).encode()
