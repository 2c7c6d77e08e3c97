"""A class archive: what the JVM has loaded and linked once, kept in a file that later starts map.

It belongs to one Java, one class path and one pyspark; `path` says so by its name. A missing or unusable
archive makes a start slower and nothing else. It is written by a JVM at its exit, under another name, and
renamed.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from thence.engine.java import Java

_AHEAD_OF_TIME = 25  # the first Java with -XX:AOTCacheOutput


class ClassArchive:
    """The archive that fits a Java and its jars, whether it is there or not."""

    def __init__(self, directory: Path, java: Java, jars: Sequence[Path]) -> None:
        self._is_aot = java.version >= _AHEAD_OF_TIME
        stamps = [f"{jar} {jar.stat().st_mtime_ns} {jar.stat().st_size}" for jar in jars]
        key = "\n".join([java.release, str(java.home), version("pyspark"), *stamps])
        name = f"classes-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
        self.path = directory / f"{name}.{'aot' if self._is_aot else 'jsa'}"

    def options(self) -> tuple[str, ...]:
        """What the JVM must be told to use it; nothing when it is not there."""
        if not self.path.exists():
            return ()
        use = "-XX:AOTCache" if self._is_aot else "-XX:SharedArchiveFile"
        return (f"{use}={shlex.quote(str(self.path))}",)

    def recording(self, path: Path) -> tuple[str, ...]:
        """What the JVM must be told to write it to `path` when it exits."""
        return (f"{'-XX:AOTCacheOutput' if self._is_aot else '-XX:ArchiveClassesAtExit'}={path}",)
