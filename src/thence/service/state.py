"""The state directory: one owner at a time, one format, checked for space before anything else is written.

The owner holds a lock of the kernel, so a crash leaves nothing to clean up. `format.json` says which layout the
directory has; one made by a newer thence is left untouched.
"""

from __future__ import annotations

import errno
import json
from pathlib import Path
from types import TracebackType
from typing import Self

from thence.core.errors import ConfigError, Rejected, ThenceError, Unavailable
from thence.disk import durable
from thence.disk.claim import Claim, Taken

FORMAT = 1


class StateDirectory:
    """Everything that thence keeps on this machine. Claimed for as long as the `with` block lasts."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._claimed: Claim | None = None

    def __enter__(self) -> Self:
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._claim()
            self._check_format()
            self._check_space()
        except OSError as error:
            self.release()
            raise _translated(error, self.path) from error
        except ThenceError:
            self.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Let the next owner in."""
        if self._claimed is not None:
            self._claimed.release()

    def _claim(self) -> None:
        try:
            self._claimed = Claim(self.path)
        except Taken as taken:
            raise Unavailable(
                "state.owned",
                f"the state directory {self.path} belongs to a running thence (process {taken.pid})",
                advice="Stop that one, or give this one a directory of its own with --state.",
            ) from None

    def _check_format(self) -> None:
        mark = self.path / "format.json"
        if mark.exists():
            found = _format_in(mark)
            if found > FORMAT:
                raise ConfigError(
                    "state.newer",
                    f"{self.path} was written by a newer thence (format {found}; this one knows {FORMAT})",
                    advice="Use that version, or another directory with --state.",
                )
            return
        durable.write(mark, json.dumps({"format": FORMAT}).encode())

    def _check_space(self) -> None:
        # A full disk is better found here than half way through making a database.
        probe = self.path / ".space"
        try:
            durable.write(probe, b"\0" * (1 << 20))
        finally:
            probe.unlink(missing_ok=True)


def _format_in(mark: Path) -> int:
    try:
        return int(json.loads(mark.read_bytes())["format"])
    except (ValueError, KeyError, TypeError) as error:
        raise Rejected(
            "state.damaged",
            f"{mark} does not say which format the directory has",
            advice='If this thence made the directory, write {"format": 1} into that file.',
        ) from error


def _translated(error: OSError, path: Path) -> ThenceError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Unavailable(
            "state.full", f"no space left for {path}", advice="Free some space or choose another --state."
        )
    return ConfigError(
        "state.unwritable",
        f"{error.filename or path}: {error.strerror}",
        advice="Choose a directory that this user may write with --state, or correct its permissions.",
    )
