"""A Kafka broker of one node for demo and tests, from jars that somebody else fetched. Loopback only.

What producers got acknowledged survives a `kill -9` of the broker, and `start` then brings it back at the
same address. It does not survive a loss of power for certain: Kafka leaves syncing to the operating system,
so the last half minute may be missing then. When this process dies, the broker dies with it. Use a real
cluster for real data.
"""

from __future__ import annotations

import base64
import fcntl
import logging
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from thence.core.clock import Clock, SystemClock
from thence.core.errors import ConfigError, Unavailable
from thence.core.ids import IdFactory
from thence.servers.guardian import Guardian

_log = logging.getLogger(__name__)

_MEMORY = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_START_SECONDS = 120.0
_STOP_SECONDS = 20.0
_CLAIM_SECONDS = 5.0  # a broker whose parent was killed needs a moment to go
_POLL_SECONDS = 0.05
_ANSWER_SECONDS = 5.0
_METADATA = struct.pack(">hhihi", 3, 1, 1, -1, 0)  # metadata, version 1, correlation 1, no client, no topics
_TAIL_LINES = 3


class KafkaBroker:
    """One broker and the directory that is its memory. Starting a running one does nothing."""

    def __init__(
        self,
        directory: Path,
        *,
        launcher: Path,
        jars: Sequence[Path],
        port: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._directory = directory
        self._launcher = launcher
        self._jars = tuple(jars)
        self._port = port
        self._clock = clock or SystemClock()
        self._lock: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._guardian: Guardian | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def address(self) -> str:
        """Where clients find it; the same after every start, while that port is free."""
        return f"127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        """The port of `address`."""
        if self._port is None:
            self._port = self._remembered_port() or _free_port()
        return self._port

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Start it, and return when it takes messages. One that runs and does not answer is ended first."""
        if self.pid is not None and self.is_healthy():
            return
        self.stop()
        self._claim()
        try:
            self._check_port()
            self._format()
            self._run()
            self._wait_until_healthy()
        except BaseException:
            self.stop()
            raise
        _log.info("Kafka is up", extra={"action": "kafka_started", "address": self.address})

    def stop(self) -> None:
        """Let it close its files, and end it. Stopping a stopped one does nothing."""
        if self._process is not None:
            self._dismiss_guardian()
            self._process.terminate()
            try:
                self._process.wait(timeout=_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
            _log.info("Kafka has stopped", extra={"action": "kafka_stopped"})
        self._forget()

    def is_healthy(self) -> bool:
        """Whether it answers and counts itself among the brokers that may lead partitions."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=_ANSWER_SECONDS) as connection:
                connection.sendall(struct.pack(">i", len(_METADATA)) + _METADATA)
                # Length, correlation, and how many brokers follow.
                answer = connection.recv(12, socket.MSG_WAITALL)
        except OSError:
            return False
        return len(answer) == 12 and struct.unpack(">iii", answer)[2] > 0  # noqa: PLR2004 - three integers

    @property
    def _log_file(self) -> Path:
        return self._directory / "kafka.log"

    def _run(self) -> None:
        settings = self._write_settings("data")
        if self._log_file.exists():
            self._log_file.replace(self._log_file.with_suffix(".log.before"))
        with self._log_file.open("wb") as out:
            self._process = self._spawn("kafka.Kafka", str(settings), out=out)
        self._guardian = Guardian(self._process.pid)

    def _dismiss_guardian(self) -> None:
        if self._guardian is not None:
            self._guardian.dismiss()
            self._guardian = None

    def _forget(self) -> None:
        self._dismiss_guardian()
        if self._process is not None:
            self._process.wait()
            self._process = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _claim(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        # The broker inherits the lock: as long as one lives, whoever started it, there is no second.
        self._lock = os.open(self._directory / "owner.lock", os.O_RDWR | os.O_CREAT, 0o600)
        deadline = self._clock.monotonic() + _CLAIM_SECONDS
        while not _is_locked(self._lock):
            if self._clock.monotonic() > deadline:
                self._forget()
                raise Unavailable(
                    "servers.kafka_in_use",
                    f"a Kafka broker is running on {self._directory}: the directory is in use",
                    advice="Stop the process that started it, or use another directory.",
                )
            self._clock.sleep(_POLL_SECONDS)

    def _format(self) -> None:
        # Under another name first: a directory that is half formatted would never start.
        if (self._directory / "data").exists():
            return
        fresh = self._directory / "data.new"
        shutil.rmtree(fresh, ignore_errors=True)
        settings = self._write_settings(fresh.name)
        name = base64.urlsafe_b64encode(IdFactory()().bytes).rstrip(b"=").decode()
        with self._log_file.open("wb") as out:
            arguments = ("format", "-t", name, "-c", str(settings))
            status = self._spawn("kafka.tools.StorageTool", *arguments, out=out).wait()
        if status != 0:
            raise self._failed(f"could not format {fresh} (exit {status})")
        fresh.replace(self._directory / "data")

    def _spawn(self, main: str, *arguments: str, out: IO[bytes]) -> subprocess.Popen[bytes]:
        command = [str(self._launcher), *_MEMORY, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        command += ["-cp", ":".join(map(str, self._jars)), main, *arguments]
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=() if self._lock is None else (self._lock,),
        )

    def _write_settings(self, data: str) -> Path:
        text = _SETTINGS.format(port=self.port, controller=_free_port(), data=self._directory / data)
        path = self._directory / "server.properties"
        path.write_text(text, encoding="utf-8")
        return path

    def _remembered_port(self) -> int | None:
        try:
            lines = (self._directory / "server.properties").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return None
        listed = [line for line in lines if line.startswith("advertised.listeners=")]
        port = int(listed[0].rpartition(":")[2]) if listed else None
        return port if port is not None and _is_free(port) else None

    def _check_port(self) -> None:
        if not _is_free(self.port):
            raise ConfigError(
                "servers.port_taken",
                f"port {self.port} on 127.0.0.1 is taken",
                advice="Stop what listens there, or let the broker choose a port.",
            )

    def _wait_until_healthy(self) -> None:
        deadline = self._clock.monotonic() + _START_SECONDS
        while not self.is_healthy():
            if self.pid is None:
                raise self._failed("ended while it started")
            if self._clock.monotonic() > deadline:
                raise self._failed(f"did not answer within {_START_SECONDS:.0f} s")
            self._clock.sleep(_POLL_SECONDS)

    def _failed(self, what: str) -> Unavailable:
        lines = self._log_file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        told = [line.strip() for line in lines if not line.lstrip().startswith(("at ", "..."))]
        return Unavailable(
            "servers.kafka_failed",
            f"the Kafka broker {what}: {' / '.join(told[-_TAIL_LINES:])}",
            advice=f"The whole output is in {self._log_file}.",
        )


_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
num.partitions=4
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=3000
"""


def _is_locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
