from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.integration.engine_program import Order
from thence.engine.conf import EngineSettings
from thence.engine.java import Java
from thence.testing.spark_cluster import SparkCluster, bare_python, spark_cluster

PRETEND = """
import collections, sys
sys.version_info = collections.namedtuple("V", "major minor micro releaselevel serial")(3, 9, 1, "final", 0)
"""
ONE_EXECUTOR = {"spark.cores.max": "1", "spark.task.maxFailures": "1"}
PROGRAM = Path(__file__).with_name("engine_program.py")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, java: Java) -> Iterator[SparkCluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster"), java) as running:
        yield running


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    python = bare_python(tmp_path_factory.mktemp("bare"))
    seen = subprocess.run([python, "-c", "import msgspec"], capture_output=True, check=False)
    assert seen.returncode != 0, "the bare Python sees what is installed here"
    return python


@pytest.fixture
def run(
    cluster: SparkCluster, bare: Path, engine_settings: EngineSettings, spark_jars: tuple[Path, ...]
) -> Any:
    def run(conf: Mapping[str, str] | None = None, **changes: Any) -> Any:
        values = {"master": cluster.master, "executor_python": str(bare), "conf": conf or {}, **changes}
        settings = msgspec.structs.replace(engine_settings, **values)
        order = Order(settings, spark_jars).encode()
        command = [sys.executable, str(PROGRAM), "check"]
        done = subprocess.run(command, input=order, capture_output=True, check=False, timeout=300)
        assert done.stdout, done.stderr.decode()
        return msgspec.json.decode(done.stdout)

    return run


def test_both_workers_run_our_code_and_arrow_from_what_was_shipped(run: Any) -> None:
    report = run()["report"]

    places = {Path(executor["place"].partition(":")[2]) for executor in report["executors"]}
    assert {place.parents[1].name for place in places} == {"worker-0", "worker-1"}
    assert report["master"].startswith("spark://127.0.0.1:")
    assert report["row_count"] == 1000
    for executor in report["executors"]:
        assert executor["thence"] == "0.1.0"


def test_an_executor_that_cannot_import_our_code_is_told_from_one_that_can(run: Any) -> None:
    answer = run({**ONE_EXECUTOR, "spark.executorEnv.PYTHONPATH": "nothing"})

    assert answer["code"] == "engine.executor_packages"
    assert "No module named 'msgspec'" in answer["message"]


def test_an_executor_of_another_python_is_refused(run: Any, bare: Path, tmp_path: Path) -> None:
    # Any other minor version will do; there need not be one on this machine.
    (tmp_path / "sitecustomize.py").write_text(PRETEND)
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}:$PYTHONPATH exec {bare} "$@"\n')
    other.chmod(0o755)

    answer = run(ONE_EXECUTOR, executor_python=str(other))

    assert answer["code"] == "engine.executor_python"
    assert "3.9" in answer["message"]


def test_a_python_that_is_not_there_is_named(run: Any) -> None:
    answer = run(ONE_EXECUTOR, executor_python="/nowhere/python3")

    assert answer["code"] == "engine.executor_python"
    assert "/nowhere/python3" in answer["message"]


def test_a_cluster_without_room_is_not_waited_for_without_end(run: Any) -> None:
    answer = run({"spark.executor.memory": "100g"}, executor_wait_seconds=3.0)

    assert answer["code"] == "engine.no_executors"
