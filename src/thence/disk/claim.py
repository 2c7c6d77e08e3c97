"""One owner for a directory. The kernel holds the lock, so a crash leaves nothing to clean up."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class Taken(Exception):
    """The directory has an owner. `pid` is what that one wrote down, or 0."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"owned by process {pid}")
        self.pid = pid


class Claim:
    """The right to write into a directory, from making this object until `release` or the end of the process."""

    def __init__(self, directory: Path) -> None:
        self._descriptor = os.open(directory / "owner.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, str(os.getpid()).encode(), 0)
        except BlockingIOError:
            note = os.pread(self._descriptor, 20, 0)
            self.release()
            raise Taken(int(note) if note.strip().isdigit() else 0) from None
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        """Let the next owner in. Releasing twice does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
