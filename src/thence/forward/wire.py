"""One HTTP/1.1 connection, and a client that keeps some of them open for one origin.

It knows the one thing that forwarding needs and general clients hide: whether a byte of a request may have reached the
other side. Before that every failure is `Unavailable`, afterwards `OutcomeUnknown`. Nothing is sent again here, no
redirect is followed, and an answer's body is kept up to a limit and otherwise dropped.
"""

from __future__ import annotations

import asyncio
import select
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import httptools
import msgspec

from thence.core.errors import ConfigError, OutcomeUnknown, Unavailable
from thence.forward.failure import Misconfigured

_IDLE = 8
_FIRST_FINAL = 200
_ANSWER_BYTES = 64 << 10


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


class Answer(msgspec.Struct, frozen=True):
    """What came back. Header names are lower case; `body` may be cut off."""

    status: int
    headers: dict[str, str]
    body: bytes


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
        self._idle: list[_Connection] = []

    async def exchange(
        self, head: bytes, body: bytes = b"", *, max_answer_bytes: int = _ANSWER_BYTES
    ) -> Answer:
        """Send a request, and wait for its answer. `head` ends with an empty line."""
        connection = await self._connection()
        try:
            answer = await connection.exchange(head, body, self._timeouts.answer_seconds, max_answer_bytes)
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

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if await connection.is_quiet():
                return connection
            connection.abort()
        return await self._connect()

    async def _connect(self) -> _Connection:
        origin = self.origin
        try:
            async with asyncio.timeout(self._timeouts.connect_seconds):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: _Connection(str(origin)), origin.host, origin.port, ssl=self._context
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


class _Connection(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self, where: str) -> None:
        self.is_reusable = True
        self._where = where
        self._waiting: asyncio.Future[Answer] | None = None
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._room = 0
        self._status = 0
        self._is_sized = False

    async def exchange(self, head: bytes, body: bytes, seconds: float, max_answer_bytes: int) -> Answer:
        """Send, and wait."""
        self._begin(max_answer_bytes)
        self._waiting = asyncio.get_running_loop().create_future()
        if len(body) < _ANSWER_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)
        try:
            async with asyncio.timeout(seconds):
                return await self._waiting
        except TimeoutError as error:
            raise self._unknown(f"no answer in {seconds:g} s") from error
        finally:
            self._waiting = None

    async def is_quiet(self) -> bool:
        """Whether the other side has neither closed it nor said something unasked."""
        if self._transport.is_closing():
            return False
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        if poll.poll(0):
            # TLS speaks by itself now and then; the event loop has to look at it once.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return self.is_reusable and not self._transport.is_closing()

    def abort(self) -> None:
        """Close now."""
        self.is_reusable = False
        self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - create_connection makes no other
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._waiting is None:
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"it does not answer in HTTP ({error})")

    def eof_received(self) -> None:
        self.is_reusable = False
        if self._waiting is not None and self._status and not self._is_sized:
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_reusable = False
        self._fail(str(exc) if exc is not None else "it closed the connection instead of an answer")

    # Callbacks of the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        key = name.decode("latin-1").lower()
        self._is_sized = self._is_sized or key in ("content-length", "transfer-encoding")
        self._headers[key] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        room = self._room
        if room > 0:
            self._body.append(body[:room])
            self._room = room - len(body)

    def on_message_complete(self) -> None:
        if self._status < _FIRST_FINAL:
            self._headers.clear()
            self._is_sized = False
            return
        unsent = self._transport.get_write_buffer_size()
        self.is_reusable = self.is_reusable and self._parser.should_keep_alive() and not unsent
        self._finish()

    # Inside

    def _begin(self, room: int) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers = {}
        self._body = []
        self._room = room
        self._status = 0
        self._is_sized = False

    def _finish(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(Answer(self._status, self._headers, b"".join(self._body)))

    def _fail(self, why: str) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(self._unknown(why))

    def _unknown(self, why: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            "forward.answer_lost",
            f"{self._where} may have taken the events: {why}",
            advice="They are sent again with the same ids; a destination can tell by them.",
        )


def _bad_url(url: str, why: str) -> ConfigError:
    return ConfigError(
        "forward.url", f"{url!r} cannot be used: {why}", advice="Write it as https://host[:port]/path."
    )
