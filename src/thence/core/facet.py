"""A facet is a named piece of metadata about a dataset, a job or a run.

Facets are appended as they are received. Reading them merges first to last: a later facet of the same name replaces
the earlier one entirely, and one marked as deleted removes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec


class Owner(StrEnum):
    """What a facet describes. Input and output facets describe a dataset as one run used it."""

    RUN = "run"
    JOB = "job"
    DATASET = "dataset"
    INPUT = "input"
    OUTPUT = "output"


class Facet(msgspec.Struct, frozen=True):
    """One facet as one event carried it."""

    owner: Owner
    name: str
    content: Mapping[str, Any]
    event_time: datetime
    event_type: str | None = None


def merge(facets: Iterable[Facet]) -> dict[str, Mapping[str, Any]]:
    """The facets of one owner as they stand after all events, given in the order in which they were received."""
    merged: dict[str, Mapping[str, Any]] = {}
    for facet in facets:
        if facet.content.get("_deleted") is True:
            merged.pop(facet.name, None)
        else:
            merged[facet.name] = facet.content
    return merged
