"""The Spark session: one per process, started with our settings and ended without a trace.

After `stop_session` no Java process is left, whether the work went well or not; when this process dies
without stopping, its JVM leaves by itself. What a crash can leave are files below the engine's directory.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from thence.core.errors import InvariantBroken, Unavailable
from thence.engine.archive import ClassArchive
from thence.engine.conf import EngineSettings, environment, spark_conf
from thence.engine.executors import probe_executors
from thence.engine.gateway import DriverProcess, launch, variables
from thence.engine.java import Java
from thence.engine.shipment import ship
from thence.engine.wheel import spark_home

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
_STOP_SECONDS = 15.0


class _Running(msgspec.Struct, frozen=True):
    process: DriverProcess
    gateway: Any
    paths: tuple[str, ...]
    """What PySpark has put on sys.path."""


_running: dict[int, _Running] = {}  # by the id of its SparkContext; PySpark allows one in a process


def start_session(
    settings: EngineSettings, jars: Sequence[Path], java: Java, *, java_options: Sequence[str] | None = None
) -> SparkSession:
    """Start the JVM and the session. On a cluster, also see that executors can run our code."""
    home = spark_home()
    for name in ("tmp", "warehouse"):
        (settings.directory / name).mkdir(parents=True, exist_ok=True)
    if java_options is None:
        java_options = ClassArchive(settings.directory, java, jars).options()
    shipment = {} if settings.is_local else ship(settings.directory / "shipment")
    conf = spark_conf(settings, jars, java_options, shipment)
    session = _start(settings, conf, home, environment(settings, home, java.home))
    if not settings.is_local:
        try:
            probe_executors(session, wait_seconds=settings.executor_wait_seconds)
        except BaseException:
            stop_session(session)
            raise
    _log.info(
        "Spark is up", extra={"action": "spark_started", "master": settings.master, "java": java.release}
    )
    return session


def stop_session(session: SparkSession, *, wait_seconds: float = _STOP_SECONDS) -> None:
    """End the session and its JVM. Stopping twice does nothing."""
    running = _running.pop(id(session.sparkContext), None)
    if running is None:
        return
    try:
        if running.process.is_alive:
            _stop_gently(session)
    finally:
        _forget(session.sparkContext, running.gateway)
        running.process.end(wait_seconds)
        sys.path[:] = [path for path in sys.path if path not in running.paths]
    _log.info("Spark has stopped", extra={"action": "spark_stopped"})


def is_running(session: SparkSession) -> bool:
    """Whether the JVM behind a session is there. One that has died is stopped like any other."""
    running = _running.get(id(session.sparkContext))
    return running is not None and running.process.is_alive


@contextmanager
def session(settings: EngineSettings, jars: Sequence[Path], java: Java) -> Iterator[SparkSession]:
    """A session for the length of a `with` block."""
    spark = start_session(settings, jars, java)
    try:
        yield spark
    finally:
        stop_session(spark)


def _start(
    settings: EngineSettings, conf: Mapping[str, str], home: Path, values: Mapping[str, str]
) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._gateway is not None:
        raise InvariantBroken("engine.second_session", "this process has a Spark session already")
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it reports every connection that it closes
    log = settings.directory / "spark.log"
    process, gateway = launch(home, conf, values, settings.directory / "tmp", log)
    paths = set(sys.path)
    try:
        with variables(values), _interrupts_untouched():
            pairs = list(conf.items())
            context = SparkContext(conf=SparkConf(loadDefaults=False).setAll(pairs), gateway=gateway)
        session = SparkSession(context)
    except BaseException as error:
        failed = _translated(error, settings.master, log)  # before the gateway goes: it knows what happened
        _forget(SparkContext._active_spark_context, gateway)
        process.end(_STOP_SECONDS)
        raise failed from None
    added = tuple(path for path in sys.path if path not in paths)
    _running[id(context)] = _Running(process, gateway, added)
    return session


def _translated(error: BaseException, master: str, log: Path) -> BaseException:
    from py4j.protocol import Py4JJavaError

    if not isinstance(error, Py4JJavaError):
        return error
    what = str(error.java_exception.toString()).splitlines()[0]
    return Unavailable(
        "engine.start_failed",
        f"Spark did not start on {master}: {what}",
        advice=f"See {log}, and spark.master and spark.conf in the settings.",
    )


def _stop_gently(session: SparkSession) -> None:
    from py4j.protocol import Py4JError

    try:
        session.stop()
    except (Py4JError, OSError) as error:
        # The JVM died just now; what is left is to forget it.
        _log.warning("Spark did not stop cleanly: %s", error, extra={"action": "spark_lost"})


def _forget(context: SparkContext | None, gateway: Any) -> None:
    # PySpark keeps what it started in class attributes, and clears them only when the JVM still answers.
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if context is not None:
        context._jsc = None
        context.stop()
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


@contextmanager
def _interrupts_untouched() -> Iterator[None]:
    # PySpark takes SIGINT for itself; signals belong to whoever runs the process.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
