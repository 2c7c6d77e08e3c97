"""Posts failed events to a URL, as lines of JSON. Best effort: what does not arrive is counted and not sent again."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from email.message import Message
from typing import IO

from thence.collect.handlers.readable import line_of
from thence.core.errors import ConfigError, Unavailable
from thence.core.ports import DeadLetter

_SUCCESS = range(200, 300)


class HttpHandler:
    """The handler `http`: one POST for each batch."""

    name = "http"

    def __init__(
        self, url: str, *, timeout_seconds: float = 5.0, headers: Mapping[str, str] | None = None
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(
                "failed.handler_url",
                f"{url!r} is no address that failed events can be posted to",
                advice="Write http://… or https://… into collect.lineage.failed.http.url.",
            )
        self._url = url
        self._timeout_seconds = timeout_seconds
        self._headers = {"content-type": "application/x-ndjson", **(headers or {})}
        self._opener = urllib.request.build_opener(_NoRedirect)

    def handle(self, letters: Sequence[DeadLetter]) -> None:
        """See FailedEventHandler."""
        body = b"".join(map(line_of, letters))
        request = urllib.request.Request(self._url, body, self._headers, method="POST")  # noqa: S310 - checked above
        try:
            with self._opener.open(request, timeout=self._timeout_seconds) as answer:
                status = answer.status
        except urllib.error.HTTPError as error:
            status = error.code
            error.close()
        except (OSError, http.client.HTTPException) as error:
            raise _unavailable(str(error)) from error
        if status not in _SUCCESS:
            raise _unavailable(f"it answered {status}")

    def close(self) -> None:
        """Each request has a connection of its own."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(  # noqa: PLR0917 - the signature is urllib's
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        """A redirected POST would arrive as a GET without its body."""


def _unavailable(reason: str) -> Unavailable:
    return Unavailable(
        "failed.handler_http",
        f"failed events could not be posted: {reason}",
        advice="Look at collect.lineage.failed.http; the events are in the other handlers.",
    )
