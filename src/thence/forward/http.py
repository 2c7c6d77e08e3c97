"""Sends events by HTTP: one POST for each, or many at once where the destination has a batch endpoint.

| the destination says | means |
|---|---|
| 2xx | delivered |
| nothing: refused, no such host, no TLS | not sent: `Unavailable` |
| nothing: time-out or reset after sending | `OutcomeUnknown` |
| 408, 425, 429, 5xx | `Unavailable`, not before `Retry-After` |
| 401, 403, 404, 405, 407, 3xx | wrong key or address: an alarm, tried again slowly, no event is to blame |
| any other 4xx | this event is refused |

Single POSTs go one after the other, since several on their way could overtake each other.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit
from uuid import UUID

import msgspec

from thence.core.clock import Clock, SystemClock
from thence.core.errors import ConfigError, OutcomeUnknown, Unavailable
from thence.core.event import Event
from thence.core.ports import Sent
from thence.forward import verdict
from thence.forward.connection import Answer
from thence.forward.wire import Client, Origin, Timeouts, Tls

_JSON = "application/json"
Signer = Callable[[str, Mapping[str, str], bytes], Mapping[str, str]]
"""From path, headers and body as they are sent to headers that are added."""


class HttpTarget(msgspec.Struct, frozen=True):
    """Where to and how. Secrets stand here and are shown nowhere.

    `{event_id}` in `url` or in a header's value becomes the event's id, which some destinations de-duplicate by.
    A bearer token may stand in a file that something else renews; it is read again when the destination refuses it.
    """

    url: str
    batch_url: str | None = None
    bearer: str | None = None
    bearer_file: Path | None = None
    headers: Mapping[str, str] = {}
    gzip_above_bytes: int | None = 16 << 10
    gzip_level: int = 1
    timeouts: Timeouts = Timeouts()
    tls: Tls = Tls()

    def __repr__(self) -> str:
        return f"HttpTarget(url={self.url!r})"

    __str__ = __repr__


class HttpBackend:
    """A `Backend`. `sign` adds headers that depend on the body as it is sent."""

    def __init__(self, target: HttpTarget, *, sign: Signer | None = None, clock: Clock | None = None) -> None:
        self._target = target
        self._sign = sign
        self._clock = clock or SystemClock()
        self._client = Client(Origin.of(target.url), tls=target.tls, timeouts=target.timeouts)
        self._paths = path_of(target.url), path_of(target.batch_url or target.url)
        if target.batch_url is not None and Origin.of(target.batch_url) != self._client.origin:
            raise ConfigError(
                "forward.url",
                f"{target.batch_url!r} leads to another host than {target.url!r}",
                advice="Both endpoints of a destination must be at the same host and port.",
            )
        self._fixed = checked(dict(target.headers))
        self._bearer = bearer_of(target)
        self._taken: set[UUID] = set()

    async def send(self, events: Sequence[Event]) -> Sent:
        """See `Backend.send`. With a batch endpoint, events behind a refused one may arrive before it."""
        if not events:
            return Sent(0)
        if self._target.batch_url is not None:
            return await self._send_together(events)
        return await self._send_singly(events)

    async def close(self) -> None:
        """See `Backend.close`."""
        await self._client.close()

    async def _send_singly(self, events: Sequence[Event]) -> Sent:
        for delivered, event in enumerate(events):
            try:
                refusal = verdict.refusal_in(await self._post(self._paths[0], event.payload, event))
            except (Unavailable, OutcomeUnknown):
                # The confirmed ones count; the next call meets the error again, with the failed event in front.
                if delivered:
                    return Sent(delivered)
                raise
            if refusal is not None:
                return Sent(delivered, refusal)
        return Sent(len(events))

    async def _send_together(self, events: Sequence[Event]) -> Sent:
        # What was taken from an earlier batch, behind one that failed, is not sent a second time.
        fresh = [event for event in events if event.id not in self._taken]
        if not fresh:
            return Sent(len(events))
        body = b"[" + b",".join([event.payload for event in fresh]) + b"]"
        answer = await self._post(self._paths[1], body, None)
        if verdict.refusal_in(answer) is not None and len(events) > 1:
            # The batch as such was refused. Halves find the event that is to blame, if it is only one.
            return await self._send_together(events[: len(events) // 2])
        judged = verdict.verdicts_in(answer, len(fresh))
        failed = {fresh[index].id: failure for index, failure in judged.items()}
        if not failed:
            self._taken.clear()
            return Sent(len(events))
        self._taken.update(event.id for event in fresh if event.id not in failed)
        first = next(index for index, event in enumerate(events) if event.id in failed)
        failure = failed[events[first].id]
        if failure.is_retriable and not first:
            raise verdict.busy(
                f"{self._client.origin} could not take an event of a batch: {failure.reason}", None
            )
        return Sent(first, None if failure.is_retriable else failure.reason)

    async def _post(self, path: str, body: bytes, event: Event | None) -> Answer:
        answer = await self._client.exchange(*self._request(path, body, event))
        fresh = self._bearer
        if answer.status == verdict.UNAUTHORIZED and self._target.bearer_file is not None:
            with suppress(ConfigError):  # then the old one is refused, which says enough
                fresh = bearer_of(self._target)
            if fresh != self._bearer:
                self._bearer = fresh
                answer = await self._client.exchange(*self._request(path, body, event))
        verdict.check(answer, self._client.origin, self._clock.now())
        return answer

    def _request(self, path: str, body: bytes, event: Event | None) -> tuple[bytes, bytes]:
        headers = {"Host": self._client.origin.authority, "Content-Type": _JSON, "User-Agent": "thence"}
        above = self._target.gzip_above_bytes
        if above is not None and len(body) > above:
            body = _gzip(body, self._target.gzip_level)
            headers["Content-Encoding"] = "gzip"
        headers["Content-Length"] = str(len(body))
        if self._bearer is not None:
            headers["Authorization"] = f"Bearer {self._bearer}"
        headers.update(self._fixed)
        if event is not None:
            path, headers = _filled(path, headers, event)
        if self._sign is not None:
            headers.update(self._sign(path, headers, body))
        lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        return "\r\n".join(lines).encode("latin-1"), body


def bearer_of(target: HttpTarget) -> str | None:
    """The token to send now; one in a file is read anew."""
    file = target.bearer_file
    if file is None:
        bearer = target.bearer
    else:
        try:
            bearer = file.read_text("utf-8").strip()
        except OSError as error:
            raise ConfigError(
                "forward.bearer_file",
                f"the token in {file} cannot be read: {error.strerror}",
                advice="Let something write the token there, or give the token itself.",
            ) from error
    return checked({"Authorization": bearer})["Authorization"] if bearer is not None else None


def _filled(path: str, headers: dict[str, str], event: Event) -> tuple[str, dict[str, str]]:
    identifier = str(event.id)
    if event.traceparent is not None:
        headers["traceparent"] = event.traceparent
    filled = {name: value.replace("{event_id}", identifier) for name, value in headers.items()}
    return path.replace("{event_id}", identifier), filled


def path_of(url: str) -> str:
    """What stands in a URL behind its origin."""
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def checked(headers: dict[str, str]) -> dict[str, str]:
    """Headers that an operator wrote, if they can be sent."""
    for name, value in headers.items():
        if not name or not value.isprintable() or not value.isascii() or not _is_token(name):
            raise ConfigError(
                "forward.header",
                f"the header {name!r} cannot be sent: its name or value holds a character that HTTP forbids",
                advice="Take out line breaks, for instance at the end of a key, and characters outside of ASCII.",
            )
    return headers


def _is_token(name: str) -> bool:
    return name.isascii() and all(character.isalnum() or character in "!#$%&'*+-.^_`|~" for character in name)


def _gzip(body: bytes, level: int) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()
