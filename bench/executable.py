"""The self-contained sidecar: how large, how long from start to ready, how much memory; beside the installed one.

`*_ready_seconds` is from the start of the process until `/readyz` would answer 200, in a new state directory, with a
destination that is down; `*_rss_mb` is its resident memory a second later. Everything is built first, from this tree.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bench.harness import Spread, interleave, tell
from deploy.executable import NAME, build_executable


def measure(*, quick: bool) -> dict[str, Spread | float]:
    with tempfile.TemporaryDirectory() as folder:
        archive = build_executable(Path(folder), tell)
        directory = archive.with_name(NAME)
        programs = {
            "executable": [str(directory / "thence")],
            "installed": [sys.executable, "-m", "thence"],
        }
        memory: dict[str, list[float]] = {name: [] for name in programs}
        contenders: dict[str, Callable[[], float]] = {
            f"{name}_ready_seconds": partial(_ready, program, memory[name])
            for name, program in programs.items()
        }
        figures: dict[str, Spread | float] = {
            "archive_mb": archive.stat().st_size / 1e6,
            "unpacked_mb": sum(path.lstat().st_size for path in directory.rglob("*")) / 1e6,
            **interleave(contenders, 3 if quick else 15),
        }
        figures |= {f"{name}_rss_mb": Spread.of(values) for name, values in memory.items()}
        return figures


def _ready(program: Sequence[str], memory: list[float]) -> float:
    with tempfile.TemporaryDirectory() as state:
        options = ["--json", "--state", state, "collect", "--listen", "127.0.0.1:0"]
        command = [*program, *options, "--backend", "http://127.0.0.1:1"]
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert process.stdout is not None
            next(line for line in process.stdout if '"url"' in line)
            seconds = time.perf_counter() - began
            time.sleep(1)
            memory.append(_resident_mb(process.pid))
            return seconds
        finally:
            process.terminate()
            process.communicate(timeout=30)


def _resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024 / 1e6
