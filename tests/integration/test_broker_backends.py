"""The backends for Kafka and AMQP pass the contract of their port, against the real brokers behind a proxy."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from thence.core.clock import Clock
from thence.core.errors import ConfigError
from thence.core.event import Event
from thence.core.ports import Backend, Sent
from thence.engine.java import Java
from thence.forward.amqp import AmqpBackend, AmqpTarget
from thence.forward.failure import Busy, Misconfigured
from thence.forward.kafka import KafkaBackend, KafkaTarget, key_of
from thence.servers.kafka import KafkaBroker
from thence.testing.contracts.backend import BackendContract
from thence.testing.contracts.place import Place
from thence.testing.contracts.samples import event, events
from thence.testing.faults import FaultProxy
from thence.testing.rabbitmq import RabbitServer

NUMBERS = count(1)


# Kafka


class ProxiedBroker(KafkaBroker):
    """A broker that tells its clients to come through a proxy."""

    def __init__(self, directory: Path, proxy: FaultProxy, **more: Any) -> None:
        super().__init__(directory, **more)
        self.proxy = proxy

    @property
    def address(self) -> str:
        return "{}:{}".format(*self.proxy.address)

    def _write_settings(self, data: str) -> Path:
        path = super()._write_settings(data)
        direct = f"advertised.listeners=PLAINTEXT://127.0.0.1:{self.port}"
        host, port = self.proxy.address
        path.write_text(path.read_text().replace(direct, f"advertised.listeners=PLAINTEXT://{host}:{port}"))
        return path


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, java: Java, kafka_jars: tuple[Path, ...]
) -> Iterator[ProxiedBroker]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    directory = tmp_path_factory.mktemp("kafka")
    with (
        FaultProxy(("127.0.0.1", port)) as proxy,
        ProxiedBroker(directory, proxy, launcher=java.launcher, jars=kafka_jars, port=port) as broker,
    ):
        yield broker


def make_topic(broker: ProxiedBroker, partitions: int = 1, *, max_bytes: int = 1 << 20) -> str:
    name = f"lineage-{next(NUMBERS)}"
    admin = AdminClient({"bootstrap.servers": broker.address})
    made = admin.create_topics([NewTopic(name, partitions, 1, config={"max.message.bytes": str(max_bytes)})])
    made[name].result(30.0)
    return name


def messages(broker: ProxiedBroker, topic: str) -> list[Message]:
    """Everything in a topic, partition by partition."""
    consumer = Consumer(
        {"bootstrap.servers": broker.address, "group.id": "oracle", "enable.auto.commit": False}
    )
    found: list[Message] = []
    try:
        for partition in sorted(consumer.list_topics(topic, 30.0).topics[topic].partitions):
            place = TopicPartition(topic, partition)
            begin, end = consumer.get_watermark_offsets(place, 30.0)
            consumer.assign([TopicPartition(topic, partition, begin)])
            taken: list[Message] = []
            while begin < end and (not taken or offset_of(taken[-1]) < end - 1):
                message = consumer.poll(30.0)
                assert message is not None
                assert message.error() is None
                taken.append(message)
            found += taken
    finally:
        consumer.close()
    return found


def forget(broker: ProxiedBroker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    for done in admin.delete_records([TopicPartition(topic, 0, -1)]).values():
        done.result(30.0)


def offset_of(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset


class Refusing:
    """A producer whose broker is told to refuse some payloads, by the error that it really gives for large ones."""

    def __init__(self, producer: Any, refused: set[bytes]) -> None:
        self._producer = producer
        self._refused = refused

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def produce(self, topic: str, value: bytes, *rest: Any, **more: Any) -> None:
        if value in self._refused:
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        self._producer.produce(topic, value, *rest, **more)


class WatchedBackend(KafkaBackend):
    """One whose test does something between its look at the topic and the first event."""

    refused: set[bytes]
    before_producing: Callable[[], None] | None = None

    def _make(self) -> Any:
        self._producer = Refusing(super()._make(), self.refused)  # type: ignore[assignment]
        return self._producer

    def _look(self, producer: Any) -> None:
        super()._look(producer)
        if self.before_producing is not None:
            self.before_producing()


@pytest.mark.usefixtures("_topic")
class TestKafkaBackend(BackendContract):
    @pytest.fixture
    def _topic(self, broker: ProxiedBroker) -> None:
        self.broker = broker
        self.topic = make_topic(broker)
        self.refused: set[bytes] = set()

    def open(self, directory: Path, clock: Clock) -> Backend:
        target = KafkaTarget(self.broker.address, self.topic, connect_seconds=2.0, answer_seconds=3.0)
        self.backend = WatchedBackend(target)
        self.backend.refused = self.refused
        return self.backend

    def crash(self, opened: Backend) -> None:
        assert isinstance(opened, KafkaBackend)
        opened._producer = None

    def arrived(self, place: Place[Backend]) -> Sequence[bytes]:
        return [message.value() or b"" for message in messages(self.broker, self.topic)]

    def refuse(self, place: Place[Backend], refused: Event) -> None:
        self.refused.add(refused.payload)

    def unreachable(self, place: Place[Backend]) -> AbstractContextManager[None]:
        return self.broker.proxy.cut()

    @contextmanager
    def losing_answers(self, place: Place[Backend]) -> Iterator[None]:
        producer = self.backend._make()
        # It introduces itself and learns who leads the topic, so that nothing but the answer to events can be lost.
        producer.produce(self.topic, b"hello")
        producer.flush(30.0)
        forget(self.broker, self.topic)
        with ExitStack() as stack:
            self.backend.before_producing = lambda: stack.enter_context(self.broker.proxy.lost_answers())
            yield
        self.backend.before_producing = None


def test_kafka_refuses_what_is_too_large_and_takes_what_stands_before_it(broker: ProxiedBroker) -> None:
    topic = make_topic(broker, max_bytes=2000)
    backend = KafkaBackend(KafkaTarget(broker.address, topic))
    noise = event(2, size_bytes=5000)
    noise = Event(noise.id, noise.received_at, noise.kind, noise.source, os.urandom(5000))

    async def scenario() -> None:
        sent = await backend.send([event(1), noise])
        if sent.refusal is None:
            assert sent == Sent(1)
            sent = await backend.send([noise])
            assert sent.delivered == 0
        assert sent.refusal is not None
        assert await backend.send([event(3)]) == Sent(1)
        await backend.close()

    asyncio.run(scenario())
    assert [each.value() for each in messages(broker, topic)] == [event(1).payload, event(3).payload]


def test_kafka_keeps_the_events_of_a_job_in_order_and_tells_ids(broker: ProxiedBroker) -> None:
    topic = make_topic(broker, partitions=4)
    backend = KafkaBackend(KafkaTarget(broker.address, topic))
    sent = [of_job(number, f"job-{number % 7}") for number in range(1, 201)]

    async def scenario() -> None:
        assert await backend.send(sent) == Sent(200)
        await backend.close()

    asyncio.run(scenario())
    found = messages(broker, topic)
    assert len({message.partition() for message in found}) > 1
    for job in range(7):
        key = f"n/job-{job}".encode()
        mine = [message for message in found if message.key() == key]
        assert [message.value() for message in mine] == [
            each.payload for each in sent if key_of(each, "job") == key
        ]
        assert dict(mine[0].headers() or [])["thence-event"] in {str(each.id).encode() for each in sent}


def of_job(number: int, job: str) -> Event:
    made = event(number)
    payload = b'{"run": {"runId": "r%d"}, "job": {"namespace": "n", "name": "%s"}}' % (number, job.encode())
    return Event(made.id, made.received_at, made.kind, made.source, payload, made.traceparent)


def test_kafka_keys_are_jobs_runs_or_datasets() -> None:
    made = event(1)
    dataset = Event(made.id, made.received_at, "", "", b'{"dataset": {"namespace": "d", "name": "t"}}')
    assert key_of(of_job(1, "j"), "job") == b"n/j"
    assert key_of(of_job(1, "j"), "run") == b"r1"
    assert key_of(dataset, "run") == b"d/t"
    assert key_of(made, "job") == b""


def test_a_topic_that_is_not_there_is_an_alarm(broker: ProxiedBroker) -> None:
    backend = KafkaBackend(KafkaTarget(broker.address, "nobody-made-this"))
    with pytest.raises(Misconfigured, match="nobody-made-this"):
        asyncio.run(backend.send([event(1)]))


def test_options_that_decide_about_loss_are_not_the_users() -> None:
    with pytest.raises(ConfigError, match="acks"):
        KafkaBackend(KafkaTarget("x", "y", options={"acks": "0"}))


# AMQP


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitServer]:
    with RabbitServer(tmp_path_factory.mktemp("rabbit")) as server:
        yield server


KEY = "lineage.{event_id}"


@pytest.mark.usefixtures("_queue")
class TestAmqpBackend(BackendContract):
    @pytest.fixture
    def _queue(self, rabbit: RabbitServer) -> Iterator[None]:
        self.rabbit = rabbit
        self.name = f"lineage-{next(NUMBERS)}"
        self.taken: list[bytes] = []
        self.do(self._declare)
        with FaultProxy(rabbit.address) as self.proxy:
            yield

    async def _declare(self, channel: Any) -> None:
        exchange = await channel.declare_exchange(self.name, "direct")
        queue = await channel.declare_queue(self.name, durable=True)
        for number in range(1, 11):
            await queue.bind(exchange, KEY.format(event_id=event(number).id))

    def do(self, work: Callable[[Any], Awaitable[None]]) -> None:
        """Something with a connection of the test's own; in a thread, for the suite may be in an event loop."""

        async def main() -> None:
            async with await aio_pika.connect(
                "amqp://guest:guest@{}:{}".format(*self.rabbit.address)
            ) as connection:
                await work(await connection.channel())

        with ThreadPoolExecutor(1) as pool:
            pool.submit(asyncio.run, main()).result(60.0)

    def open(self, directory: Path, clock: Clock) -> Backend:
        url = "amqp://guest:guest@{}:{}/".format(*self.proxy.address)
        return AmqpBackend(AmqpTarget(url, self.name, KEY, connect_seconds=5.0, answer_seconds=5.0))

    def crash(self, opened: Backend) -> None:
        self.proxy.drop(reset=True)

    def arrived(self, place: Place[Backend]) -> Sequence[bytes]:
        async def take(channel: Any) -> None:
            queue = await channel.get_queue(self.name)
            while (message := await queue.get(fail=False)) is not None:
                assert message.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
                self.taken.append(message.body)
                await message.ack()

        self.do(take)
        return list(self.taken)

    def refuse(self, place: Place[Backend], refused: Event) -> None:
        async def unbind(channel: Any) -> None:
            queue = await channel.get_queue(self.name)
            await queue.unbind(self.name, KEY.format(event_id=refused.id))

        self.do(unbind)

    def unreachable(self, place: Place[Backend]) -> AbstractContextManager[None]:
        return self.proxy.cut()

    @contextmanager
    def losing_answers(self, place: Place[Backend]) -> Iterator[None]:
        whole = AmqpBackend._publish
        with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:

            async def publish(backend: AmqpBackend, exchange: Any, each: Event) -> str | None:
                stack.enter_context(self.proxy.lost_answers())
                return await whole(backend, exchange, each)

            patch.setattr(AmqpBackend, "_publish", publish)
            yield


def test_a_full_queue_is_waited_for(rabbit: RabbitServer) -> None:
    url = "amqp://guest:guest@{}:{}/".format(*rabbit.address)
    backend = AmqpBackend(AmqpTarget(url, "small", ""))

    async def scenario() -> None:
        async with await aio_pika.connect(url) as connection:
            channel = await connection.channel()
            exchange = await channel.declare_exchange("small", "fanout")
            arguments: dict[str, Any] = {"x-max-length": 2, "x-overflow": "reject-publish"}
            queue = await channel.declare_queue("small", durable=True, arguments=arguments)
            await queue.bind(exchange)
            assert await backend.send(events(2)) == Sent(2)
            with pytest.raises(Busy):
                await backend.send(events(1, first=3))
            message = await queue.get()
            await message.ack()
            assert await backend.send(events(1, first=3)) == Sent(1)
            with pytest.raises(Misconfigured, match="no-such"):
                await AmqpBackend(AmqpTarget(url, "no-such")).send(events(1))
            wrong = url.replace("guest:guest", "guest:secret")
            with pytest.raises(Misconfigured) as raised:
                await AmqpBackend(AmqpTarget(wrong, "small")).send(events(1))
            assert "secret" not in str(raised.value)
        await backend.close()

    asyncio.run(scenario())
