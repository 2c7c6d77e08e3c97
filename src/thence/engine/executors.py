"""The Python on executors: looked at before work is sent there.

On a cluster the executors' Python and platform are somebody else's choice. A first small job reports what
is there, so that a wrong version is one clear sentence instead of a failed import deep inside a task.
"""

from __future__ import annotations

import sysconfig
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from thence.core.errors import ConfigError, ThenceError, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASKS_PER_CORE = 2


class ExecutorPython(msgspec.Struct, frozen=True, order=True):
    """What one executor has. `place` is the host and the directory in which it works."""

    place: str
    python: str
    platform: str
    thence: str


def probe_executors(spark: SparkSession, *, wait_seconds: float) -> tuple[ExecutorPython, ...]:
    """Run a job on all cores; raise what keeps our code from running there."""
    found: list[dict[str, str]] = []
    failure: list[BaseException] = []
    worker = threading.Thread(target=_collect, args=(spark, found, failure), daemon=True)
    worker.start()
    worker.join(wait_seconds)
    if worker.is_alive():
        spark.sparkContext.cancelAllJobs()
        raise _nobody(spark, wait_seconds)
    if failure:
        raise _translated(failure[0])
    if broken := [one for one in found if one["trouble"]]:
        raise _unusable(broken[0])
    fields = ExecutorPython.__struct_fields__
    return tuple(sorted({ExecutorPython(**{name: one[name] for name in fields}) for one in found}))


def _collect(spark: SparkSession, found: list[dict[str, str]], failure: list[BaseException]) -> None:
    count = spark.sparkContext.defaultParallelism * _TASKS_PER_CORE
    try:
        found += spark.sparkContext.parallelize(range(count), count).mapPartitions(_make_look()).collect()
    except BaseException as error:
        # boundary: handed to the thread that waits, which raises it
        failure.append(error)


def _make_look() -> Any:
    # A function inside a function travels by value: it must run also where thence cannot be imported.
    def look(_: Iterator[int]) -> Iterator[dict[str, str]]:
        import platform
        import socket
        import sysconfig
        from pathlib import Path

        one = {
            "place": f"{socket.gethostname()}:{Path.cwd()}",
            "python": platform.python_version(),
            "platform": sysconfig.get_platform(),
            "thence": "",
            "trouble": "",
        }
        try:
            import msgspec  # noqa: F401
            import pyarrow  # noqa: F401

            import thence

            one["thence"] = thence.__version__
        except ImportError as error:
            one["trouble"] = str(error)
        yield one

    return look


def _translated(error: BaseException) -> ThenceError:
    text = str(error)
    if "PYTHON_VERSION_MISMATCH" in text or "different version" in text:
        line = next(line.strip() for line in text.splitlines() if "different version" in line)
        return ConfigError(
            "engine.executor_python",
            f"the executors' Python does not fit: {line}",
            advice="Install the same minor version of Python on the workers, or run thence with theirs; "
            "PYSPARK_PYTHON names the program.",
        )
    if "Cannot run program" in text:
        line = next(line.strip() for line in text.splitlines() if "Cannot run program" in line)
        return ConfigError(
            "engine.executor_python",
            f"the executors' Python does not start: {line}",
            advice="Install it on the workers, or name another one (executor_python).",
        )
    return Unavailable(
        "engine.probe_failed", f"a first job failed: {text.splitlines()[0]}", advice="See spark.log."
    )


def _unusable(one: dict[str, str]) -> ConfigError:
    return ConfigError(
        "engine.executor_packages",
        f"executor {one['place']} (Python {one['python']} on {one['platform']}) cannot import what was "
        f"shipped from {sysconfig.get_platform()}: {one['trouble']}",
        advice="Workers must be of the same platform as the driver. Start thence on a machine like them.",
    )


def _nobody(spark: SparkSession, seconds: float) -> Unavailable:
    return Unavailable(
        "engine.no_executors",
        f"no executor of {spark.sparkContext.master} finished a first small job within {seconds:.0f} s",
        advice="See on the cluster whether it has free cores and memory for this application, and whether "
        "its workers can reach this machine (spark.driver.host).",
    )
