"""Writes events as lines of JSON: to a file, synced before they count as delivered, or to the standard output.

An event is one line. One that holds line breaks is written with them taken out, which in JSON stand only between
tokens; one that is no JSON is refused. A torn last line, which a crash may leave, is cut off when the file is opened.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from thence.core.errors import ConfigError, OutcomeUnknown, Unavailable
from thence.core.event import Event
from thence.core.ports import Sent

_TAIL_BYTES = 1 << 16
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class FileBackend:
    """A `Backend` on a file that it alone writes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        except OSError as error:
            raise ConfigError(
                "forward.file",
                f"{path} cannot be opened: {error.strerror}",
                advice="Name a file in a directory that exists and may be written to.",
            ) from error
        self._is_torn = True

    async def send(self, events: Sequence[Event]) -> Sent:
        """See `Backend.send`."""
        lines, refusal = _lines(events)
        if lines:
            try:
                self._append(b"".join(lines))
            except OSError as error:
                raise self._translated(error) from error
        return Sent(len(lines), refusal)

    async def close(self) -> None:
        """See `Backend.close`."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _append(self, content: bytes) -> None:
        if self._is_torn:
            _cut_torn_line(self._file)
        end = os.fstat(self._file).st_size
        self._is_torn = True
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(self._file, rest) :]
            os.fdatasync(self._file)
        except OSError as error:
            if error.errno in _FULL:
                os.ftruncate(self._file, end)
            raise
        self._is_torn = False

    def _translated(self, error: OSError) -> Unavailable | OutcomeUnknown:
        if error.errno in _FULL:
            return Unavailable(
                "forward.file_full",
                f"{self._path} cannot grow: {error.strerror}",
                advice="Free some space; events wait and go on by themselves.",
            )
        return OutcomeUnknown(
            "forward.file_broken",
            f"{self._path} cannot be written: {error.strerror}",
            advice="Look at the disk; events are written again, so that some may stand there twice.",
        )


class StreamBackend:
    """A `Backend` on the standard output: delivered is what the operating system took."""

    async def send(self, events: Sequence[Event]) -> Sent:
        """See `Backend.send`."""
        lines, refusal = _lines(events)
        try:
            sys.stdout.buffer.write(b"".join(lines))
            sys.stdout.buffer.flush()
        except (OSError, ValueError) as error:
            raise OutcomeUnknown(
                "forward.stdout",
                f"the standard output cannot be written: {error}",
                advice="Whoever read it has gone; start again with a reader.",
            ) from error
        return Sent(len(lines), refusal)

    async def close(self) -> None:
        """See `Backend.close`."""


def _lines(events: Sequence[Event]) -> tuple[list[bytes], str | None]:
    lines: list[bytes] = []
    for event in events:
        payload = event.payload
        if b"\n" in payload or b"\r" in payload:
            try:
                payload = msgspec.json.format(payload, indent=-1)
            except msgspec.MsgspecError as error:
                return lines, f"it has more than one line and is no JSON: {error}"
        lines.append(payload + b"\n")
    return lines, None


def _cut_torn_line(file: int) -> None:
    end = os.fstat(file).st_size
    at = end
    while at > 0:
        begin = max(0, at - _TAIL_BYTES)
        newline = os.pread(file, at - begin, begin).rfind(b"\n")
        if newline >= 0:
            at = begin + newline + 1
            break
        at = begin
    if at < end:
        os.ftruncate(file, at)
