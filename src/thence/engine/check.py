"""A small job that uses everything: Delta written and read, Arrow through our code on the executors.

It works in a directory of its own below the one it is given, on whatever file system that is, and removes it.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from thence.core.clock import Clock, SystemClock
from thence.core.errors import InvariantBroken
from thence.core.ids import IdFactory
from thence.core.types import JsonType, promote
from thence.engine.executors import ExecutorPython, probe_executors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_ROWS = 1000
_SCHEMA = "id bigint, meets string"
_WAIT_SECONDS = 120.0


class EngineReport(msgspec.Struct, frozen=True):
    """What runs, and how long its parts took."""

    java: str
    spark: str
    delta: str
    scala: str
    python: str
    master: str
    executors: tuple[ExecutorPython, ...]
    row_count: int
    seconds: Mapping[str, float]


def run_check(spark: SparkSession, directory: str, clock: Clock | None = None) -> EngineReport:
    """Write and read a Delta table; say with which versions. A wrong result is a bug: InvariantBroken."""
    watch = _Watch(clock or SystemClock())
    table = f"{directory}/check-{IdFactory()()}"
    with watch("executors"):
        executors = probe_executors(spark, wait_seconds=_WAIT_SECONDS)
    try:
        with watch("write"):
            rows = spark.range(_ROWS, numPartitions=spark.sparkContext.defaultParallelism)
            rows.mapInArrow(name_types, _SCHEMA).write.format("delta").save(table)
        with watch("read"):
            found = (
                spark.read.format("delta").load(table).where("meets = 'float64'").agg({"id": "sum"}).first()
            )
    finally:
        _remove(spark, table)
    if found is None or found[0] != sum(range(_ROWS)):
        raise InvariantBroken("engine.check_wrong", f"the sum read back is {found}, not {sum(range(_ROWS))}")
    return EngineReport(
        master=str(spark.sparkContext.master),
        executors=executors,
        row_count=_ROWS,
        seconds=watch.seconds,
        **_versions(spark),
    )


def name_types(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A step of ours for the executors: a column computed by the vocabulary."""
    import pyarrow as pa

    meets = str(promote(JsonType.BOOL, JsonType.FLOAT64))
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"id": batch.column("id"), "meets": [meets] * batch.num_rows})


class _Watch:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        started = self._clock.monotonic()
        yield
        self.seconds[name] = round(self._clock.monotonic() - started, 3)


def _versions(spark: SparkSession) -> dict[str, str]:
    jvm: Any = spark.sparkContext._jvm
    return {
        "java": jvm.java.lang.System.getProperty("java.version"),
        "spark": spark.version,
        "scala": jvm.scala.util.Properties.versionNumberString(),
        "delta": jvm.io.delta.__getattr__("package").VERSION(),
        "python": platform.python_version(),
    }


def _remove(spark: SparkSession, table: str) -> None:
    context: Any = spark.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(table)
    path.getFileSystem(context._jsc.hadoopConfiguration()).delete(path, True)
