"""Processes that a dead owner or a dead postmaster left behind in a directory.

They are found by where they work: a postmaster, its backends and our tools have their working directory inside the
home, and the holder of the owner's lock knows that none of them has a right to be there. A postmaster is stopped in
order, so that its clients' commits are kept without recovery; the others are ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from thence.core.clock import Clock
from thence.core.errors import Unavailable
from thence.servers.postgres.home import Home

PROC = Path("/proc")
TOOLS = frozenset(
    {"initdb", "pg_upgrade", "pg_ctl", "pg_dump", "pg_dumpall", "pg_restore", "psql", "vacuumdb"}
)
ROUNDS = ((signal.SIGINT, 10), (signal.SIGQUIT, 5), (signal.SIGKILL, 10))
POLL_SECONDS = 0.02


def stop(home: Home, clock: Clock) -> int:
    """End all of them, gently at first; how many there were."""
    count = len(servers(home)) + len(_tools(home))
    for pid in _tools(home):
        _send(pid, signal.SIGKILL)
    for number, seconds in ROUNDS:
        masters = postmasters(home)
        if number == signal.SIGINT and not masters:
            continue
        for pid in masters if number == signal.SIGINT else servers(home):
            _send(pid, number)
        if _gone(lambda: not servers(home), clock, seconds):
            _forget(home)
            return count
    raise Unavailable(
        "postgres.leftovers",
        f"PostgreSQL processes of an earlier run do not end in {home.root}: {sorted(servers(home))}",
        advice="They hang in the kernel, most likely on a disk. Look at the disk, end them, start again.",
    )


def postmasters(home: Home) -> set[int]:
    """Those that a `postmaster.pid` names and that really are there."""
    recorded = {pid for place in _places(home) if (pid := recorded_pid(place))}
    return recorded & servers(home)


def servers(home: Home) -> set[int]:
    """All PostgreSQL server processes, with or without a postmaster."""
    if not PROC.joinpath("self").exists():
        return {pid for place in _places(home) if (pid := recorded_pid(place)) and told_by_ps(pid, place)}
    return _working(home, frozenset({"postgres"}))


def recorded_pid(data: Path) -> int | None:
    """The pid in `postmaster.pid`; single-user mode writes it negative."""
    try:
        return abs(int((data / "postmaster.pid").read_text().split("\n", 1)[0])) or None
    except (OSError, ValueError):
        return None


def told_by_ps(pid: int, data: Path) -> bool:
    """Whether a process is a postmaster on this directory, where there is no /proc to ask."""
    command = ["ps", "-ww", "-p", str(pid), "-o", "command="]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return "postgres" in said and str(data) in said


def _tools(home: Home) -> set[int]:
    return _working(home, TOOLS) if PROC.joinpath("self").exists() else set()


def _working(home: Home, programs: frozenset[str]) -> set[int]:
    places = {str(place) for place in _places(home)}
    pids = (int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal())
    return {pid for pid in pids if _cwd(pid) in places and _program(pid) in programs}


def _places(home: Home) -> tuple[Path, ...]:
    return (home.data, home.making, home.work)


def _cwd(pid: int) -> str:
    return _link(pid, "cwd")


def _program(pid: int) -> str:
    return Path(_link(pid, "exe")).name


def _link(pid: int, name: str) -> str:
    try:
        # A directory that was removed under a process, a program that was replaced by a new installation.
        return str((PROC / str(pid) / name).readlink()).removesuffix(" (deleted)")
    except OSError:
        return ""


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _gone(check: Callable[[], bool], clock: Clock, seconds: float) -> bool:
    until = clock.monotonic() + seconds
    while not check():
        if clock.monotonic() > until:
            return False
        clock.sleep(POLL_SECONDS)
    return True


def _forget(home: Home) -> None:
    # The pid in a stale file may by now be that of any other process, and PostgreSQL would wait for that one.
    if PROC.joinpath("self").exists():
        (home.data / "postmaster.pid").unlink(missing_ok=True)
