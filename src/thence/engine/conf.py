"""What a Spark session is started with: decided here as plain values, acted on in `session`.

Times are UTC, Delta is the catalog, nothing listens but on loopback unless executors live on other
machines, and adaptive execution is off because the batches are small. What the operator sets wins, and
where both have something to say (class path, Java options, extensions) it is added to ours.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_LOOPBACK = re.compile(r"^(local-cluster\[.*|\w+://(127(\.\d+){3}|localhost|\[::1\])(:\d+)?(,.*)?)$")
_LOCAL = re.compile(r"^local(\[.*\])?$")


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One session. `directory` holds its warehouse, log, class archive, shipment and temporary files."""

    directory: Path
    master: str = "local[*]"
    conf: Mapping[str, str] = {}
    driver_memory: str = "1g"
    jit: Literal["full", "quick"] = "full"
    """`quick` compiles less: for short lives, such as commands and tests."""
    app_name: str = "thence"
    executor_python: str = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    """The Python of executors on a cluster; it must be of the same minor version. Local ones use our own."""
    executor_wait_seconds: float = 120.0
    """How long to wait on a cluster until a first executor has run something."""

    @property
    def is_local(self) -> bool:
        """Whether driver and executors are one process."""
        return _LOCAL.match(self.master) is not None

    @property
    def is_on_loopback(self) -> bool:
        """Whether everything runs on this machine."""
        return self.is_local or _LOOPBACK.match(self.master) is not None


def spark_conf(
    settings: EngineSettings, jars: Sequence[Path], java_options: Sequence[str], shipment: Mapping[str, str]
) -> dict[str, str]:
    """Every property of the session."""
    class_path = ":".join(map(str, jars))
    conf = {
        "spark.master": settings.master,
        "spark.app.name": settings.app_name,
        "spark.driver.memory": settings.driver_memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.local.dir": str(settings.directory / "tmp"),
        "spark.sql.warehouse.dir": str(settings.directory / "warehouse"),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
        **_network(settings),
        **shipment,
        **settings.conf,
    }
    own = settings.conf.get
    driver_options, executor_options = "spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"
    conf["spark.driver.extraClassPath"] = _join(":", class_path, own("spark.driver.extraClassPath"))
    conf[driver_options] = _join(" ", *_java_options(settings, own(driver_options, "")), *java_options)
    conf["spark.sql.extensions"] = _join(",", _EXTENSION, own("spark.sql.extensions"))
    if not settings.is_local:
        conf[executor_options] = _join(" ", *_java_options(settings, own(executor_options, "")))
        conf["spark.jars"] = _join(",", *map(str, jars), own("spark.jars"))
        conf["spark.archives"] = _join(",", shipment.get("spark.archives"), own("spark.archives"))
    return conf


def environment(settings: EngineSettings, home: Path, java_home: Path) -> dict[str, str]:
    """The variables that Spark reads when it starts, whatever the operator's shell says."""
    names = {
        "SPARK_HOME": str(home),
        "JAVA_HOME": str(java_home),
        "PYSPARK_PYTHON": sys.executable if settings.is_local else settings.executor_python,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    return {**names, "SPARK_LOCAL_IP": "127.0.0.1"} if settings.is_on_loopback else names


def _java_options(settings: EngineSettings, own: str) -> list[str]:
    # Java refuses to start with two garbage collectors.
    collector = [] if "-XX:+Use" in own else ["-XX:+UseSerialGC"]
    quick = ["-XX:TieredStopAtLevel=1"] if settings.jit == "quick" else []
    return [*collector, *quick, own]


def _network(settings: EngineSettings) -> dict[str, str]:
    if not settings.is_on_loopback:
        return {}
    return {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def _join(separator: str, *parts: str | None) -> str:
    return separator.join(part for part in parts if part)
