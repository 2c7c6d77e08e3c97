"""Publishes events to an AMQP 0-9-1 exchange, one after the other, each confirmed by the broker before the next.

Messages are persistent and mandatory. One that no queue takes is returned: that is a refusal. One that the broker
does not confirm because a queue is full is tried again. Order is that of the exchange. Events in flight together
would be faster, and could overtake one that a full queue sent back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import aio_pika
import msgspec
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange
from aio_pika.exceptions import (
    AMQPConnectionError,
    AMQPError,
    AuthenticationError,
    ChannelInvalidStateError,
    ChannelNotFoundEntity,
    DeliveryError,
    ProbableAuthenticationError,
    PublishError,
)

from thence.core.errors import OutcomeUnknown, Unavailable
from thence.core.event import Event
from thence.core.ports import Sent
from thence.forward.failure import Busy, Misconfigured

_LOST = (AMQPError, ChannelInvalidStateError, OSError, RuntimeError)


class AmqpTarget(msgspec.Struct, frozen=True):
    """Where to. `url` may hold a password. `{event_id}` and `{source}` in `routing_key` become the event's own."""

    url: str
    exchange: str
    routing_key: str = ""
    connect_seconds: float = 10.0
    answer_seconds: float = 30.0

    def __repr__(self) -> str:
        return f"AmqpTarget(url={_shown(self.url)!r}, exchange={self.exchange!r})"

    __str__ = __repr__


class AmqpBackend:
    """A `Backend`. The exchange must be there already, with a queue that takes the events."""

    def __init__(self, target: AmqpTarget) -> None:
        self._target = target
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self._exchange: AbstractExchange | None = None

    async def send(self, events: Sequence[Event]) -> Sent:
        """See `Backend.send`."""
        if not events:
            return Sent(0)
        exchange = await self._ready()
        for delivered, event in enumerate(events):
            try:
                refusal = await self._publish(exchange, event)
            except (Unavailable, OutcomeUnknown):
                # The confirmed ones count; the next call meets the error again, with the failed event in front.
                if delivered:
                    return Sent(delivered)
                raise
            if refusal is not None:
                return Sent(delivered, refusal)
        return Sent(len(events))

    async def close(self) -> None:
        """See `Backend.close`."""
        await self._drop()

    async def _ready(self) -> AbstractExchange:
        """An exchange that answers: as long as nothing was published, a failure is definite."""
        if self._channel is not None and self._exchange is not None:
            try:
                async with asyncio.timeout(self._target.connect_seconds):
                    await self._channel.get_exchange(self._target.exchange)
            except (*_LOST, TimeoutError):
                await self._drop()
        if self._exchange is None:
            self._exchange = await self._connect()
        return self._exchange

    async def _connect(self) -> AbstractExchange:
        target = self._target
        try:
            async with asyncio.timeout(target.connect_seconds):
                self._connection = await aio_pika.connect(target.url)
                self._channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
                return await self._channel.get_exchange(target.exchange)
        except (AuthenticationError, ProbableAuthenticationError, ChannelNotFoundEntity) as error:
            await self._drop()
            raise Misconfigured(
                "forward.amqp_wrong",
                f"{_shown(target.url)} does not let us publish to {target.exchange!r}: {error}",
                advice="Make the exchange, or correct the user, password or virtual host. Events wait meanwhile.",
            ) from error
        except (AMQPConnectionError, *_LOST, TimeoutError) as error:
            await self._drop()
            raise Unavailable(
                "forward.amqp_unreachable",
                f"{_shown(target.url)} cannot be reached: {_why(error)}",
                advice="Events wait and go on by themselves when it is back.",
            ) from error

    async def _publish(self, exchange: AbstractExchange, event: Event) -> str | None:
        identifier = str(event.id)
        key = self._target.routing_key.replace("{event_id}", identifier).replace("{source}", event.source)
        try:
            async with asyncio.timeout(self._target.answer_seconds):
                await exchange.publish(_message(event), key, mandatory=True)
        except PublishError as error:
            return f"no queue takes it ({error})"
        except DeliveryError as error:
            raise Busy(
                "forward.amqp_full",
                f"a queue behind {self._target.exchange!r} takes no more events",
                advice="Let its consumers catch up, or raise its limit. Events wait meanwhile.",
            ) from error
        except (*_LOST, TimeoutError) as error:
            await self._drop()
            raise OutcomeUnknown(
                "forward.amqp_answer_lost",
                f"{_shown(self._target.url)} may have taken event {identifier}: {_why(error)}",
                advice="It is sent again with the same message id; consumers can tell by that.",
            ) from error
        except asyncio.CancelledError:
            # The channel may be in the middle of a message.
            await self._drop()
            raise
        return None

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._channel = self._exchange = None
        if connection is not None:
            with suppress(*_LOST, TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(self._target.connect_seconds):
                    await connection.close()


def _message(event: Event) -> aio_pika.Message:
    return aio_pika.Message(
        event.payload,
        content_type="application/json",
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        message_id=str(event.id),
        timestamp=event.received_at,
        headers={"traceparent": event.traceparent} if event.traceparent is not None else None,
    )


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__


def _shown(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
