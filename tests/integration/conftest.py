from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from thence.engine.conf import EngineSettings
from thence.engine.jars import Jars
from thence.engine.java import Java, find_java
from thence.engine.recording import record_archive
from thence.engine.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What is fetched or recorded once for all runs in this checkout.
KEPT = Path(__file__).parents[2] / ".dev"


@pytest.fixture(scope="session")
def java() -> Java:
    return find_java(KEPT / "engine")


@pytest.fixture(scope="session")
def jars(java: Java) -> Jars:
    return Jars(KEPT / "jars", java)


@pytest.fixture(scope="session")
def spark_jars(jars: Jars) -> tuple[Path, ...]:
    return jars.classpath("spark")


@pytest.fixture(scope="session")
def kafka_jars(jars: Jars) -> tuple[Path, ...]:
    return jars.classpath("kafka")


@pytest.fixture(scope="session")
def class_archive(java: Java, spark_jars: tuple[Path, ...]) -> Path:
    return record_archive(EngineSettings(directory=KEPT / "engine"), spark_jars, java)


@pytest.fixture(scope="session")
def engine_settings(tmp_path_factory: pytest.TempPathFactory, class_archive: Path) -> EngineSettings:
    directory = tmp_path_factory.mktemp("engine")
    (KEPT / "engine" / "shipment").mkdir(exist_ok=True)
    for name in (class_archive.name, "shipment"):
        (directory / name).symlink_to(KEPT / "engine" / name)
    return EngineSettings(directory=directory, master="local[2]", jit="quick")


@pytest.fixture(scope="session")
def spark(
    engine_settings: EngineSettings, spark_jars: tuple[Path, ...], java: Java
) -> Iterator[SparkSession]:
    with session(engine_settings, spark_jars, java) as started:
        yield started
