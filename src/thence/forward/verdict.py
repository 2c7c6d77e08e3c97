"""What an answer means for the events that were sent: the table in `thence.forward.http`, in code."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

from thence.core.errors import OutcomeUnknown
from thence.forward.connection import Answer
from thence.forward.failure import Busy, Misconfigured
from thence.forward.wire import Origin

UNAUTHORIZED = 401
_OK, _REDIRECT, _BAD, _BROKEN = 200, 300, 400, 500
_LATER = frozenset((408, 425, 429))
_WRONG_KEY = frozenset((UNAUTHORIZED, 403, 407))
_WRONG_ADDRESS = frozenset((404, 405))
_EXCERPT = 300


def check(answer: Answer, origin: Origin, now: datetime) -> None:
    """Raise for answers that say nothing about the events."""
    status = answer.status
    if status in _LATER or status >= _BROKEN:
        raise busy(f"{origin} answers {_told(answer)}", retry_after(answer.headers, now))
    if status in _WRONG_KEY:
        raise Misconfigured(
            "forward.key_refused",
            f"{origin} refuses our key: {_told(answer)}",
            advice="Correct the key or token of this destination. Events wait meanwhile.",
        )
    if status in _WRONG_ADDRESS or _REDIRECT <= status < _BAD:
        elsewhere = f" (it points to {answer.headers['location']!r})" if "location" in answer.headers else ""
        raise Misconfigured(
            "forward.wrong_address",
            f"{origin} takes no events at this address: {_told(answer)}{elsewhere}",
            advice="Correct the URL of this destination; redirects are not followed. Events wait meanwhile.",
        )


def refusal_in(answer: Answer) -> str | None:
    """Why the one event was refused, if it was."""
    return None if answer.status < _REDIRECT else _told(answer)


def busy(message: str, seconds: float | None) -> Busy:
    """The destination is there and cannot take events now."""
    advice = "Events wait and go on by themselves. If it lasts, look at the destination's own log."
    return Busy("forward.busy", message, advice=advice).after(seconds)


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds, from either form of the header."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdecimal():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())


class Failure(msgspec.Struct, frozen=True):
    """One event of a batch that was not taken."""

    reason: str
    is_retriable: bool


class _Failed(msgspec.Struct):
    index: int
    reason: str = ""
    retriable: bool = False


class _Judged(msgspec.Struct):
    failed_events: list[_Failed] = []


_decode = msgspec.json.Decoder(_Judged).decode


def verdicts_in(answer: Answer, count: int) -> dict[int, Failure]:
    """The events of a batch that were not taken, by their place in it."""
    if answer.status >= _BAD:
        return dict.fromkeys(range(count), Failure(_told(answer), is_retriable=False))
    if answer.status != _OK or not answer.body.strip():
        return {}
    try:
        judged = _decode(answer.body)
    except msgspec.MsgspecError as error:
        raise OutcomeUnknown(
            "forward.batch_answer",
            f"the answer to a batch cannot be read: {_told(answer)}",
            advice="Check that batch_url is an OpenLineage batch endpoint, or leave it out.",
        ) from error
    failed = judged.failed_events
    return {
        each.index: Failure(each.reason[:_EXCERPT] or "no reason given", each.retriable)
        for each in failed
        if 0 <= each.index < count
    }


def _told(answer: Answer) -> str:
    text = " ".join(answer.body.decode("utf-8", "replace").split())
    return f"HTTP {answer.status}" + (f": {text[:_EXCERPT]}" if text else "")
