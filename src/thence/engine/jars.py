"""The jars of `jars.lock`: fetched once, verified, then used from a directory, also without a network.

A jar becomes visible only after its size and SHA-256 were compared and its bytes were synced, by a rename;
a crash leaves a hidden directory that the next fetch sweeps away. Every use reads and compares all bytes
again, and a damaged jar is fetched again. Processes that fetch into one directory wait for each other
(flock).

To change versions, edit the coordinates in `jars.lock` (the whole closure of the Kafka broker stands there)
and run `python -m thence.engine.jars > new.lock`, which fetches every jar anew and prints the lines with
their checksums.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Literal

import msgspec

from thence.core.errors import Rejected, Unavailable
from thence.disk import durable
from thence.engine.ivy import retrieve
from thence.engine.java import Java, find_java

_log = logging.getLogger(__name__)

_ADVICE = (
    "Check the network, or name a mirror: set THENCE_IVY_SETTINGS to an ivysettings.xml. Without a network, "
    "copy the files that `thence engine jars --export DIR` writes on another machine into {directory}."
)
_MANY = 4  # names that a message lists


class Jar(msgspec.Struct, frozen=True):
    """One line of the lock."""

    group: str
    organisation: str
    artifact: str
    version: str
    sha256: str
    size_bytes: int

    @property
    def file_name(self) -> str:
        """The name of its file, unique in the lock."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def coordinates(self) -> tuple[str, str, str]:
        """Organisation, artifact, version."""
        return (self.organisation, self.artifact, self.version)


class Problem(msgspec.Struct, frozen=True):
    """A jar that cannot be used as it lies there."""

    jar: Jar
    kind: Literal["missing", "damaged"]


Progress = Callable[[int, int], None]


def read_lock() -> tuple[Jar, ...]:
    """The lock as it ships."""
    text = (files("thence.engine") / "jars.lock").read_text(encoding="utf-8")
    return tuple(_jar(line.split()) for line in text.splitlines() if line and not line.startswith("#"))


class Jars:
    """A directory of verified jars. `progress` of its methods takes the bytes that are here and all bytes."""

    def __init__(
        self,
        directory: Path,
        java: Java,
        *,
        lock: Sequence[Jar] | None = None,
        ivy_settings: Path | None = None,
    ) -> None:
        named = os.environ.get("THENCE_IVY_SETTINGS")
        self._directory = directory
        self._java = java
        self._lock = tuple(lock) if lock is not None else read_lock()
        self._ivy_settings = ivy_settings or (Path(named) if named else None)

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of the groups of jars, each a class path."""
        return tuple(dict.fromkeys(jar.group for jar in self._lock))

    def classpath(self, group: str, progress: Progress | None = None) -> tuple[Path, ...]:
        """The verified files of a group; what is missing or damaged is fetched first."""
        if self.check(group):
            self.fetch(group, progress)
        return tuple(self._directory / jar.file_name for jar in self._of(group))

    def check(self, group: str | None = None) -> tuple[Problem, ...]:
        """What is wrong, after reading every byte: 15 ms for the jars of Spark. Changes nothing."""
        return tuple(problem for jar in self._of(group) if (problem := self._look_at(jar)) is not None)

    def fetch(self, group: str | None = None, progress: Progress | None = None) -> tuple[Jar, ...]:
        """Fetch what is missing or damaged; return it."""
        with self._alone():
            problems = self.check(group)
            wanted = tuple(problem.jar for problem in problems)
            if wanted:
                self._report(problems)
                self._fetch(wanted, progress)
        return wanted

    def export(self, target: Path, group: str | None = None) -> tuple[Path, ...]:
        """Copy jars to a directory that serves as the jar directory of a machine without a network."""
        for name in self.groups if group is None else (group,):
            self.classpath(name)
        target.mkdir(parents=True, exist_ok=True)
        names = [jar.file_name for jar in self._of(group)]
        return tuple(Path(shutil.copy2(self._directory / name, target / name)) for name in names)

    def _of(self, group: str | None) -> tuple[Jar, ...]:
        return tuple(jar for jar in self._lock if group is None or jar.group == group)

    def _look_at(self, jar: Jar) -> Problem | None:
        path = self._directory / jar.file_name
        try:
            sound = path.stat().st_size == jar.size_bytes and _sha256(path) == jar.sha256
        except FileNotFoundError:
            return Problem(jar, "missing")
        return None if sound else Problem(jar, "damaged")

    def _fetch(self, wanted: tuple[Jar, ...], progress: Progress | None) -> None:
        total = sum(jar.size_bytes for jar in wanted)
        _log.info("fetching %d jars", len(wanted), extra={"action": "jars_fetching", "size_bytes": total})
        tell = None if progress is None else partial(_tell, progress, total)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=self._directory) as name:
            place = Path(name)
            names = [jar.coordinates for jar in wanted]
            said = retrieve(names, place, self._java, settings=self._ivy_settings, progress=tell)
            here = [jar for jar in wanted if (place / jar.file_name).exists()]
            good = [jar for jar in here if _sha256(place / jar.file_name) == jar.sha256]
            self._publish(place, good)
        if missing := [jar for jar in wanted if jar not in here]:
            raise self._unavailable(missing, said)
        if wrong := [jar for jar in here if jar not in good]:
            raise self._mismatch(wrong)
        if progress is not None:
            progress(total, total)
        _log.info("jars are here", extra={"action": "jars_fetched", "size_bytes": total})

    def _publish(self, place: Path, jars: Iterable[Jar]) -> None:
        for jar in jars:
            with (place / jar.file_name).open("rb") as file:
                os.fsync(file.fileno())
            (place / jar.file_name).replace(self._directory / jar.file_name)
        durable.sync_directory(self._directory)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._directory.mkdir(parents=True, exist_ok=True)
        with (self._directory / ".lock").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            for left_over in self._directory.glob(".fetch-*"):
                shutil.rmtree(left_over)
            yield

    def _report(self, problems: Iterable[Problem]) -> None:
        for problem in problems:
            if problem.kind == "damaged":
                path = str(self._directory / problem.jar.file_name)
                _log.warning("damaged jar: %s", path, extra={"action": "jar_damaged", "path": path})

    def _unavailable(self, jars: Sequence[Jar], said: str) -> Unavailable:
        lines = [line.strip() for line in said.splitlines() if "Exception" in line or "not found" in line]
        why = f" ({lines[0]})" if lines else ""
        message = f"{len(jars)} jars could not be fetched: {_names(jars)}{why}"
        return Unavailable(
            "engine.jars_unavailable", message, advice=_ADVICE.format(directory=self._directory)
        )

    def _mismatch(self, jars: Sequence[Jar]) -> Rejected:
        return Rejected(
            "engine.jar_mismatch",
            f"{len(jars)} jars came with other bytes than the lock says, and were not kept: {_names(jars)}",
            advice="The repository or a proxy in between serves other files: name another mirror with "
            "THENCE_IVY_SETTINGS.",
        )


def _jar(fields: list[str]) -> Jar:
    group, names, sha256, size_bytes = fields
    organisation, artifact, version = names.split(":")
    return Jar(group, organisation, artifact, version, sha256, int(size_bytes))


def _names(jars: Sequence[Jar]) -> str:
    names = [jar.file_name for jar in jars]
    return ", ".join(names[:_MANY]) + (", ..." if len(names) > _MANY else "")


def _tell(progress: Progress, total: int, here: int) -> None:
    progress(min(here, total), total)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _relock() -> None:
    with tempfile.TemporaryDirectory() as name:
        place, jars = Path(name), read_lock()
        sys.stderr.write(retrieve([jar.coordinates for jar in jars], place, find_java(place)))
        for jar in jars:
            path = place / jar.file_name
            names = ":".join(jar.coordinates)
            sys.stdout.write(f"{jar.group} {names} {_sha256(path)} {path.stat().st_size}\n")


if __name__ == "__main__":
    _relock()
