"""A process that appends is killed, or one of its system calls fails, while a log of what it was told is kept apart.

The worker writes a line into its own log after each call that returned. Whatever happens to it, the journal opened
anew must hold everything in that log, in order, and go on.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from thence.core.errors import ThenceError
from thence.core.event import Event
from thence.core.tally import Settled
from thence.journal.limits import Limits
from thence.journal.log import FileJournal

SHORT: dict[str, Any] = {"rounds": 6, "share": 0.04}
LONG: dict[str, Any] = {"rounds": 1000, "share": 1.0}
SMALL = Limits(partition_bytes=6000)
CALLS = ("pwritev2", "pwrite64", "write", "fdatasync", "fsync", "rename", "unlink", "openat")
FAULTS = ("error=EIO", "error=ENOSPC", "signal=KILL")
ROOT = Path(__file__).parents[2]


def run(*, rounds: int, share: float, seed: int) -> dict[str, object]:
    """Kill `rounds` times, and let every n-th system call fail (a share of them in the short form)."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        acknowledged = [kill(Path(folder) / str(number), chance) for number in range(rounds)]
        faults = [fault for fault in enumerate_faults(Path(folder) / "count") if chance.random() < share]
        told = [fail(Path(folder) / f"fault-{index}", *fault) for index, fault in enumerate(faults)]
    return {
        "kills": rounds,
        "acknowledged_before_kills": sum(acknowledged),
        "syscall_faults": len(faults),
        "acknowledged_under_faults": sum(told),
        "acknowledged_lost": 0,
    }


def kill(directory: Path, chance: random.Random) -> int:
    directory.mkdir()
    process = subprocess.Popen(worker(directory, "endless"), cwd=ROOT, stderr=subprocess.DEVNULL)
    log = directory / "log"
    while not log.exists() and process.poll() is None:
        time.sleep(0.005)
    time.sleep(chance.random() * 0.25)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return examine(directory)


def fail(directory: Path, call: str, number: int, fault: str) -> int:
    directory.mkdir()
    done = strace(directory, f"trace={call}", f"inject={call}:{fault}:when={number}")
    assert "Traceback" not in done.stderr, f"{call} {number} {fault}: {done.stderr[-2000:]}"
    count = examine(directory)
    # No crash loop: the next process starts and finishes its work.
    again = subprocess.run(worker(directory, "short"), cwd=ROOT, capture_output=True, text=True)
    assert again.returncode == 0, f"{call} {number} {fault}: {again.stderr[-2000:]}"
    assert examine(directory) > count
    shutil.rmtree(directory)
    return count


def enumerate_faults(directory: Path) -> Iterator[tuple[str, int, str]]:
    directory.mkdir()
    done = strace(directory, "trace=" + ",".join(CALLS))
    assert done.returncode == 0, done.stderr[-2000:]
    for call in CALLS:
        lines = [line for line in done.stderr.splitlines() if re.match(rf"(\[pid +\d+\] )?{call}\(", line)]
        ours = [number for number, line in enumerate(lines, 1) if str(directory / "journal") in line]
        assert ours, f"no {call} on the journal in this run: its name may have changed"
        for number in ours:
            for fault in FAULTS:
                yield call, number, fault


def strace(directory: Path, *expressions: str) -> subprocess.CompletedProcess[str]:
    strace = shutil.which("strace")
    assert strace, "this run needs strace"
    chosen = [word for expression in ("signal=none", *expressions) for word in ("-e", expression)]
    command = [strace, "-f", "-y", "-qq", *chosen, *worker(directory, "short")]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def worker(directory: Path, mode: str) -> list[str]:
    return [sys.executable, "-m", "tests.faults.journal", str(directory), mode]


def event(number: int) -> Event:
    return Event(UUID(int=number), datetime(2026, 1, 1, tzinfo=UTC), "lineage", "key", b"%d " % number * 150)


def examine(directory: Path) -> int:
    """Everything that the worker was told stands in the journal, in order."""
    log = directory / "log"
    told = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    appended = [number for each in told for number in each.get("appended", [])]
    settled = sum(each.get("settled", 0) for each in told)
    journal = FileJournal(directory / "journal", SMALL)
    try:
        cursor = journal.cursor("worker")
        tally = cursor.tally()
        assert tally.holds
        assert settled <= tally.settled.total <= settled + 4 or not appended
        found: list[int] = []
        ahead = 0
        while records := cursor.read(100, ahead=ahead):
            found += [record.event.id.int for record in records]
            ahead += len(records)
        # An event that was refused may stand there all the same, so the log is a part of what is found, in order.
        waiting = iter(found)
        missing = [number for number in appended[tally.settled.total :] if number not in waiting]
        assert not missing or set(missing) <= set(appended[: tally.settled.total + 4]) - set(found), missing
    finally:
        journal.close()
    return len(appended)


def work(directory: Path, mode: str) -> None:
    """What the worker does: append, settle, maintain; note what it was told, and stand errors."""
    log = os.open(directory / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    number = 10_000 * (1 + sum(1 for _ in (directory / "log").open()))
    journal = opened(directory / "journal")
    cursor = journal.cursor("worker")
    turn = 0
    while mode == "endless" or turn < 12:
        turn += 1
        batch = [event(number + each) for each in range(turn % 4 + 1)]
        number += len(batch)
        try:
            journal.append(batch)
            note(log, appended=[each.id.int for each in batch])
            if turn % 3 == 0:
                count = len(cursor.read(4))
                cursor.settle(Settled(delivered=count))
                note(log, settled=count)
            if turn % 4 == 0:
                journal.maintain()
        except ThenceError:
            continue
    journal.close()


def opened(directory: Path) -> FileJournal:
    for _ in range(2):
        try:
            journal = FileJournal(directory, SMALL)
        except ThenceError:
            continue
        try:
            journal.cursor("worker")
        except ThenceError:
            journal.close()
            continue
        return journal
    sys.exit(3)


def note(log: int, **what: object) -> None:
    os.write(log, json.dumps(what).encode() + b"\n")


if __name__ == "__main__":
    work(Path(sys.argv[1]), sys.argv[2])
