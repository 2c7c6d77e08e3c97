"""kill -9 of PostgreSQL and of the process that owns it, while a client commits.

The oracle is a file: an independent client appends the number of a transaction to it once COMMIT has returned. After
each kill all of them must be in the database, and each transaction's rows must be there together or not at all.
Run as a script, this file is that client (`write DSN_FILE LOG`) or such an owner (`own DIRECTORY DSN_FILE`).
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg

from thence.servers.postgres import PostgresServer
from thence.servers.postgres.home import Home
from thence.servers.postgres.leftovers import servers

LONG = {"rounds": 50}
SHORT = {"rounds": 3}
PATIENCE_SECONDS = 120.0


def run(*, rounds: int, seed: int) -> dict[str, object]:
    """`rounds` kills of PostgreSQL, then two kills of its owner for every five of those."""
    chance = random.Random(seed)
    with _directory() as directory:
        figures = _kill_postgres(directory / "killed", rounds, chance)
        return figures | _kill_owner(directory / "orphaned", max(2, rounds * 2 // 5), chance)


def _kill_postgres(directory: Path, rounds: int, chance: random.Random) -> dict[str, object]:
    files = Files(directory)
    seconds = []
    with PostgresServer(directory / "server") as server:
        files.publish(server)
        _make_table(files)
        with _writer(files) as writer:
            for number in range(rounds):
                files.await_commits(more=chance.randint(1, 200))
                started_at = time.monotonic()
                _kill(server, everything=chance.random() < 0.3)
                _wait(lambda wanted=number + 1: server.restarts == wanted, "a restart")  # type: ignore[misc]
                files.await_commits(more=1)
                seconds.append(time.monotonic() - started_at)
                assert server.is_healthy()
                assert not files.lost(), f"lost after kill {number + 1}: {sorted(files.lost())[:20]}"
            writer.terminate()
        return {"postgres_kills": rounds, "recovered": server.restarts, **files.figures()} | {
            "recovery_seconds_median": round(statistics.median(seconds), 3),
            "recovery_seconds_longest": round(max(seconds), 3),
        }


def _kill_owner(directory: Path, rounds: int, chance: random.Random) -> dict[str, object]:
    files = Files(directory)
    home = Home(directory / "server")
    seconds = []
    owner = _start_owner(home, files)
    _make_table(files)
    try:
        with _writer(files) as writer:
            for number in range(rounds):
                files.await_commits(more=chance.randint(1, 200))
                owner.kill()
                owner.wait()
                if chance.random() < 0.5:  # else the next owner meets a PostgreSQL that still runs
                    _wait(lambda: not servers(home), "the guardian to end PostgreSQL")
                started_at = time.monotonic()
                owner = _start_owner(home, files)
                seconds.append(time.monotonic() - started_at)
                files.await_commits(more=1)
                assert not files.lost(), f"lost after kill {number + 1}: {sorted(files.lost())[:20]}"
            writer.terminate()
        figures = files.figures()
    finally:
        owner.kill()
        owner.wait()
    _wait(lambda: not servers(home), "the guardian to end PostgreSQL")
    return {"owner_kills": rounds, "takeovers": len(seconds)} | {
        f"owner_{name}": value for name, value in figures.items()
    } | {"takeover_seconds_median": round(statistics.median(seconds), 3)}  # fmt: skip


class Files:
    """What the processes of one run know in common: where the database is, and what was acknowledged."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.dsn = directory / "dsn"
        self.log = directory / "acknowledged"
        self.log.touch()

    def publish(self, server: PostgresServer) -> None:
        publish(self.dsn, server.dsn("store"))

    def acknowledged(self) -> set[int]:
        lines = self.log.read_text().split("\n")
        return {int(line) for line in lines[:-1]}

    def await_commits(self, more: int) -> None:
        wanted = len(self.acknowledged()) + more
        _wait(lambda: len(self.acknowledged()) >= wanted, f"{more} more commits")

    def lost(self) -> set[int]:
        acknowledged = self.acknowledged()
        return acknowledged - set(self.stored())

    def stored(self) -> dict[int, tuple[int, int]]:
        """For each transaction how many rows it wrote and how many are there."""
        with psycopg.connect(self.dsn.read_text()) as connection:
            rows = connection.execute("SELECT tx, max(size), count(*) FROM written GROUP BY tx").fetchall()
        return {tx: (size, found) for tx, size, found in rows}

    def figures(self) -> dict[str, object]:
        stored = self.stored()
        torn = [tx for tx, (size, found) in stored.items() if size != found]
        lost = self.lost()
        assert not torn, f"torn transactions: {torn[:20]}"
        assert not lost, f"lost transactions: {sorted(lost)[:20]}"
        return {
            "acknowledged_transactions": len(self.acknowledged()),
            "lost_transactions": len(lost),
            "torn_transactions": len(torn),
            "committed_without_answer": len(set(stored) - self.acknowledged()),
        }


def publish(file: Path, dsn: str) -> None:
    beside = file.with_suffix(".tmp")
    beside.write_text(dsn)
    beside.replace(file)


def _make_table(files: Files) -> None:
    with psycopg.connect(files.dsn.read_text()) as connection:
        connection.execute("CREATE TABLE written (tx bigint, size int, part int)")


def _kill(server: PostgresServer, *, everything: bool) -> None:
    # All at once is what the kernel does to a container that is out of memory.
    home = server._home
    pid = server.pid
    assert pid is not None
    victims = {pid, *servers(home)} if everything else {pid}
    for victim in victims:
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _start_owner(home: Home, files: Files) -> subprocess.Popen[bytes]:
    files.dsn.unlink(missing_ok=True)
    owner = subprocess.Popen([sys.executable, __file__, "own", str(home.root), str(files.dsn)])
    _wait(lambda: files.dsn.exists() or owner.poll() is not None, "the owner to start")
    assert owner.poll() is None, f"the owner ended with {owner.returncode}"
    return owner


@contextmanager
def _writer(files: Files) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, __file__, "write", str(files.dsn), str(files.log)]) as writer:
        try:
            yield writer
        finally:
            writer.kill()


@contextmanager
def _directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="thence-faults-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def _wait(check: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not check():
        assert time.monotonic() < until, f"waited {PATIENCE_SECONDS} seconds for {what}"
        time.sleep(0.01)


def write(dsn_file: Path, log: Path) -> None:
    """Commit for ever, one connection after the other; a transaction without an answer is never tried again."""
    numbers = count(1)
    with log.open("a", buffering=1) as acknowledged:
        while True:
            try:
                with psycopg.connect(dsn_file.read_text(), connect_timeout=2, autocommit=True) as connection:
                    _commit_all(connection, numbers, acknowledged.write)
            except (psycopg.Error, FileNotFoundError):
                time.sleep(0.01)


def _commit_all(
    connection: psycopg.Connection[tuple[object, ...]], numbers: Iterator[int], say: Callable[[str], object]
) -> None:
    for tx in numbers:
        size = tx % 4 + 1
        with connection.transaction():
            for part in range(size):
                connection.execute("INSERT INTO written VALUES (%s, %s, %s)", (tx, size, part))
        say(f"{tx}\n")


def own(directory: Path, dsn_file: Path) -> None:
    """Own a server until somebody kills this process."""
    server = PostgresServer(directory)
    server.start()
    publish(dsn_file, server.dsn("store"))
    signal.pause()


if __name__ == "__main__":
    {"write": write, "own": own}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
