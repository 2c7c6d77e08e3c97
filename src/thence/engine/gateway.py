"""The JVM that drives Spark: a child of this process that lives exactly as long as it is wanted.

Spark reads the JVM's standard input and leaves when it ends. Only this process holds the other end, so the
JVM is gone soon after this process, however that ended. What the JVM prints goes to a log file, never to
our output.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from thence.core.clock import Clock, SystemClock
from thence.core.errors import ConfigError, Unavailable

_SECRET = re.compile(r"secret|password|passwd|token|credential|access[._]?key|api[._]?key", re.IGNORECASE)
_START_SECONDS = 300.0
_POLL_SECONDS = 0.02
_TAIL_LINES = 3


class DriverProcess:
    """The JVM, from its start to its end."""

    def __init__(self, command: list[str], environment: Mapping[str, str], log: Path) -> None:
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C and a group's SIGTERM are for us, who end it when it is time
            )
        self._log = log

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def wait_for(self, path: Path, clock: Clock) -> None:
        """Block until the JVM has written a file; raise when it ends or hangs instead."""
        deadline = clock.monotonic() + _START_SECONDS
        while not path.exists():
            if self._process.poll() is not None:
                raise self._failed(f"ended with {self._process.returncode}")
            if clock.monotonic() > deadline:
                raise self._failed(f"was not up after {_START_SECONDS:.0f} s")
            clock.sleep(_POLL_SECONDS)

    def end(self, seconds: float) -> None:
        """Ask it to leave, wait, then insist. Nothing of it is left afterwards."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        for insist in (self._process.terminate, self._process.kill):
            try:
                self._process.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                insist()
                seconds = 5.0
        self._process.wait()

    def _failed(self, how: str) -> ConfigError | Unavailable:
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        told = [line.strip() for line in lines if not line.lstrip().startswith(("at ", "..."))]
        said = " / ".join(told[-_TAIL_LINES:])
        return Unavailable(
            "engine.start_failed",
            f"Spark's Java {how}: {said}",
            advice=f"The whole output is in {self._log}. Its memory (spark.driver_memory) and options "
            "(spark.conf) are in the settings.",
        )


def launch(
    home: Path, conf: Mapping[str, str], environment: Mapping[str, str], directory: Path, log: Path
) -> tuple[DriverProcess, Any]:
    """Start a JVM; return it with the py4j gateway to it."""
    # Command lines can be read by everyone on the machine: secrets travel through the gateway instead.
    shown = [f"{name}={value}" for name, value in conf.items() if not _SECRET.search(name)]
    command = [str(home / "bin" / "spark-submit")]
    for setting in shown:
        command += ["--conf", setting]
    with tempfile.TemporaryDirectory(dir=directory) as place:
        answer = Path(place) / "gateway"
        variables = {**os.environ, **environment, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer)}
        variables.pop("PYSPARK_GATEWAY_PORT", None)
        variables["SPARK_CONNECT_MODE"] = "0"
        process = DriverProcess([*command, "pyspark-shell"], variables, log)
        try:
            process.wait_for(answer, SystemClock())
            return process, _connect(answer.read_bytes())
        except BaseException:
            process.end(seconds=1.0)
            raise


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a while: PySpark takes some things from nowhere else."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _connect(answer: bytes) -> Any:
    from pyspark.java_gateway import launch_gateway

    # Port (four bytes), length of the secret (four bytes), secret: what spark-submit tells a Python program.
    port, secret = int.from_bytes(answer[:4], "big"), answer[8:].decode()
    with variables({"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}):
        return launch_gateway()  # type: ignore[no-untyped-call]
