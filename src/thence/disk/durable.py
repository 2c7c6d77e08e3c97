"""Small files that are there after a power loss, whole, or not at all.

A new content is written beside the old one, synced and renamed; then the directory is synced, because a rename is only
a promise until that. A crash leaves the old file or the new one.
"""

from __future__ import annotations

import os
from pathlib import Path


def write(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file by one with this content."""
    beside = path.with_name(f"{path.name}.tmp")
    beside.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        rename(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def rename(old: Path, new: Path) -> None:
    """Rename inside one directory."""
    old.replace(new)
    sync_directory(new.parent)


def sync_directory(path: Path) -> None:
    """Bring the names in a directory to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
