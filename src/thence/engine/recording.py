"""Writes the class archive: a process of its own starts Spark, uses it, and the JVM records what it loaded.

It takes half a minute of one core and runs at the lowest priority, so the service may do it while it works.
The archive appears when it is whole; a crash leaves a file in `recording/`, which the next attempt
replaces.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from thence.core.errors import Unavailable
from thence.engine.archive import ClassArchive
from thence.engine.check import run_check
from thence.engine.conf import EngineSettings
from thence.engine.java import Java
from thence.engine.session import start_session, stop_session

_log = logging.getLogger(__name__)
_EXIT_SECONDS = 600.0
_TAIL_LINES = 3


class _Order(msgspec.Struct, frozen=True):
    directory: Path
    driver_memory: str
    jars: tuple[Path, ...]
    java: Java


def record_archive(settings: EngineSettings, jars: Sequence[Path], java: Java) -> Path:
    """Write the archive that fits, unless it is there; return its path. A session may run meanwhile."""
    archive = ClassArchive(settings.directory, java, jars)
    if archive.path.exists():
        return archive.path
    order = _Order(settings.directory, settings.driver_memory, tuple(jars), java)
    command = [sys.executable, "-m", "thence.engine.recording"]
    done = subprocess.run(
        command, input=msgspec.json.encode(order, enc_hook=str), capture_output=True, check=False
    )
    if done.returncode != 0 or not archive.path.exists():
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise Unavailable(
            "engine.archive_failed",
            f"the class archive was not written: {' / '.join(lines[-_TAIL_LINES:])}",
            advice="Nothing depends on it but the time of a start. Look for a full disk.",
        )
    size = archive.path.stat().st_size
    _log.info("wrote %s", archive.path.name, extra={"action": "archive_written", "size_bytes": size})
    return archive.path


def _record(order: _Order) -> None:
    os.nice(19)
    place = order.directory / "recording"
    archive = ClassArchive(order.directory, order.java, order.jars)
    settings = EngineSettings(
        directory=place, master="local[1]", jit="quick", driver_memory=order.driver_memory
    )
    fresh = place / archive.path.name
    fresh.unlink(missing_ok=True)
    session = start_session(settings, order.jars, order.java, java_options=archive.recording(fresh))
    try:
        run_check(session, str(place))
    finally:
        stop_session(session, wait_seconds=_EXIT_SECONDS)
    fresh.replace(archive.path)


if __name__ == "__main__":
    _record(
        msgspec.json.decode(sys.stdin.buffer.read(), type=_Order, dec_hook=lambda kind, value: kind(value))
    )
