"""The dead letters on a real disk pass the contract of their port."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from thence.core.clock import Clock
from thence.core.ports import DeadLetter
from thence.journal.letters.store import SqliteDeadLetters
from thence.testing.contracts.deadletters import DeadLettersContract

FILE = "failed.db"

# That many steps of SQLite's machine, and then no more; a transaction of four letters takes some 600.
DIE = """
import os, sys
from pathlib import Path
from thence.journal.letters.store import SqliteDeadLetters
from thence.testing.contracts.deadletters import letter

path, numbers, limit = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
letters = SqliteDeadLetters(path)
steps = 0

def step():
    global steps
    steps += 1
    return os._exit(9) if steps > limit else 0

letters._connection.set_progress_handler(step, 1)
letters.put([letter(int(number)) for number in numbers.split(",")])
print(steps)
os._exit(9)
"""


class TestSqliteDeadLetters(DeadLettersContract):
    def open(self, directory: Path, clock: Clock) -> SqliteDeadLetters:
        return SqliteDeadLetters(directory / FILE, clock=clock)

    def crash(self, opened: object) -> None:
        # Closing would write nothing that is not there; the death of a process is in `put_and_die`.
        assert isinstance(opened, SqliteDeadLetters)
        opened.close()

    def close(self, opened: object) -> None:
        self.crash(opened)

    def put_and_die(self, opened: object, batch: Sequence[DeadLetter], moment: int) -> None:
        assert isinstance(opened, SqliteDeadLetters)
        numbers = ",".join(str(one.id.int & 0xFFFF) for one in batch)
        command = [sys.executable, "-c", DIE, str(opened.path), numbers, str(moment * 150)]
        assert subprocess.run(command, timeout=60).returncode == 9
        opened.close()
