"""What the disk says, in our words: it did not happen, and may later."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from thence.core.errors import Unavailable


@contextmanager
def translating(directory: Path) -> Iterator[None]:
    """What the disk says inside this block comes out in our words."""
    try:
        yield
    except OSError as error:
        raise translated(error, directory) from error


def translated(error: OSError, directory: Path) -> Unavailable:
    """The error that a caller of the journal sees."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Unavailable(
            "journal.disk_full",
            f"no space left for the journal in {directory}",
            advice="Free some space; it goes on by itself.",
        )
    return Unavailable(
        "journal.disk",
        f"the disk refuses {error.filename or directory}: {error.strerror}",
        advice="Look at the disk; what was acknowledged before is safe.",
    )
