"""A small process that outlives thence and then stops PostgreSQL.

It waits on a pipe whose other end only thence holds. Each line names the postmaster to guard, an empty one none. The
end of the pipe means that thence is gone, however it went. Before each signal the guardian makes sure that the pid
is still a process that works in the data directory, so it never hits a process that got the same pid later.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import IO

SCRIPT = r"""
trap '' HUP INT TERM
while read -r pid; do guarded=$pid; done
guarded() {
  [ -n "$guarded" ] || return 1
  if [ -d /proc/self ]; then [ "$(readlink "/proc/$guarded/cwd")" = "$data" ]
  else ps -ww -p "$guarded" -o command= | grep -qF -- "$data"; fi
}
data=$1
for signal in INT QUIT KILL; do
  guarded || exit 0
  kill -s "$signal" "$guarded"
  left=15
  while guarded && [ "$left" -gt 0 ]; do sleep 1; left=$((left - 1)); done
done
"""


class Guardian:
    """Guards one data directory from the first `guard` to `close`."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._child: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Start it, before there is anything to guard: so no postmaster is ever unguarded for long."""
        if self._child is None or self._child.poll() is not None:
            self.close()
            self._child = self._spawn()

    def guard(self, pid: int) -> None:
        """Name the postmaster."""
        self.prepare()
        self._write(b"%d\n" % pid)

    def forget(self) -> None:
        """The postmaster is gone, its pid may belong to anybody."""
        self._write(b"\n")

    def close(self) -> None:
        """End it without harm to anybody."""
        if self._child is not None:
            self.forget()
            self._stdin(self._child).close()
            self._child.wait()
            self._child = None

    def _spawn(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["/bin/sh", "-c", SCRIPT, "thence-guardian", str(self._data)],
            cwd="/",
            env={"PATH": os.defpath},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )

    def _write(self, line: bytes) -> None:
        try:
            if self._child is not None:
                self._stdin(self._child).write(line)
        except BrokenPipeError:
            return  # somebody ended it; the next `guard` starts another

    @staticmethod
    def _stdin(child: subprocess.Popen[bytes]) -> IO[bytes]:
        if child.stdin is None:
            raise ValueError("the guardian was started without a pipe")
        return child.stdin
