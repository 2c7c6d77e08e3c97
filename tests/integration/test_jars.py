from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from thence.core.errors import Rejected, Unavailable
from thence.engine.jars import Jar, Jars, read_lock
from thence.engine.java import Java

SMALL = ("delta-storage-4.4.0.jar", "delta-kernel-unitycatalog-4.4.0.jar")
FETCH = """
import sys
from pathlib import Path
from thence.engine.jars import Jars, read_lock
from thence.engine.java import find_java
lock = [jar for jar in read_lock() if jar.file_name in sys.argv[3:]]
jars = Jars(Path(sys.argv[1]), find_java(Path(sys.argv[1])), lock=lock, ivy_settings=Path(sys.argv[2]))
print(len(jars.classpath("spark")))
"""


@pytest.fixture
def mirror(spark_jars: tuple[Path, ...], kafka_jars: tuple[Path, ...], tmp_path: Path) -> Path:
    """The settings of an operator whose repository is a directory: jars that were fetched before."""
    assert spark_jars[0].parent == kafka_jars[0].parent
    return _settings_for(spark_jars[0].parent, tmp_path)


@pytest.fixture
def make(tmp_path: Path, java: Java, mirror: Path) -> Callable[..., Jars]:
    def make(settings: Path = mirror, lock: tuple[Jar, ...] | None = None) -> Jars:
        return Jars(tmp_path / "jars", java, lock=lock or small_lock(), ivy_settings=settings)

    return make


def small_lock() -> tuple[Jar, ...]:
    return tuple(jar for jar in read_lock() if jar.file_name in SMALL)


def _settings_for(repository: Path, place: Path) -> Path:
    path = place / f"{repository.name}-settings.xml"
    path.write_text(
        '<ivysettings><settings defaultResolver="here"/><resolvers><filesystem name="here">'
        f'<artifact pattern="{repository}/[artifact]-[revision].[ext]"/>'
        "</filesystem></resolvers></ivysettings>"
    )
    return path


@pytest.fixture
def no_repository(tmp_path: Path) -> Path:
    return _settings_for(tmp_path / "nowhere", tmp_path)


def test_every_jar_of_the_lock_is_fetched_with_its_own_name(
    spark_jars: tuple[Path, ...], kafka_jars: tuple[Path, ...], jars: Jars
) -> None:
    listener = jars.classpath("openlineage")
    assert (len(spark_jars), len(kafka_jars), len(listener)) == (9, 46, 1)
    everything = (*spark_jars, *kafka_jars, *listener)
    assert len({path.name for path in everything}) == 56
    assert jars.check() == ()
    for jar, path in zip(read_lock(), everything, strict=True):
        assert hashlib.sha256(path.read_bytes()).hexdigest() == jar.sha256


def test_the_operators_ivysettings_say_where_jars_come_from(
    make: Callable[..., Jars],
    no_repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    java: Java,
) -> None:
    monkeypatch.setenv("THENCE_IVY_SETTINGS", str(no_repository))
    with pytest.raises(Unavailable):
        Jars(tmp_path / "other", java, lock=small_lock()).classpath("spark")

    assert [path.name for path in make().classpath("spark")] == [jar.file_name for jar in small_lock()]


def test_a_filled_cache_needs_no_repository(make: Callable[..., Jars], no_repository: Path) -> None:
    filled = make().classpath("spark")

    assert make(no_repository).classpath("spark") == filled


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_jar_is_found_and_healed(make: Callable[..., Jars], damage: str) -> None:
    path = make().classpath("spark")[0]
    sound = path.read_bytes()
    path.write_bytes(sound[:-1] if damage == "cut" else bytes([sound[0] ^ 1]) + sound[1:])

    assert [(problem.jar.file_name, problem.kind) for problem in make().check()] == [(path.name, "damaged")]
    assert make().classpath("spark")[0].read_bytes() == sound


def test_a_damaged_jar_is_reported_with_advice_where_it_cannot_be_healed(
    make: Callable[..., Jars], no_repository: Path
) -> None:
    path = make().classpath("spark")[0]
    path.write_bytes(b"no jar")

    with pytest.raises(Unavailable, match=path.name) as caught:
        make(no_repository).classpath("spark")

    assert caught.value.code == "engine.jars_unavailable"
    assert str(path.parent) in caught.value.advice
    assert path.read_bytes() == b"no jar"
    assert not list(path.parent.glob(".fetch-*"))


def test_a_repository_that_serves_other_bytes_is_not_believed(
    make: Callable[..., Jars], tmp_path: Path, spark_jars: tuple[Path, ...]
) -> None:
    false = tmp_path / "false"
    false.mkdir()
    names = [jar.file_name for jar in small_lock()]
    (false / names[0]).write_bytes(spark_jars[0].parent.joinpath(names[0]).read_bytes())
    (false / names[1]).write_bytes(b"something else")

    with pytest.raises(Rejected, match=names[1]) as caught:
        make(_settings_for(false, tmp_path)).classpath("spark")

    assert caught.value.code == "engine.jar_mismatch"
    assert [(problem.jar.file_name, problem.kind) for problem in make().check()] == [(names[1], "missing")]


def test_what_is_exported_serves_a_machine_without_a_network(
    make: Callable[..., Jars], java: Java, no_repository: Path, tmp_path: Path
) -> None:
    make().export(tmp_path / "stick")

    elsewhere = Jars(tmp_path / "stick", java, lock=small_lock(), ivy_settings=no_repository)
    assert len(elsewhere.classpath("spark")) == len(small_lock())


def test_processes_that_fetch_at_once_do_not_harm_each_other(mirror: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", FETCH, str(tmp_path / "jars"), str(mirror), *SMALL]
    fetching = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]

    assert [process.communicate(timeout=120)[0] for process in fetching] == ["2\n"] * 4
    assert not list((tmp_path / "jars").glob(".fetch-*"))


def test_a_fetch_after_a_crash_sweeps_up_what_was_left(make: Callable[..., Jars], tmp_path: Path) -> None:
    left_over = tmp_path / "jars" / ".fetch-dead"
    left_over.mkdir(parents=True)
    (left_over / SMALL[0]).write_bytes(b"half")

    make().classpath("spark")

    assert not left_over.exists()


def test_two_versions_of_one_artifact_are_fetched_together(make: Callable[..., Jars]) -> None:
    lock = tuple(jar for jar in read_lock() if jar.artifact == "kafka-clients")

    assert [jar.version for jar in make(lock=lock).fetch()] == ["3.9.2", "4.3.1"]


def test_progress_ends_with_everything(make: Callable[..., Jars]) -> None:
    seen: list[tuple[int, int]] = []

    make().fetch(progress=lambda here, total: seen.append((here, total)))

    total = sum(jar.size_bytes for jar in small_lock())
    assert seen[-1] == (total, total)
