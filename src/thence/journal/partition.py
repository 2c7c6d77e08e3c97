"""One partition: an append-only file named after its first position.

It begins with two copies of a head (when it was made, and the salt of its checksums), so that one damaged byte leaves
the other. Frames follow. What an earlier attempt wrote and nobody was told about may stand behind the sound frames;
positions from that of the next partition on are void here, whatever the bytes say.
"""

from __future__ import annotations

import errno
import os
import secrets
import struct
from bisect import bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import msgspec

from thence.core.event import Event, Record
from thence.disk import durable
from thence.journal import frame

_MARK = b"thence journal\x00\x01"
_COPY = struct.Struct("<16sQqII")
_COPY_BYTES = 64
HEAD_BYTES = 2 * _COPY_BYTES
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_STRIDE_BYTES = 1 << 18
_VECTORS = 512
_MOST_READERS = 64


class Head(msgspec.Struct, frozen=True):
    """What a partition says about itself."""

    first: int
    created_at: datetime
    salt: int

    def encode(self) -> bytes:
        """Two copies."""
        microseconds = (self.created_at - _EPOCH) // _MICROSECOND
        content = _COPY.pack(_MARK, self.first, microseconds, self.salt, 0)[:-4]
        copy = content + crc32(content).to_bytes(4, "little")
        return copy.ljust(_COPY_BYTES, b"\0") * 2

    @classmethod
    def decode(cls, data: bytes) -> Head | None:
        """Whichever copy is sound."""
        for at in (0, _COPY_BYTES):
            copy = data[at : at + _COPY.size]
            if len(copy) == _COPY.size and crc32(copy[:-4]).to_bytes(4, "little") == copy[-4:]:
                _, first, microseconds, salt, _ = _COPY.unpack(copy)
                return cls(first, _EPOCH + microseconds * _MICROSECOND, salt)
        return None


class Span(NamedTuple):
    """A sound frame in a file."""

    position: int
    start: int
    end: int


class Partition:
    """A partition that is open for reading, and for appending as long as it is the last one."""

    _file = -1

    def __init__(self, path: Path, head: Head, end: int, size_bytes: int) -> None:
        self.path = path
        self.head = head
        self.last = head.first - 1
        self.size_bytes = size_bytes
        self.is_usable = True
        self._end = end
        self._index: list[tuple[int, int]] = []
        self._readers: dict[int, int] = {}
        self._file = os.open(path, os.O_RDWR)

    @property
    def first(self) -> int:
        """The position of its first record."""
        return self.head.first

    @property
    def count(self) -> int:
        """How many positions it spans."""
        return self.last - self.first + 1

    @classmethod
    def create(cls, directory: Path, first: int, now: datetime) -> Partition:
        """Make the next partition. It counts from the moment at which its name is on disk."""
        path = directory / name_of(first)
        head = Head(first, now, secrets.randbits(32))
        durable.write(path, head.encode())
        return cls(path, head, HEAD_BYTES, HEAD_BYTES)

    @classmethod
    def open(cls, path: Path, *, before: int | None) -> Partition | None:
        """Open one that is there; None when no copy of its head is sound.

        `before` is the first position of the next partition. Only the last partition has none, and is read through
        once to find its end.
        """
        with path.open("rb") as file:
            head = Head.decode(file.read(HEAD_BYTES))
            size_bytes = os.fstat(file.fileno()).st_size
        if head is None:
            return None
        partition = cls(path, head, size_bytes, size_bytes)
        if before is not None:
            partition.last = before - 1
        else:
            partition._end = HEAD_BYTES
            for start, end, body in frame.scan(partition._pread, HEAD_BYTES, size_bytes, head.salt):
                partition._note(Span(frame.position_in(body), start, end))
        return partition

    @property
    def is_clean(self) -> bool:
        """Whether nothing stands behind the last sound frame."""
        return self._end == self.size_bytes

    def append(self, events: Sequence[Event]) -> range:
        """Write and sync. After an error the end is where it was, and the caller goes on in another partition."""
        if not os.fstat(self._file).st_nlink:
            raise FileNotFoundError(errno.ENOENT, "it was deleted while in use", str(self.path))
        first = self.last + 1
        parts: list[bytes] = []
        spans: list[Span] = []
        end = self._end
        for position, event in enumerate(events, first):
            head, payload = frame.encode(event, position, self.head.salt)
            parts += (head, payload)
            start, end = end, end + len(head) + len(payload)
            spans.append(Span(position, start, end))
        _write_all(self._file, parts, self._end)
        os.fdatasync(self._file)
        for span in spans:
            self._note(span)
        self.size_bytes = self._end
        return range(first, self.last + 1)

    def read(self, position: int, limit: int, max_bytes: int) -> list[Record]:
        """Sound records from a position on, in order."""
        found: list[Record] = []
        taken, end = 0, 0
        for at, close, body in frame.scan(self._pread, self._offset_of(position), self._end, self.head.salt):
            where = frame.position_in(body)
            if where > self.last or (found and taken + close - at > max_bytes):
                break
            if where < position:
                continue
            found.append(frame.decode(body))
            taken, end = taken + close - at, close
            if len(found) >= limit:
                break
        if found:
            self._remember_reader(found[-1].position + 1, end)
        return found

    def give_up(self) -> None:
        """After a failed append: nothing more is written here."""
        self.is_usable = False
        self.size_bytes = max(os.fstat(self._file).st_size, self._end)

    def close(self) -> None:
        """Let go of the file. Closing twice does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        # A partition that was forgotten stays open for those who still read it, and closes with the last of them.
        self.close()

    def _note(self, span: Span) -> None:
        # Readers look at `last` first, so it is set last.
        self._remember(span.position, span.start)
        self._end = span.end
        self.last = max(self.last, span.position)

    def _remember(self, position: int, offset: int) -> None:
        if not self._index or (
            offset - self._index[-1][1] >= _STRIDE_BYTES and position > self._index[-1][0]
        ):
            self._index.append((position, offset))

    def _remember_reader(self, position: int, offset: int) -> None:
        """Where a reader left off, so that it need not look for its place again."""
        if len(self._readers) >= _MOST_READERS:
            self._readers = {}
        self._readers[position] = offset

    def _offset_of(self, position: int) -> int:
        known = self._readers.get(position)
        if known is not None:
            return known
        at = bisect_right(self._index, position, key=lambda entry: entry[0])
        return self._index[at - 1][1] if at else HEAD_BYTES

    def _pread(self, size: int, offset: int) -> bytes:
        return os.pread(self._file, size, offset)


def name_of(first: int) -> str:
    """The file name of the partition that begins at a position; names sort as positions do."""
    return f"partition-{first:019}.log"


def first_in(path: Path) -> int:
    """The position in a file name."""
    return int(path.stem.rpartition("-")[2])


def _write_all(file: int, parts: list[bytes], offset: int) -> None:
    for at in range(0, len(parts), _VECTORS):
        some = parts[at : at + _VECTORS]
        size = sum(map(len, some))
        written = os.pwritev(file, some, offset)
        if written < size:
            # A full disk or a signal cut it short; what is left is written plainly, so that its error is seen.
            rest = memoryview(b"".join(some))[written:]
            while rest:
                done = os.pwrite(file, rest, offset + size - len(rest))
                rest = rest[done:]
        offset += size
