"""Ends a server when this process dies without having stopped it, even by `kill -9`.

A tiny shell waits for the end of a pipe that only this process holds. The server is our child, so its
process id stays its own until we have waited for it; therefore the guardian is dismissed before that.
"""

from __future__ import annotations

import subprocess


class Guardian:
    """Stands by one process until it is dismissed."""

    def __init__(self, pid: int) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", f"read nothing; kill -9 {int(pid)}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )

    def dismiss(self) -> None:
        """Stand by no longer. The server is not touched."""
        self._shell.kill()
        self._shell.wait()
        if self._shell.stdin is not None:
            self._shell.stdin.close()
