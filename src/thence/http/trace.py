"""The W3C trace context of a request: kept when it makes sense, made otherwise.

The id of the trace under way stands in `trace_id` while a handler runs, and in the tasks and callbacks that it starts.
Ids need to differ, not to be secret, so they come from a fast generator that was seeded by the system.
"""

from __future__ import annotations

import random
import re
from contextvars import ContextVar

trace_id: ContextVar[str] = ContextVar("trace_id", default="")

_KNOWN = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}").fullmatch
_random_bits = random.Random().getrandbits  # noqa: S311 - see above


def kept_or_made(given: str | None) -> str:
    """The `traceparent` that a request goes by."""
    if given is not None and _KNOWN(given):
        return given
    digits = f"{_random_bits(192):048x}"
    return f"00-{digits[:32]}-{digits[32:]}-01"


def id_in(traceparent: str) -> str:
    """The id of the trace alone."""
    return traceparent[3:35]
