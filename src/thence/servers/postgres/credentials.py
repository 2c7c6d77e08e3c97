"""The passwords of one server, made once.

They are on disk before the cluster that knows them, so that no crash leaves a cluster that nobody can enter.
A lost file is made anew, and the cluster is told.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

import msgspec

from thence.core.errors import ConfigError
from thence.disk import durable


class Credentials(msgspec.Struct, frozen=True):
    """One password for each role."""

    superuser: str
    store: str
    warehouse: str

    def __repr__(self) -> str:
        return "Credentials(...)"

    def parameters(self) -> Mapping[str, str]:
        """The passwords by the names that the SQL files use."""
        return msgspec.structs.asdict(self)


def generate() -> Credentials:
    """Passwords that nobody has seen; letters, digits, `-` and `_`."""
    return Credentials(*(secrets.token_urlsafe(24) for _ in range(3)))


def read(path: Path) -> Credentials | None:
    """The passwords of the last time, or nothing."""
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Credentials)
    except msgspec.MsgspecError as error:
        raise ConfigError(
            "postgres.credentials",
            f"{path} is damaged: {error}",
            advice="Put it back from a copy, or move it away: the next start then sets new passwords.",
        ) from error


def write(path: Path, credentials: Credentials) -> None:
    """Keep the passwords, readable by the owner only."""
    durable.write(path, msgspec.json.encode(credentials), mode=0o600)
