"""API keys: who may do what. Only hashes are kept, so that neither memory nor a settings file gives a key away.

A key is random and long, so one round of SHA-256 is enough, and looking up the hash tells an attacker nothing about
how close a guess was.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from enum import StrEnum
from hashlib import sha256

import msgspec

PREFIX = "sha256:"
_BEARER = "bearer "


class Role(StrEnum):
    """What a key is for. `admin` may do everything."""

    WRITE = "write"
    READ = "read"
    ADMIN = "admin"


class Key(msgspec.Struct, frozen=True):
    """One key: its name, its role, and the hash of the key itself, as `sha256:` and hex."""

    id: str
    hash: str
    role: Role = Role.WRITE


ANYBODY = Key("", "", Role.ADMIN)


class Keys:
    """The keys of one door. Without any, everybody may do everything: that is for loopback."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._by_hash = {key.hash: key for key in keys}

    def find(self, authorization: str, role: Role) -> Key | None:
        """The key in an Authorization header, if it is one of ours and may do this."""
        if not self._by_hash:
            return ANYBODY
        if authorization[: len(_BEARER)].lower() != _BEARER:
            return None
        key = self._by_hash.get(hash_of(authorization[len(_BEARER) :].strip()))
        return key if key is not None and key.role in (role, Role.ADMIN) else None


def generate() -> str:
    """A new key, to be shown once."""
    return secrets.token_urlsafe(32)


def hash_of(key: str) -> str:
    """What is kept of a key."""
    return PREFIX + sha256(key.encode()).hexdigest()
