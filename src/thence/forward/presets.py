"""The destinations that OpenLineage users have, as data: address, authentication, and what each takes.

Each entry says where it is documented and what is only assumed. Everything can be overridden: a preset only fills in
what a destination's own settings leave open.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from thence.core.errors import ConfigError
from thence.forward.http import HttpTarget
from thence.forward.rules import KINDS, Kind, Rules, Takes

_RUNS: frozenset[Kind] = frozenset(("RunEvent",))
Authentication = Literal["none", "bearer", "aws_sigv4"]


class Preset(msgspec.Struct, frozen=True):
    """One kind of destination. `{names}` in paths are filled from the destination's settings."""

    path: str
    authentication: Authentication = "none"
    batch_path: str | None = None
    headers: Mapping[str, str] = {}
    takes: Takes = Takes()
    takes_gzip: bool = False
    is_idempotent: bool = False
    """Whether it tells a repetition by an id that we send."""


PRESETS: Mapping[str, Preset] = {
    # The specification's own paths. The batch endpoint is part of it, and few backends have it: name it to use it.
    "plain": Preset("/api/v1/lineage"),
    # Marquez 0.51.1 takes all three kinds and has no key check and no batch endpoint (read in its source and seen).
    "marquez": Preset("/api/v1/lineage"),
    # OpenMetadata's reference (2.0): RunEvents, a JWT; by default it works on COMPLETE events only and ignores others.
    # Its batch endpoint wants {"events": [...]}, which is not the specification's, so it is not used.
    "openmetadata": Preset("/api/v1/openlineage/lineage", "bearer", takes=Takes(kinds=_RUNS)),
    # DataHub's guide, in its set-up of transports; another place of the same page says /api/v2/lineage. That it takes
    # no DatasetEvent and no JobEvent is assumed: the guide shows RunEvents only.
    "datahub": Preset("/openapi/openlineage/api/v1/lineage", "bearer", takes=Takes(kinds=_RUNS)),
    # Reference of PostLineageEvent: run events only, at most 300,000 bytes, idempotent by the header Client-Token.
    "datazone": Preset(
        "/v2/domains/{domain}/lineage/events",
        "aws_sigv4",
        headers={"Client-Token": "{event_id}"},
        takes=Takes(kinds=_RUNS, max_bytes=300_000),
        is_idempotent=True,
    ),
    # Reference of processOpenLineageRunEvent: idempotent by requestId; no DatasetEvent, no JobEvent, at most 5 MB.
    # Whether MB means 10^6 is not said; the smaller meaning is safe. Tokens end after an hour: use bearer_file.
    "dataplex": Preset(
        "/v1/projects/{project}/locations/{location}:processOpenLineageRunEvent?requestId={event_id}",
        "bearer",
        takes=Takes(kinds=_RUNS, max_bytes=5_000_000),
        is_idempotent=True,
    ),
    # Snowflake's guide on external lineage. The type of token stands in X-Snowflake-Authorization-Token-Type where it
    # cannot be told from the token itself: add it to headers. That only run events are taken is assumed.
    "snowflake": Preset("/api/v2/lineage/external-lineage", "bearer", takes=Takes(kinds=_RUNS)),
}


def target(name: str, url: str, given: HttpTarget | None = None, **names: str) -> HttpTarget:
    """The preset's path behind a base URL, and its headers under those that are given."""
    preset = find(name)
    given = given or HttpTarget(url)
    base = url.rstrip("/")
    batch_path = preset.batch_path
    return msgspec.structs.replace(
        given,
        url=base + _filled(name, preset.path, names),
        batch_url=base + _filled(name, batch_path, names) if batch_path is not None else given.batch_url,
        headers={**preset.headers, **given.headers},
        gzip_above_bytes=given.gzip_above_bytes if preset.takes_gzip else None,
    )


def rules(name: str, given: Rules | None = None) -> Rules:
    """The given rules, with what the preset's destination takes where they leave that open."""
    given = given or Rules()
    return given if given.takes != Takes() else msgspec.structs.replace(given, takes=find(name).takes)


def find(name: str) -> Preset:
    """A preset by its name."""
    try:
        return PRESETS[name]
    except KeyError:
        raise ConfigError(
            "forward.preset",
            f"there is no preset {name!r}",
            advice=f"There are: {', '.join(PRESETS)}.",
        ) from None


def _filled(name: str, path: str, names: Mapping[str, str]) -> str:
    for key, value in names.items():
        path = path.replace(f"{{{key}}}", value)
    left = path.replace("{event_id}", "")
    if "{" in left:
        missing = left[left.index("{") + 1 : left.index("}")]
        raise ConfigError(
            "forward.preset",
            f"the preset {name!r} needs a {missing}",
            advice=f"Add {missing} to the settings of this destination.",
        )
    return path


__all__ = ["KINDS", "PRESETS", "Authentication", "Preset", "find", "rules", "target"]
