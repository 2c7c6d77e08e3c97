"""Times as people write them on a command line: `2h` ago, or an ISO date."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from thence.core.clock import Clock, SystemClock
from thence.core.errors import ConfigError

_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def moment(text: str | None, clock: Clock | None = None) -> datetime | None:
    """The time that a text means; one without a zone is in UTC."""
    if text is None:
        return None
    now = (clock or SystemClock()).now()
    try:
        if ago := _AGO.fullmatch(text.strip()):
            return now - timedelta(**{_UNITS[ago[2]]: float(ago[1])})
        at = datetime.fromisoformat(text.strip())
        return at.replace(tzinfo=now.tzinfo) if at.tzinfo is None else at
    except (ValueError, OverflowError):
        raise ConfigError(
            "cli.time", f"{text!r} is no time", advice="Write 2h, 30m, 3d or 2026-03-04T05:06:07Z."
        ) from None


def ago(seconds: float) -> str:
    """A span of time in two units."""
    minutes, rest = divmod(int(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (rest, "s")]
    first = next((index for index, (number, _) in enumerate(parts) if number), 3)
    return " ".join(f"{number}{unit}" for number, unit in parts[first : first + 2])
