"""The ports in memory, for tests of whatever uses them.

Each keeps its durable state on a `Disk`, an object that outlives it: open another one on the same disk and a crash, a
restart or a second process has been simulated. All are safe to share between threads, and pass the contract suites.
"""

from __future__ import annotations

from thence.testing.memory.backend import RecordingBackend
from thence.testing.memory.deadletters import MemoryDeadLetters
from thence.testing.memory.disk import Disk, PowerFailure
from thence.testing.memory.journal import MemoryJournal
from thence.testing.memory.lock import MemoryLock
from thence.testing.memory.offsets import MemoryOffsetLog
from thence.testing.memory.warehouse import MemoryWarehouse

__all__ = [
    "Disk",
    "MemoryDeadLetters",
    "MemoryJournal",
    "MemoryLock",
    "MemoryOffsetLog",
    "MemoryWarehouse",
    "PowerFailure",
    "RecordingBackend",
]
