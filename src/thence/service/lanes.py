"""Where the journals and the failed events stand below the state directory, and what their settings mean."""

from __future__ import annotations

from pathlib import Path

from thence.collect import spec as specification
from thence.collect.policy import Exceptions, read
from thence.collect.schema import Schema, published
from thence.collect.validate import Validator
from thence.journal.letters.limits import LetterLimits
from thence.journal.limits import Limits
from thence.service.settings import LaneSettings, LetterSettings, LineageSettings

_HOUR_SECONDS = 3600


def journal_directory(state: Path, lane: str = "lineage") -> Path:
    """The journal of a lane: `lineage` or `events`."""
    return state / "journal" / lane


def letters_path(state: Path) -> Path:
    """The file of the failed events."""
    return state / "failed" / "failed.db"


def limits_of(settings: LaneSettings) -> Limits:
    """The limits of a journal."""
    age_hours = settings.max_age_hours
    return Limits(
        max_bytes=settings.max_bytes.size_bytes,
        max_age_seconds=age_hours * _HOUR_SECONDS if age_hours is not None else None,
        when_full=settings.when_full,
        partition_bytes=settings.partition.bytes.size_bytes,
        partition_age_seconds=settings.partition.age_hours * _HOUR_SECONDS,
    )


def letter_limits_of(settings: LetterSettings) -> LetterLimits:
    """The limits of the failed events that are kept."""
    age_hours = settings.max_age_hours
    return LetterLimits(
        max_bytes=settings.max_bytes.size_bytes,
        max_count=settings.max_count,
        max_age_seconds=age_hours * _HOUR_SECONDS if age_hours is not None else None,
    )


def validator_of(settings: LineageSettings) -> Validator:
    """The validator at the level and with the exceptions of the settings."""
    return Validator(settings.validate, _exceptions(settings))


def event_schemas_of(settings: LineageSettings, home: str) -> dict[str, Schema]:
    """What the validator takes, as JSON Schemas that refer to each other below `home`."""
    return published(specification.load(), read(settings.validate, _exceptions(settings)), home)


def _exceptions(settings: LineageSettings) -> Exceptions:
    # Other words are refused where they are read.
    return {path: "off" if word is False else str(word) for path, word in settings.validate_facets.items()}  # type: ignore[misc]
