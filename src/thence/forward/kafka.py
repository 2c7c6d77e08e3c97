"""Sends events to a Kafka topic, through an idempotent producer that waits for all in-sync replicas.

Order holds for each key, since a key means a partition: by default the job, so that all runs of a job stay in order.
Events count as delivered when the broker has said so for each. An event that the broker refuses lets none behind it
pass. When a send ends with an open outcome, the producer is thrown away: nothing of it arrives later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from confluent_kafka import KafkaError, KafkaException, Producer

from thence.core.errors import ConfigError, OutcomeUnknown, ThenceError, Unavailable
from thence.core.event import Event
from thence.core.ports import Sent
from thence.forward.failure import Misconfigured

_POLL_SECONDS = 0.1
_GRACE_SECONDS = 5.0
_OURS = frozenset(
    ("bootstrap.servers", "acks", "enable.idempotence", "enable.gapless.guarantee", "delivery.timeout.ms")
)
_REFUSED = frozenset(
    (
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
        KafkaError.RECORD_LIST_TOO_LARGE,
    )
)
_WRONG = frozenset(
    (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - the library's public name for its own codes
        KafkaError._AUTHENTICATION,  # noqa: SLF001
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
    )
)


class KafkaTarget(msgspec.Struct, frozen=True):
    """Where to. `options` are librdkafka's own, for security protocols and the like; secrets may stand there."""

    servers: str
    topic: str
    key: Literal["job", "run"] = "job"
    connect_seconds: float = 10.0
    answer_seconds: float = 30.0
    options: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"KafkaTarget(servers={self.servers!r}, topic={self.topic!r})"

    __str__ = __repr__


class KafkaBackend:
    """A `Backend`. The topic must be there already."""

    def __init__(self, target: KafkaTarget) -> None:
        taken = sorted(_OURS & target.options.keys())
        if taken:
            raise ConfigError(
                "forward.kafka_options",
                f"{', '.join(taken)} cannot be set for a destination",
                advice="These decide about loss and order, so thence sets them itself.",
            )
        self._target = target
        self._producer: Producer | None = None

    async def send(self, events: Sequence[Event]) -> Sent:
        """See `Backend.send`."""
        if not events:
            return Sent(0)
        producer = self._producer or self._make()
        await asyncio.to_thread(self._look, producer)
        reports: list[KafkaError | bool | None] = [False] * len(events)
        count = 0
        refusal = None
        try:
            for event in events:
                refusal = self._produce(producer, event, reports, count)
                if refusal is not None:
                    break
                count += 1
            await self._gather(producer, reports, count)
        except BaseException:
            self._abandon()
            raise
        problem = reports[0] if count else None
        if isinstance(problem, KafkaError) and problem.code() in _REFUSED and count > 1:
            # The broker refuses messages by the packet. Halves find the one that is to blame.
            self._abandon()
            return await self.send(events[: count // 2])
        return self._judge(reports[:count], refusal)

    async def close(self) -> None:
        """See `Backend.close`."""
        self._abandon()

    def _make(self) -> Producer:
        target = self._target
        settings: dict[str, Any] = {
            "linger.ms": 5,
            "compression.type": "lz4",
            **target.options,
            "bootstrap.servers": target.servers,
            "acks": "all",
            "enable.idempotence": True,
            "enable.gapless.guarantee": True,
            "delivery.timeout.ms": round(target.answer_seconds * 1000),
            "error_cb": _heard,
        }
        try:
            self._producer = Producer(settings, logger=_quiet())
        except KafkaException as error:
            raise ConfigError(
                "forward.kafka_options",
                f"Kafka's client does not take its options: {error.args[0].str()}",
                advice="Correct the options of this destination.",
            ) from error
        return self._producer

    def _look(self, producer: Producer) -> None:
        """Whether the topic can be reached: as long as nothing was produced, a failure is definite."""
        target = self._target
        try:
            found = producer.list_topics(target.topic, timeout=target.connect_seconds)
        except KafkaException as error:
            raise self._translated(error.args[0], nothing_sent=True) from error
        problem = found.topics[target.topic].error
        if problem is not None:
            raise self._translated(problem, nothing_sent=True)

    def _produce(
        self, producer: Producer, event: Event, reports: list[KafkaError | bool | None], index: int
    ) -> str | None:
        def report(error: KafkaError | None, _: object) -> None:
            reports[index] = error

        headers: list[tuple[str, str | bytes | None]] = [("thence-event", str(event.id).encode())]
        if event.traceparent is not None:
            headers.append(("traceparent", event.traceparent.encode()))
        key = key_of(event, self._target.key)
        while True:
            try:
                producer.produce(self._target.topic, event.payload, key, headers=headers, on_delivery=report)
            except BufferError:
                producer.poll(_POLL_SECONDS)
            except KafkaException as error:
                problem = error.args[0]
                if problem.code() in _REFUSED:
                    return f"Kafka refuses it: {problem.str()}"
                raise self._translated(problem, nothing_sent=False) from error
            else:
                return None

    async def _gather(self, producer: Producer, reports: list[KafkaError | bool | None], count: int) -> None:
        """Wait for all reports. Once one failed, the rest comes at once or never."""
        left = round((self._target.answer_seconds + _GRACE_SECONDS) / _POLL_SECONDS)
        while False in reports[:count] and left:
            left -= 1
            try:
                await asyncio.to_thread(producer.poll, _POLL_SECONDS)
            except KafkaException:
                # A fatal error; the reports say which events it concerns.
                left = min(left, 10)
        for index, report in enumerate(reports[:count]):
            if report is False:
                reports[index] = KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001

    def _judge(self, reports: Sequence[KafkaError | bool | None], refusal: str | None) -> Sent:
        for delivered, problem in enumerate(reports):
            if isinstance(problem, KafkaError):
                self._abandon()
                if problem.code() in _REFUSED and len(reports) == 1:
                    return Sent(0, f"Kafka refuses it: {problem.str()}")
                if delivered:
                    return Sent(delivered)
                raise self._translated(problem, nothing_sent=False)
        return Sent(len(reports), refusal)

    def _abandon(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

    def _translated(self, problem: KafkaError, *, nothing_sent: bool) -> ThenceError:
        where, why = f"{self._target.topic!r} at {self._target.servers}", problem.str()
        if problem.code() in _WRONG:
            return Misconfigured(
                "forward.kafka_wrong",
                f"the topic {where} cannot be used: {why}",
                advice="Make the topic, or correct its name or our rights. Events wait meanwhile.",
            )
        if nothing_sent:
            return Unavailable(
                "forward.kafka_unreachable",
                f"the topic {where} cannot be reached: {why}",
                advice="Events wait and go on by themselves when it is back.",
            )
        return OutcomeUnknown(
            "forward.kafka_answer_lost",
            f"the topic {where} may have taken the events: {why}",
            advice="They are sent again; consumers can tell by the header thence-event.",
        )


class _Job(msgspec.Struct):
    namespace: str = ""
    name: str = ""


class _Run(msgspec.Struct):
    runId: str = ""  # noqa: N815 - as the specification spells it


class _Keys(msgspec.Struct):
    run: _Run | None = None
    job: _Job | None = None
    dataset: _Job | None = None


_decode = msgspec.json.Decoder(_Keys).decode


def key_of(event: Event, by: Literal["job", "run"]) -> bytes:
    """What decides about the partition. Events that have neither share one."""
    try:
        keys = _decode(event.payload)
    except (msgspec.MsgspecError, RecursionError):
        return b""
    if by == "run" and keys.run is not None:
        return keys.run.runId.encode()
    named = keys.job or keys.dataset
    return f"{named.namespace}/{named.name}".encode() if named is not None else b""


def _heard(error: KafkaError) -> None:
    """Errors that concern events come with their reports; what librdkafka says besides is of no use to anybody."""


def _quiet() -> Any:
    import logging

    logger = logging.getLogger(f"{__name__}.client")
    logger.setLevel(logging.CRITICAL + 1)
    return logger
