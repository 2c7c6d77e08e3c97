"""Loss of power, simulated: what a directory would hold if everything that was not synced were lost or torn.

`PowerSupply` watches the syncs of this process. When the power fails, `wreckage` writes what a disk may hold then: of
each file the bytes at its last sync, with any of the later pages or none; of each directory the names at its last
sync, or the names now. It is stricter than most file systems, and it needs no privileges.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PAGE_BYTES = 4096


class PowerLost(BaseException):
    """The power has failed; nothing in the process goes on."""


class PowerSupply:
    """Watches the syncs below a directory, and fails at one of them.

    `fails_at` counts syncs from 1; None never fails. With `honest=False` a sync does nothing: a control that shows
    that a test would see the loss.
    """

    def __init__(
        self, root: Path, chance: random.Random, *, fails_at: int | None, honest: bool = True
    ) -> None:
        self.syncs = 0
        self._root = root
        self._chance = chance
        self._fails_at = fails_at
        self._honest = honest
        self._contents: dict[int, bytes] = {}
        self._names: dict[Path, dict[str, int]] = {}

    @contextmanager
    def on(self) -> Iterator[None]:
        """Watch this process while the block lasts."""
        whole = os.fsync, os.fdatasync
        os.fsync = os.fdatasync = self._sync  # type: ignore[assignment]
        try:
            yield
        finally:
            os.fsync, os.fdatasync = whole

    def wreckage(self, target: Path) -> None:
        """Write what is left into another directory."""
        target.mkdir()
        names = self._names.get(self._root, {})
        present = {path.name: path.stat().st_ino for path in self._root.iterdir() if path.is_file()}
        if self._chance.random() < 0.5:  # noqa: PLR2004 - a coin
            names = present
        by_inode = {path.stat().st_ino: path for path in self._root.iterdir()}
        for name, inode in names.items():
            path = by_inode.get(inode)
            now = path.read_bytes() if path is not None else self._contents.get(inode, b"")
            (target / name).write_bytes(self._torn(self._contents.get(inode, b""), now))

    def _sync(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if not path.is_relative_to(self._root):
            return
        self.syncs += 1
        # The power fails before the disk has it, or after, but always before the caller is told.
        fails, before = self.syncs == self._fails_at, self._chance.random() < 0.5  # noqa: PLR2004 - a coin
        if fails and before:
            raise PowerLost
        if self._honest:
            self._take(path)
        if fails:
            raise PowerLost

    def _take(self, path: Path) -> None:
        if path.is_dir():
            self._names[path] = {each.name: each.stat().st_ino for each in path.iterdir() if each.is_file()}
        else:
            self._contents[path.stat().st_ino] = path.read_bytes()

    def _torn(self, synced: bytes, now: bytes) -> bytes:
        """The synced bytes with any pages of the bytes now, and a length in between."""
        size = self._chance.choice((len(synced), len(now), max(len(synced), len(now) // 2)))
        pages = []
        for at in range(0, size, PAGE_BYTES):
            source = now if self._chance.random() < 0.5 else synced  # noqa: PLR2004 - a coin
            pages.append(source[at : at + PAGE_BYTES].ljust(min(PAGE_BYTES, size - at), b"\0"))
        return b"".join(pages)[:size]
