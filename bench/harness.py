"""One small harness for all benches: interleaved contenders, CPU time of whole process trees, medians with spread.

Machines are shared, so contenders take turns within one run and are compared as ratios; CPU time is preferred to wall
time. With `--json` the last line on stdout is `{"bench": NAME, "figures": {...}}`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")


class Spread(NamedTuple):
    """What several rounds of one contender gave."""

    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values), len(values))


class Cost(NamedTuple):
    """What one command took."""

    wall_seconds: float
    cpu_seconds: float


def interleave(contenders: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, Spread]:
    """Let contenders take turns, so that a busy moment hits all of them."""
    values: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name, measure in contenders.items():
            values[name].append(measure())
            tell(f"round {number + 1}/{rounds}  {name}: {values[name][-1]:.3f}")
    return {name: Spread.of(found) for name, found in values.items()}


def run(command: Sequence[str], **options: object) -> Cost:
    """Run a command to its end; the CPU time is that of itself and all it waited for."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, **options)  # type: ignore[call-overload]
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"bench: {' '.join(command)} ended with {process.returncode}")
    return Cost(time.perf_counter() - began, usage.ru_utime + usage.ru_stime)


def tree(root: int) -> list[int]:
    """A process and all that descend from it, now."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found = [root]
    for pid in found:
        found.extend(parents.get(pid, ()))
    return found


def tree_cpu_seconds(root: int) -> float:
    """CPU time that a tree of running processes has used so far, with the children that it has waited for."""
    total = 0
    for pid in tree(root):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(int(field) for field in fields[11:15])
    return total / _TICKS


def tree_memory_bytes(root: int) -> int:
    """Memory of a tree, with what its processes share counted once (PSS)."""
    total = 0
    for pid in tree(root):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return total * 1024


def tell(text: str) -> None:
    """Progress, beside the data."""
    print(text, file=sys.stderr, flush=True)


def report(bench: str, figures: Mapping[str, Spread | float], *, as_json: bool) -> None:
    """Print the figures: as a table for people, as one line for machines."""
    if as_json:
        plain = {
            name: round(value.median if isinstance(value, Spread) else value, 4)
            for name, value in figures.items()
        }
        print(json.dumps({"bench": bench, "figures": plain}), flush=True)
        return
    width = max(map(len, figures), default=0)
    for name, value in figures.items():
        if isinstance(value, Spread):
            print(
                f"{name:<{width}}  {value.median:10.3f}   ({value.low:.3f} .. {value.high:.3f}, {value.rounds} rounds)"
            )
        else:
            print(f"{name:<{width}}  {value:10.3f}")
