"""Turns errors of handlers into answers. What was raised on purpose is shown, anything else is logged and not shown."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from thence.core.errors import (
    ConfigError,
    InvalidEvent,
    InvariantBroken,
    OutcomeUnknown,
    Rejected,
    ThenceError,
    Unavailable,
)
from thence.http.exchange import Refused, Response, refusal

_log = logging.getLogger(__name__)

RETRY_SOON = (("retry-after", "1"),)

_STATUSES: dict[type[ThenceError], int] = {
    InvalidEvent: 400,
    Rejected: 422,
    Unavailable: 503,
    OutcomeUnknown: 500,
    ConfigError: 500,
    InvariantBroken: 500,
}


def answer_to(error: BaseException, route: str) -> Response:
    """The answer to a request whose handler failed."""
    if isinstance(error, Refused):
        return error.response
    if isinstance(error, ThenceError):
        return _said(error, route)
    _log.error("a request failed", exc_info=error, extra={"action": "request_failed", "route": route})
    return refusal(
        500, "http.internal", "something went wrong here", "The log has the trace id of this answer."
    )


def dropped() -> Response:
    """The answer to a request that was given up by whoever worked on it."""
    return again(
        refusal(503, "http.dropped", "the request was given up before it was done", "Send it again.")
    )


def again(response: Response) -> Response:
    """Invite the client to try again soon: every OpenLineage client understands 503 with Retry-After."""
    return msgspec.structs.replace(response, headers=(*response.headers, *RETRY_SOON))


def _said(error: ThenceError, route: str) -> Response:
    status = next((each for kind, each in _STATUSES.items() if isinstance(error, kind)), 500)
    if status == 500:  # noqa: PLR2004
        _log.error(str(error), exc_info=error, extra={"action": "request_failed", "route": route})
    more: dict[str, Any] = {}
    if isinstance(error, InvalidEvent) and error.violations:
        more["violations"] = error.violations
    response = refusal(status, error.code, error.message, error.advice, **more)
    return again(response) if status == 503 else response  # noqa: PLR2004
