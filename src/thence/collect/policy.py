"""How strictly events are checked: the level, and the exceptions for single facets.

An exception names a facet by its path without indices, such as `run/facets/parent`, `dataset/facets/dataSource`,
`inputs/inputFacets/subset`: dataset facets are the same wherever the dataset stands. A path that cannot exist is
refused when the configuration is read.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

import msgspec

from thence.core.errors import ConfigError


class Level(StrEnum):
    """How strictly an event is checked; docs/reference/validation.md has the table."""

    STRICT = "strict"
    SPEC = "spec"
    LENIENT = "lenient"


Exceptions = Mapping[str, Level | Literal["off"]]

PLACES = {
    "run/facets": "run",
    "job/facets": "job",
    "dataset/facets": "dataset",
    "inputs/inputFacets": "input",
    "outputs/outputFacets": "output",
}


class Policy(msgspec.Struct, frozen=True):
    """The level, and what is different for the facet (place, key)."""

    level: Level
    exceptions: Mapping[tuple[str, str], str]

    @property
    def formats(self) -> bool:
        """Whether every format is checked."""
        return self.level is Level.STRICT

    def formats_of(self, place: str, key: str) -> bool:
        """Whether every format is checked inside this facet."""
        return self.exceptions.get((place, key), self.level) == Level.STRICT

    def is_off(self, place: str, key: str) -> bool:
        """Whether this facet is not looked at."""
        return self.exceptions.get((place, key)) == "off"

    def keys(self, place: str) -> list[str]:
        """The facets of this place that have an exception."""
        return [key for at, key in self.exceptions if at == place]


def read(level: Level | str, exceptions: Exceptions) -> Policy:
    """Check what the operator wrote."""
    return Policy(
        level=Level(_known("level", level, list(Level))),
        exceptions={
            _place_and_key(path): _known(f"exception for {path}", word, [*Level, "off"])
            for path, word in exceptions.items()
        },
    )


def _known(what: str, word: str, words: list[str]) -> str:
    if word not in words:
        raise ConfigError(
            "collect.validate_level",
            f"{word!r} is no validation {what}.",
            advice=f"Write one of: {', '.join(words)}.",
        )
    return str(word)


def _place_and_key(path: str) -> tuple[str, str]:
    # Keys of custom facets may contain anything; the first two parts of the path are ours.
    parts = path.split("/", 2)
    prefix = "/".join(parts[:2])
    if len(parts) == 3 and parts[2] and prefix in PLACES:  # noqa: PLR2004 - place, map, key
        return PLACES[prefix], parts[2]
    near = difflib.get_close_matches(prefix, PLACES, n=1)
    raise ConfigError(
        "collect.validate_path",
        f"{path!r} is no path of a facet.",
        advice=f"Write {near[0] if near else 'run/facets'}/KEY; the places are: {', '.join(PLACES)}.",
    )
