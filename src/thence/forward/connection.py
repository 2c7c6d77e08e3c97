"""One HTTP/1.1 connection to a destination, and what came back over it.

It serves one request at a time. Whatever goes wrong here goes wrong after a byte may have been sent: `OutcomeUnknown`.
"""

from __future__ import annotations

import asyncio
import select
from typing import Literal, cast

import httptools
import msgspec

from thence.core.errors import OutcomeUnknown

ANSWER_BYTES = 64 << 10
_FIRST_FINAL = 200

Reads = Literal["some", "all", "head"]
"""What is past the limit of a body is dropped; reading ends there, and the answer is cut; there is no body."""


class Answer(msgspec.Struct, frozen=True):
    """What came back. Header names are lower case; `body` may be cut off. `fields` are all headers as they came."""

    status: int
    headers: dict[str, str]
    body: bytes
    fields: tuple[tuple[str, str], ...] = ()
    is_cut: bool = False


class Connection(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self, where: str) -> None:
        self.is_reusable = True
        self._where = where
        self._waiting: asyncio.Future[Answer] | None = None
        self._headers: dict[str, str] = {}
        self._fields: list[tuple[str, str]] = []
        self._body: list[bytes] = []
        self._reads: Reads = "some"
        self._room = 0
        self._status = 0
        self._is_sized = False

    async def exchange(
        self, head: bytes, body: bytes, seconds: float, max_answer_bytes: int, reads: Reads
    ) -> Answer:
        """Send, and wait."""
        self._begin(max_answer_bytes, reads)
        self._waiting = asyncio.get_running_loop().create_future()
        if len(body) < ANSWER_BYTES:
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
        """It is open."""
        # Those of uvloop are transports without being of that class.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Part of an answer."""
        if self._waiting is None:
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"it does not answer in HTTP ({error})")

    def eof_received(self) -> None:
        """The other side sends nothing more."""
        self.is_reusable = False
        if self._waiting is not None and self._status and not self._is_sized:
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended."""
        self.is_reusable = False
        self._fail(str(exc) if exc is not None else "it closed the connection instead of an answer")

    # Callbacks of the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header of the answer."""
        key = name.decode("latin-1").lower()
        self._is_sized = self._is_sized or key in ("content-length", "transfer-encoding")
        text = self._headers[key] = value.decode("latin-1")
        self._fields.append((key, text))

    def on_headers_complete(self) -> None:
        """All headers are there."""
        self._status = self._parser.get_status_code()
        if self._reads == "head" and self._status >= _FIRST_FINAL:
            self._stop()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        room = self._room
        if room > 0:
            self._body.append(body[:room])
        self._room = room - len(body)
        if self._room < 0 and self._reads == "all":
            self._stop()

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if self._status < _FIRST_FINAL:
            self._headers.clear()
            self._fields.clear()
            self._is_sized = False
            return
        unsent = self._transport.get_write_buffer_size()
        self.is_reusable = self.is_reusable and self._parser.should_keep_alive() and not unsent
        self._finish()

    # Inside

    def _begin(self, room: int, reads: Reads) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers = {}
        self._fields = []
        self._body = []
        self._room = room
        self._reads = reads
        self._status = 0
        self._is_sized = False

    def _stop(self) -> None:
        # The parser waits for more, so this connection serves no other request.
        self.is_reusable = False
        self._finish()

    def _finish(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            body, fields = b"".join(self._body), tuple(self._fields)
            self._waiting.set_result(Answer(self._status, self._headers, body, fields, self._room < 0))

    def _fail(self, why: str) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(self._unknown(why))

    def _unknown(self, why: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            "forward.answer_lost",
            f"{self._where} may have taken what was sent: {why}",
            advice="They are sent again with the same ids; a destination can tell by them.",
        )
