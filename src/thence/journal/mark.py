"""Where one cursor stands: a small file with two slots that are written in turn, in place.

A slot holds its number, the name, the counts, and a checksum. A crash while one is written leaves the other, which is
one step older: records are delivered again, none is passed over. The position is the sum of the counts, so that the
two cannot disagree. The file is text; `cat` shows it.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from urllib.parse import quote
from zlib import crc32

import msgspec

from thence.core.errors import Rejected
from thence.core.tally import Settled
from thence.disk import durable
from thence.journal.trouble import translating

_SLOT_BYTES = 1024
_LONGEST = _SLOT_BYTES - 10
_SUFFIX = ".cursor"
# A cursor knows how many records met each fate and not which; when it moves back, counts shrink in this order.
_TAKEN_BACK = ("delivered", "filtered", "parked", "skipped", "expired")


class Slot(msgspec.Struct, frozen=True):
    """What stands in one slot."""

    number: int
    name: str
    settled: Settled


class Mark:
    """The file of one cursor, open for writing."""

    def __init__(self, path: Path, slot: Slot) -> None:
        self.path = path
        self.slot = slot
        self._file = os.open(path, os.O_RDWR)
        self._moving = threading.Lock()

    @property
    def settled(self) -> Settled:
        """What became of all records up to its position."""
        return self.slot.settled

    @classmethod
    def create(cls, directory: Path, name: str, settled: Settled) -> Mark:
        """Make the file."""
        path = directory / (quote(name, safe="")[:120] + f"-{crc32(name.encode()):08x}{_SUFFIX}")
        slot = Slot(0, name, settled)
        durable.write(path, _encode(slot) + _encode(slot))
        return cls(path, slot)

    @classmethod
    def open(cls, path: Path) -> Mark | None:
        """Open a file that is there; None when neither slot is sound."""
        slot = read(path)
        return cls(path, slot) if slot is not None else None

    def live(self) -> Settled:
        """The counts, if the cursor is still there."""
        if self._file < 0:
            raise Rejected(
                "journal.cursor_dropped",
                f"the cursor {self.slot.name!r} was dropped, or its journal closed",
                advice="Stop the reader that still uses it, or open the cursor anew.",
            )
        return self.slot.settled

    def settle(self, seen: int, settled: Settled) -> None:
        """Move past records that a reader saw from `seen` on."""
        with self._moving:
            before = self.live()
            # What expired under the reader's hands and is settled all the same is not counted twice.
            rescued = min(settled.total, before.total - seen)
            self._move(msgspec.structs.replace(before, expired=before.expired - rescued) + settled)

    def expire_up_to(self, position: int) -> None:
        """Move past what is about to be forgotten, unless it was passed already."""
        with self._moving:
            behind = position - self.slot.settled.total
            if behind > 0:
                self._move(self.slot.settled + Settled(expired=behind))

    def skip_gap(self, position: int, found: int) -> bool:
        """Move from a record that cannot be read to the next that can; False if something moved meanwhile."""
        with self._moving:
            if self.live().total + 1 != position:
                return False
            self._move(self.slot.settled + Settled(expired=found - position))
            return True

    def rewind(self, position: int) -> int:
        """Move back to right after a position: what lay beyond it, waits again. Returns how many records that are."""
        with self._moving:
            settled: dict[str, int] = msgspec.structs.asdict(self.live())
            count = again = max(sum(settled.values()) - position, 0)
            for kind in _TAKEN_BACK:
                taken = min(settled[kind], again)
                settled[kind] -= taken
                again -= taken
            self._move(Settled(**settled))
            return count

    def delete(self) -> None:
        """Forget the cursor durably."""
        with self._moving:
            self.path.unlink()
            durable.sync_directory(self.path.parent)
            self.close()

    def close(self) -> None:
        """Let go of the file. Closing twice does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _move(self, settled: Settled) -> None:
        if settled == self.slot.settled:
            return
        slot = Slot(self.slot.number + 1, self.slot.name, settled)
        with translating(self.path.parent):
            os.pwrite(self._file, _encode(slot), slot.number % 2 * _SLOT_BYTES)
            os.fdatasync(self._file)
        self.slot = slot


def read(path: Path) -> Slot | None:
    """The newer of the sound slots."""
    content = path.read_bytes()
    slots = [_decode(content[at : at + _SLOT_BYTES]) for at in (0, _SLOT_BYTES)]
    return max((slot for slot in slots if slot is not None), key=lambda slot: slot.number, default=None)


def paths_in(directory: Path) -> list[Path]:
    """The files of all cursors."""
    return sorted(directory.glob(f"*{_SUFFIX}"))


def _encode(slot: Slot) -> bytes:
    content = msgspec.json.encode(slot)
    if len(content) > _LONGEST:
        raise Rejected(
            "journal.cursor_name",
            f"the cursor name {slot.name[:40]!r}... is too long",
            advice="Use a shorter one.",
        )
    return (b"%08x %s" % (crc32(content), content)).ljust(_SLOT_BYTES - 1) + b"\n"


def _decode(data: bytes) -> Slot | None:
    checksum, _, content = data.rstrip().partition(b" ")
    if checksum != b"%08x" % crc32(content):
        return None
    return msgspec.json.decode(content, type=Slot)
