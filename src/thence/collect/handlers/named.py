"""Finds a user's own handler: by the entry point group `thence.failed_handlers`, or by `module:attribute`.

What is found is called with the options from the settings and gives the handler.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

from thence.collect.lane import FailedEventHandler
from thence.core.errors import ConfigError

GROUP = "thence.failed_handlers"
BUILT_IN = ("journal", "file", "log", "http")


def make(name: str, options: Mapping[str, Any]) -> FailedEventHandler:
    """The handler that a name in `collect.lineage.failed.to` means, if it is not one of ours."""
    factory = _imported(name) if ":" in name else _entry_point(name)
    try:
        handler: FailedEventHandler = factory(**options)
    except Exception as error:  # boundary: somebody else's code; what it says is the operator's to read
        raise _broken(name, error) from error
    missing = [each for each in ("name", "handle", "close") if not hasattr(handler, each)]
    if missing:
        raise _broken(name, TypeError(f"it has no {' and no '.join(missing)}"))
    return handler


def _entry_point(name: str) -> Callable[..., Any]:
    found = {point.name: point for point in metadata.entry_points(group=GROUP)}
    if name not in found:
        known = [*BUILT_IN, *found]
        near = difflib.get_close_matches(name, known, n=1)
        raise ConfigError(
            "failed.handler_unknown",
            f"there is no failed-event handler {name!r}",
            advice=f"Did you mean {near[0]!r}?"
            if near
            else f"Known: {', '.join(known)}; or module:attribute.",
        )
    try:
        loaded: Callable[..., Any] = found[name].load()
    except Exception as error:  # boundary: somebody else's code
        raise _broken(name, error) from error
    return loaded


def _imported(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # boundary: somebody else's code
        raise _broken(name, error) from error
    return found  # type: ignore[no-any-return]


def _broken(name: str, error: Exception) -> ConfigError:
    return ConfigError(
        "failed.handler_broken",
        f"the failed-event handler {name!r} cannot be made: {type(error).__name__}: {error}",
        advice="Correct it, or take it out of collect.lineage.failed.to.",
    )
