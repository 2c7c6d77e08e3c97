"""How long it takes to get going, and how much memory is used when nothing happens.

`import_ms` is the import of the package alone, without the start of Python; `help_ms` is `thence --help` all in;
`up_*` is `thence up --once` from the first line to the end of the process; memory is that of the whole tree:
`idle_memory_mb` of everything but Spark, `spark_memory_mb` of a Spark that has run a job and waits.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.harness import Spread, interleave, run, tell, tree_memory_bytes

_THENCE = (sys.executable, "-m", "thence")
_WARM_SPARK = """
import sys
from pathlib import Path
from thence.engine.check import run_check
from thence.engine.conf import EngineSettings
from thence.engine.jars import Jars
from thence.engine.java import find_java
from thence.engine.session import session
state = Path(sys.argv[1])
java = find_java(state / "engine")
settings = EngineSettings(directory=state / "engine", master="local[2]")
with session(settings, Jars(Path(".dev") / "jars", java).classpath("spark"), java) as spark:
    run_check(spark, str(state / "engine"))
    print("warm", flush=True)
    sys.stdin.readline()
"""
_IMPORT = (
    "import time; began = time.perf_counter(); import thence; print((time.perf_counter() - began) * 1000)"
)


def measure(*, quick: bool) -> dict[str, Spread | float]:
    figures: dict[str, Spread | float] = {}
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        figures["up_cold_seconds"] = _up(state)
        contenders: dict[str, Callable[[], float]] = {
            "import_ms": _import_ms,
            "python_ms": lambda: run([sys.executable, "-c", "pass"]).wall_seconds * 1000,
            "help_ms": lambda: run([*_THENCE, "--help"]).wall_seconds * 1000,
            "up_warm_seconds": lambda: _up(state),
        }
        figures |= interleave(contenders, 3 if quick else 10)
        figures["idle_memory_mb"] = _idle_memory_mb(state)
        figures["spark_memory_mb"] = _spark_memory_mb(state)
    return figures


def _import_ms() -> float:
    return float(
        subprocess.run([sys.executable, "-c", _IMPORT], check=True, capture_output=True, text=True).stdout
    )


def _up(state: Path) -> float:
    return run(
        [*_THENCE, "--state", str(state), "up", "--listen", "127.0.0.1:0", "--once"],
        stderr=subprocess.DEVNULL,
    ).wall_seconds


def _idle_memory_mb(state: Path) -> float:
    tell("memory of everything, idle")
    command = [*_THENCE, "--state", str(state), "up", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        next(line for line in process.stdout if line.startswith("ready"))
        time.sleep(2)
        return tree_memory_bytes(process.pid) / 1e6
    finally:
        os.kill(process.pid, signal.SIGTERM)
        process.wait(20)


def _spark_memory_mb(state: Path) -> float:
    tell("memory of a warm Spark, idle")
    with subprocess.Popen(
        [sys.executable, "-c", _WARM_SPARK, str(state)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if line.startswith("warm"))
        time.sleep(2)
        found = tree_memory_bytes(process.pid) / 1e6
        process.communicate("\n", timeout=60)
        return found
