"""A RabbitMQ of one node for tests, from the system's package, without systemd: a directory, free ports, loopback only.

It ends with `stop`, its port mapper with it. What was confirmed to publishers of persistent messages survives a kill.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from thence.testing.ports import free_port

_PROGRAMS = (
    "/usr/lib/rabbitmq/bin/rabbitmq-server",
    "/usr/lib/rabbitmq/lib/rabbitmq-server/sbin/rabbitmq-server",
)
_START_SECONDS = 180.0
_STOP_SECONDS = 30.0


class RabbitServer:
    """One broker. The user is guest, with the password guest."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._mapper_port = free_port()
        self._distribution_port = free_port()
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def address(self) -> tuple[str, int]:
        """Where clients find it."""
        return "127.0.0.1", self.port

    def start(self) -> None:
        """Start it, and return when it takes connections."""
        program = next((path for path in _PROGRAMS if Path(path).exists()), shutil.which("rabbitmq-server"))
        if program is None:
            raise FileNotFoundError(
                "rabbitmq-server is not installed (Debian: apt-get install rabbitmq-server)"
            )
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / "rabbit.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\nloopback_users = none\nlog.console = false\n", "utf-8"
        )
        (self._directory / "plugins").write_text("[].\n", "utf-8")
        with (self._directory / "output.log").open("wb") as out:
            self._process = subprocess.Popen(
                [program], env=self._environment(), stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End it and its port mapper."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self._end_mapper()

    def _environment(self) -> dict[str, str]:
        here = self._directory
        return os.environ | {
            "HOME": str(here),
            "RABBITMQ_NODENAME": f"thence{self.port}@localhost",
            "RABBITMQ_CONFIG_FILE": str(here / "rabbit.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(here / "none.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(here / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(here / "data"),
            "RABBITMQ_LOG_BASE": str(here / "log"),
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none",
            "ERL_EPMD_PORT": str(self._mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }

    def _wait_until_ready(self) -> None:
        until = time.monotonic() + _START_SECONDS
        while not self._is_ready():
            if self._process is None or self._process.poll() is not None or time.monotonic() > until:
                said = (self._directory / "output.log").read_text("utf-8", "replace")[-1000:]
                raise RuntimeError(f"RabbitMQ did not start: {said}")
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        try:
            with socket.create_connection(self.address, timeout=5.0) as connection:
                connection.sendall(b"AMQP\x00\x00\x09\x01")
                return connection.recv(1) == b"\x01"
        except OSError:
            return False

    def _end_mapper(self) -> None:
        # It leaves the session of whoever started it, and asks to be told to go by its own port.
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._mapper_port), 5.0) as connection:
            connection.sendall(b"\x00\x01k")
            connection.recv(2)
