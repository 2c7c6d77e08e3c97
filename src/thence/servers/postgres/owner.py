"""One owner for a directory: a lock of the kernel, which ends with the process that holds it.

The lock file names the owner's pid for people; the pid decides nothing.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from thence.core.errors import ConfigError


class Owner:
    """The right to use a directory, from construction to `release`."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError as error:
            pid = os.pread(self._descriptor, 32, 0).decode().strip()
            os.close(self._descriptor)
            raise ConfigError(
                "postgres.owned",
                f"{path.parent} is in use by the process with pid {pid}.",
                advice="Stop that process, or give this one a directory of its own.",
            ) from error
        except BaseException:
            os.close(self._descriptor)
            raise

    def release(self) -> None:
        """Let others have it. The file stays: removing it would let two owners lock two files."""
        os.close(self._descriptor)
