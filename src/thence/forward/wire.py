"""A client over HTTP/1.1 that keeps some connections open to one origin.

It knows the one thing that forwarding needs and general clients hide: whether a byte of a request may have reached the
other side. Before that every failure is `Unavailable`, afterwards `OutcomeUnknown`. Nothing is sent again here, no
redirect is followed, and an answer's body is kept up to a limit and otherwise dropped.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from thence.core.errors import ConfigError, Unavailable
from thence.forward.connection import ANSWER_BYTES, Answer, Connection, Reads
from thence.forward.failure import Misconfigured

_IDLE = 8


class Origin(msgspec.Struct, frozen=True):
    """Where to connect: what stands in a URL before its path."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> Origin:
        """The origin of a URL."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise _bad_url(url, str(error)) from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise _bad_url(url, "it does not begin with http:// or https:// and a host")
        if parts.username is not None:
            raise _bad_url(
                url.replace(parts.netloc.rpartition("@")[0], "..."), "a password has no place in it"
            )
        if any(character <= " " or character > "~" for character in url):
            raise _bad_url(url, "it holds a blank or a character that must be percent-encoded")
        return cls(parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80))

    @property
    def authority(self) -> str:
        """What the Host header says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = {"http": 80, "https": 443}[self.scheme]
        return host if self.port == usual else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"


class Tls(msgspec.Struct, frozen=True):
    """Whom to trust, and who we are. Without files: the system's authorities, and no certificate of ours."""

    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None

    def context(self) -> ssl.SSLContext:
        """The files, loaded."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate_file is not None:
                context.load_cert_chain(self.certificate_file, self.key_file)
        except OSError as error:
            raise ConfigError(
                "forward.tls_files",
                f"a certificate or key cannot be loaded: {error}",
                advice="Check that ca_file, certificate_file and key_file are readable and in PEM format.",
            ) from error
        context.set_alpn_protocols(["http/1.1"])
        return context


class Timeouts(msgspec.Struct, frozen=True):
    """How long to wait for a connection, and for an answer after that."""

    connect_seconds: float = 5.0
    answer_seconds: float = 30.0


class Client:
    """Connections to one origin. Each request has a connection to itself while it lasts."""

    def __init__(self, origin: Origin, *, tls: Tls | None = None, timeouts: Timeouts | None = None) -> None:
        self.origin = origin
        self._timeouts = timeouts or Timeouts()
        self._context = (tls or Tls()).context() if origin.scheme == "https" else None
        self._idle: list[Connection] = []

    async def exchange(
        self, head: bytes, body: bytes = b"", *, max_answer_bytes: int = ANSWER_BYTES, reads: Reads = "some"
    ) -> Answer:
        """Send a request, and wait for its answer. `head` ends with an empty line."""
        connection = await self._connection()
        try:
            seconds = self._timeouts.answer_seconds
            answer = await connection.exchange(head, body, seconds, max_answer_bytes, reads)
        except BaseException:
            connection.abort()
            raise
        if connection.is_reusable and len(self._idle) < _IDLE:
            self._idle.append(connection)
        else:
            connection.abort()
        return answer

    async def close(self) -> None:
        """Let go of the connections. Closing twice does nothing."""
        while self._idle:
            self._idle.pop().abort()
        await asyncio.sleep(0)

    async def _connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if await connection.is_quiet():
                return connection
            connection.abort()
        return await self._connect()

    async def _connect(self) -> Connection:
        origin = self.origin
        try:
            async with asyncio.timeout(self._timeouts.connect_seconds):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(str(origin)), origin.host, origin.port, ssl=self._context
                )
        except ssl.SSLCertVerificationError as error:
            raise Misconfigured(
                "forward.certificate",
                f"the certificate of {origin} is not trusted: {error.verify_message}",
                advice="Name the authority that signed it in ca_file. Events wait meanwhile.",
            ) from error
        except TimeoutError as error:
            raise self._unreachable(f"no connection in {self._timeouts.connect_seconds:g} s") from error
        except (OSError, UnicodeError) as error:
            raise self._unreachable(str(error)) from error
        return connection

    def _unreachable(self, why: str) -> Unavailable:
        return Unavailable(
            "forward.unreachable",
            f"{self.origin} cannot be reached: {why}",
            advice="Events wait and go on by themselves when it is back.",
        )


def _bad_url(url: str, why: str) -> ConfigError:
    return ConfigError(
        "forward.url", f"{url!r} cannot be used: {why}", advice="Write it as https://host[:port]/path."
    )
