"""What each setting allows by itself and all of them together do not: found before anything is started."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from thence.core.errors import ConfigError
from thence.service.section import Secret
from thence.service.settings import Settings

_SMALLEST_JOURNAL_BYTES = 1 << 14


def contradictions(settings: Settings) -> Iterator[ConfigError]:
    """Everything that cannot work, in no particular order."""
    if settings.store.dsn is not None:
        yield from _dsn(settings.store.dsn)
    if settings.journal.lineage.max_bytes.size_bytes < _SMALLEST_JOURNAL_BYTES:
        yield _wrong("journal.lineage.max_bytes", "a journal of less than 16 KiB holds no events")
    names = [key.id for key in settings.collect.lineage.keys]
    if len(names) != len(set(names)):
        yield _wrong("collect.lineage.keys", "two keys have the same id")
    if any(not key.key.reveal() for key in settings.collect.lineage.keys):
        yield _wrong("collect.lineage.keys", "a key is empty")


def _dsn(dsn: Secret) -> Iterator[ConfigError]:
    try:
        parts = urlsplit(dsn.reveal())
        well = parts.scheme in ("postgresql", "postgres") and (parts.port or 1) > 0
    except ValueError:
        well = False
    if not well:
        yield _wrong(
            "store.dsn", "it is no address of the form postgresql://user:password@host:port/database"
        )


def _wrong(key: str, why: str) -> ConfigError:
    return ConfigError(
        "config.contradiction", f"{key}: {why}", advice="docs/reference/settings.md says what stands there."
    )
