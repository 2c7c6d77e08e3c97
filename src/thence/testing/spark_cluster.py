"""A standalone Spark cluster on this machine, started from the pyspark wheel: one master and some workers.

Its executors run the Python that is named, which need not be ours: a bare one shows whether everything that
tasks import has been shipped to them. All processes listen on loopback only and are gone when the block
ends.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from thence.core.clock import Clock, SystemClock
from thence.engine.java import Java
from thence.engine.wheel import spark_home
from thence.testing.ports import free_port

_START_SECONDS = 120.0
_POLL_SECONDS = 0.1
_DAEMON = {
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dspark.master.rest.enabled=false",
    "SPARK_LOCAL_IP": "127.0.0.1",  # also where the web pages of master and workers listen
}


class SparkCluster(msgspec.Struct, frozen=True):
    """Where the master listens, and where workers keep what applications left."""

    master: str
    work_directories: tuple[Path, ...]


@contextmanager
def spark_cluster(
    directory: Path, java: Java, *, workers: int = 2, worker_memory: str = "1g", clock: Clock | None = None
) -> Iterator[SparkCluster]:
    """Run a cluster of workers with one core each for the length of a `with` block."""
    clock = clock or SystemClock()
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    places = tuple(directory / f"worker-{number}" for number in range(workers))
    processes: list[subprocess.Popen[bytes]] = []
    try:
        arguments = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        log = directory / "master.log"
        processes.append(_spawn(java, log, ["org.apache.spark.deploy.master.Master", *arguments]))
        _wait(clock, lambda: _answers(port), f"the master at {master}", log)
        for place in places:
            arguments = ["--host", "127.0.0.1", "--webui-port", "0", "-c", "1", "-m", worker_memory]
            main = "org.apache.spark.deploy.worker.Worker"
            command = [main, *arguments, "--work-dir", str(place), master]
            processes.append(_spawn(java, place.with_suffix(".log"), command))
        _wait(clock, lambda: log.read_text().count("Registering worker") >= workers, "the workers", log)
        yield SparkCluster(master, places)
    finally:
        for process in reversed(processes):
            _end(process)


def bare_python(directory: Path) -> Path:
    """A Python of our version that sees nothing that was installed for us."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(directory)
    return directory / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"


def _spawn(java: Java, log: Path, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    home = spark_home()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
    environment = {**kept, **_DAEMON, "SPARK_HOME": str(home), "JAVA_HOME": str(java.home)}
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        return subprocess.Popen(
            [home / "bin" / "spark-class", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _wait(clock: Clock, done: Callable[[], bool], what: str, log: Path) -> None:
    deadline = clock.monotonic() + _START_SECONDS
    while not done():
        if clock.monotonic() > deadline:
            raise TimeoutError(f"{what} did not start, see {log}")
        clock.sleep(_POLL_SECONDS)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    # A worker that is asked to leave ends its executors first.
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=15)
    process.kill()
    process.wait()
