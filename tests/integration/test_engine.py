from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.integration.engine_program import Order, jvm_of
from thence.core.errors import ConfigError, InvariantBroken
from thence.engine.archive import ClassArchive
from thence.engine.check import run_check
from thence.engine.conf import EngineSettings, spark_conf
from thence.engine.java import Java, find_java
from thence.engine.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = Path(__file__).with_name("engine_program.py")
PATIENCE_SECONDS = 120


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_until_gone(pid: int) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not is_alive(pid)


def without_java(directory: Path) -> dict[str, str]:
    """An environment with the commands of this machine, but for Java."""
    directory.mkdir()
    for command in Path("/usr/bin").iterdir():
        if not command.name.startswith("java"):
            (directory / command.name).symlink_to(command)
    return {"PATH": str(directory), "HOME": str(directory)}


def start(mode: str, order: Order, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(PROGRAM), mode]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, env=environment, **streams)  # type: ignore[call-overload]
    process.stdin.write(order.encode())
    process.stdin.close()
    return process  # type: ignore[no-any-return]


def finish(process: subprocess.Popen[bytes]) -> bytes:
    process.kill()
    process.wait()
    assert process.stdout
    assert process.stderr
    said = process.stderr.read()
    process.stdout.close()
    process.stderr.close()
    return said


def test_the_check_writes_and_reads_delta_through_our_code(spark: SparkSession, tmp_path: Path) -> None:
    report = run_check(spark, str(tmp_path))

    assert report.row_count == 1000
    assert (report.spark, report.delta, report.master) == ("4.2.0", "4.4.0", "local[2]")
    assert report.scala.startswith("2.13.")
    assert set(report.seconds) == {"executors", "write", "read"}
    assert list(tmp_path.iterdir()) == []


def test_the_session_is_in_utc_and_has_delta_as_catalog(spark: SparkSession, tmp_path: Path) -> None:
    (shown,) = spark.sql(
        "select cast(timestamp '2026-01-01 00:00:00Z' as string), current_timezone()"
    ).collect()
    assert tuple(shown) == ("2026-01-01 00:00:00", "UTC")

    spark.sql(f"create table delta.`{tmp_path}/t` using delta as select 1 as a")
    assert (tmp_path / "t" / "_delta_log").is_dir()


def test_nothing_of_spark_listens_beyond_loopback(spark: SparkSession) -> None:
    sockets = {
        str(link.readlink()) for link in Path(f"/proc/{jvm_of(spark)}/fd").iterdir() if link.is_symlink()
    }
    listening = [line.split() for name in ("tcp", "tcp6") for line in _lines(f"/proc/net/{name}")]
    ours = [
        entry[1].partition(":")[0]
        for entry in listening
        if f"socket:[{entry[9]}]" in sockets and entry[3] == "0A"
    ]

    assert ours
    assert set(ours) <= {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()[1:]


def test_a_second_session_in_one_process_is_refused(
    spark: SparkSession, engine_settings: EngineSettings, spark_jars: tuple[Path, ...], java: Java
) -> None:
    with pytest.raises(InvariantBroken, match=r"engine\.second_session"):
        start_session(engine_settings, spark_jars, java)


def test_interrupts_stay_ours(spark: SparkSession) -> None:
    assert threading.current_thread() is threading.main_thread()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_jvm_maps_the_class_archive(spark: SparkSession, class_archive: Path) -> None:
    assert class_archive.name in Path(f"/proc/{jvm_of(spark)}/maps").read_text()


def test_secrets_are_not_on_the_command_line(
    engine_settings: EngineSettings, spark_jars: tuple[Path, ...], tmp_path: Path
) -> None:
    conf = {"spark.hadoop.fs.s3a.secret.key": "hush", "spark.thence.probe": "seen"}
    order = Order(msgspec.structs.replace(engine_settings, conf=conf), spark_jars)
    process = start("stay", order)
    try:
        answer = _answer(process)
        command = Path(f"/proc/{answer['jvm']}/cmdline").read_bytes()
        assert b"spark.thence.probe=seen" in command
        assert b"hush" not in command
        assert answer["secret"] == "hush"
    finally:
        finish(process)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_jvm_goes_with_its_parent(
    engine_settings: EngineSettings, spark_jars: tuple[Path, ...], number: signal.Signals
) -> None:
    process = start("stay", Order(engine_settings, spark_jars))
    try:
        jvm = _answer(process)["jvm"]
        assert is_alive(jvm)
        process.send_signal(number)
        assert process.wait(PATIENCE_SECONDS) == -number
        assert wait_until_gone(jvm)
    finally:
        finish(process)


def test_a_session_whose_jvm_was_killed_can_be_replaced(
    engine_settings: EngineSettings, spark_jars: tuple[Path, ...]
) -> None:
    process = start("lose", Order(engine_settings, spark_jars))
    try:
        replaced, stopped = _answer(process), _answer(process)
    finally:
        finish(process)
    assert replaced["count"] == 3
    assert len(replaced["paths"]) == 1
    assert stopped["paths"] == []


def test_a_master_that_is_none_is_refused(
    engine_settings: EngineSettings, spark_jars: tuple[Path, ...]
) -> None:
    settings = msgspec.structs.replace(engine_settings, master="nonsense://here")
    process = start("check", Order(settings, spark_jars))
    try:
        answer = _answer(process)
    finally:
        finish(process)
    assert answer["code"] == "engine.start_failed"
    assert answer["message"].endswith("Master must either be yarn or start with spark, k8s, or local")


def test_no_java_is_left_after_an_exception(
    engine_settings: EngineSettings, spark_jars: tuple[Path, ...]
) -> None:
    process = start("raise", Order(engine_settings, spark_jars))
    try:
        jvm = _answer(process)["jvm"]
        assert process.wait(PATIENCE_SECONDS) == 1
        assert not is_alive(jvm)
    finally:
        said = finish(process)
    assert said.strip().endswith(b"RuntimeError: planned")
    assert b"Warning" not in said


def test_without_a_java_the_bundled_one_runs_spark(spark_jars: tuple[Path, ...], tmp_path: Path) -> None:
    settings = EngineSettings(directory=tmp_path / "a state", master="local[1]", jit="quick")
    process = start("check", Order(settings, spark_jars), without_java(tmp_path / "bin"))
    try:
        answer = _answer(process)
    finally:
        said = finish(process)
    assert answer.get("report"), (answer, said)
    assert answer["java"]["origin"] == "bundled"
    assert answer["report"]["java"].startswith(f"{answer['java']['version']}.")
    assert answer["java"]["home"].startswith(str(tmp_path))


def test_the_environment_names_the_java(java: Java, tmp_path: Path) -> None:
    hidden = without_java(tmp_path / "bin")

    assert find_java(tmp_path, {**hidden, "JAVA_HOME": str(java.home)}) == java


def test_an_old_java_is_passed_over_for_the_bundled_one(tmp_path: Path) -> None:
    old = tmp_path / "old" / "bin" / "java"
    old.parent.mkdir(parents=True)
    old.write_text(
        "#!/bin/sh\ncat <<'END'\n"
        "    java.home = /old\n    java.version = 1.8.0_412\n    java.specification.version = 1.8\nEND\n"
    )
    old.chmod(0o755)

    found = find_java(tmp_path, {**without_java(tmp_path / "bin"), "JAVA_HOME": str(tmp_path / "old")})

    assert found.origin == "bundled"


def test_no_java_at_all_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thence.engine.java.find_spec", lambda name: None)

    with pytest.raises(ConfigError, match="broken/bin/java") as caught:
        find_java(tmp_path, {"PATH": "", "JAVA_HOME": str(tmp_path / "broken")})

    assert caught.value.code == "engine.java_missing"
    assert "apt-get install" in caught.value.advice


def test_an_archive_fits_one_java_and_one_class_path(
    java: Java, spark_jars: tuple[Path, ...], tmp_path: Path
) -> None:
    path = ClassArchive(tmp_path, java, spark_jars).path
    other = msgspec.structs.replace(java, release="17.0.1")

    assert ClassArchive(tmp_path, other, spark_jars).path != path
    assert ClassArchive(tmp_path, java, spark_jars[1:]).path != path
    assert ClassArchive(tmp_path, java, spark_jars).options() == ()
    copy = Path(shutil.copy2(spark_jars[1], tmp_path / spark_jars[1].name))
    assert ClassArchive(tmp_path, java, (spark_jars[0], copy, *spark_jars[2:])).path != path


def test_what_the_operator_sets_wins_and_is_added_where_both_may_speak(tmp_path: Path) -> None:
    own = {
        "spark.sql.session.timeZone": "Europe/Oslo",
        "spark.driver.extraClassPath": "/own.jar",
        "spark.driver.extraJavaOptions": "-XX:+UseG1GC",
        "spark.sql.extensions": "own.Extension",
    }
    conf = spark_conf(EngineSettings(directory=tmp_path, conf=own), [Path("/a.jar")], ["-Xlog:gc"], {})

    assert conf["spark.sql.session.timeZone"] == "Europe/Oslo"
    assert conf["spark.driver.extraClassPath"] == "/a.jar:/own.jar"
    assert conf["spark.driver.extraJavaOptions"] == "-XX:+UseG1GC -Xlog:gc"
    assert conf["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension,own.Extension"
    assert "spark.jars" not in conf


@pytest.mark.parametrize(
    ("master", "is_local", "is_on_loopback"),
    [
        ("local", True, True),
        ("local[*]", True, True),
        ("local-cluster[2,1,512]", False, True),
        ("spark://127.0.0.1:7077", False, True),
        ("spark://localhost:7077", False, True),
        ("spark://spark.internal:7077", False, False),
        ("yarn", False, False),
        ("k8s://https://cluster.internal:6443", False, False),
    ],
)
def test_only_what_stays_on_this_machine_is_bound_to_loopback(
    tmp_path: Path, master: str, is_local: bool, is_on_loopback: bool
) -> None:
    settings = EngineSettings(directory=tmp_path, master=master)

    assert (settings.is_local, settings.is_on_loopback) == (is_local, is_on_loopback)
    assert ("spark.driver.host" in spark_conf(settings, [], [], {})) is is_on_loopback


def _answer(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout
    line = process.stdout.readline()
    assert line, finish(process).decode()
    return msgspec.json.decode(line)  # type: ignore[no-any-return]
