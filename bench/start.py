"""How long it takes to get going, and how much memory is used when nothing happens.

`import_ms` is the import of the package alone, without the start of Python; `help_ms` is `thence --help` all in;
`up_*` is `thence up --once` from the first line to the end of the process; memory is that of the whole tree.
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
