from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from thence.core.errors import ConfigError, Unavailable
from thence.engine.java import Java
from thence.servers.kafka import KafkaBroker

PATIENCE_SECONDS = 120
PROGRAM = """
import sys, time
from pathlib import Path
from thence.servers.kafka import KafkaBroker
broker = KafkaBroker(Path(sys.argv[1]), launcher=Path(sys.argv[2]), jars=[Path(p) for p in sys.argv[3:]])
broker.start()
print(broker.pid, broker.address, flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kafka")


@pytest.fixture(scope="module")
def broker(directory: Path, java: Java, kafka_jars: tuple[Path, ...]) -> Iterator[KafkaBroker]:
    with KafkaBroker(directory / "broker", launcher=java.launcher, jars=kafka_jars) as running:
        yield running


def make_topic(broker: KafkaBroker, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(PATIENCE_SECONDS)


def produce(broker: KafkaBroker, topic: str, values: range) -> None:
    outcomes: list[object | None] = []
    producer = Producer({"bootstrap.servers": broker.address, "acks": "all", "enable.idempotence": True})
    for value in values:
        producer.produce(topic, str(value), on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(PATIENCE_SECONDS) == 0
    assert outcomes == [None] * len(values)


def consume(broker: KafkaBroker, topic: str, isolation: str = "read_committed") -> list[int]:
    settings = {"bootstrap.servers": broker.address, "group.id": "g", "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": isolation, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[int] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is not None:
            break  # the end of the partition
        if message is not None:
            values.append(int(message.value() or b""))
    consumer.close()
    return values


def wait_until_gone(pid: int) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def guardians_of(pid: int) -> list[int]:
    wanted = f"kill -9 {pid}".encode()
    lines = {int(path.parent.name): path for path in Path("/proc").glob("[0-9]*/cmdline")}
    return [number for number, path in lines.items() if wanted in _read(path)]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def test_messages_come_back_in_order(broker: KafkaBroker) -> None:
    make_topic(broker, "plain")
    produce(broker, "plain", range(100))

    assert consume(broker, "plain") == list(range(100))


def test_only_committed_transactions_are_read(broker: KafkaBroker) -> None:
    make_topic(broker, "transactional")
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": "t"})
    producer.init_transactions(PATIENCE_SECONDS)
    for start, finish in ((0, "commit"), (10, "abort"), (20, "commit")):
        producer.begin_transaction()
        for value in range(start, start + 10):
            producer.produce("transactional", str(value))
        assert producer.flush(PATIENCE_SECONDS) == 0
        if finish == "commit":
            producer.commit_transaction(PATIENCE_SECONDS)
        else:
            producer.abort_transaction(PATIENCE_SECONDS)

    assert consume(broker, "transactional") == [*range(10), *range(20, 30)]
    assert consume(broker, "transactional", "read_uncommitted") == list(range(30))


def test_a_topic_is_not_made_by_a_typing_error(broker: KafkaBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "message.timeout.ms": 2000})
    errors: list[object] = []
    producer.produce("no-such-topic", "x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(PATIENCE_SECONDS)

    assert errors[0] is not None


def test_it_listens_on_loopback_only(broker: KafkaBroker) -> None:
    inodes = {str(link.readlink()) for link in Path(f"/proc/{broker.pid}/fd").iterdir() if link.is_symlink()}
    rows = [
        row.split()
        for name in ("tcp", "tcp6")
        for row in _read(Path(f"/proc/net/{name}")).decode().splitlines()[1:]
    ]
    ours = [row[1].partition(":")[0] for row in rows if f"socket:[{row[9]}]" in inodes and row[3] == "0A"]

    assert ours
    assert set(ours) <= {"0100007F", "0000000000000000FFFF00000100007F"}


def test_what_was_acknowledged_survives_kill_9_of_the_broker(broker: KafkaBroker) -> None:
    make_topic(broker, "kept")
    before = broker.address
    for round_number in range(2):
        produce(broker, "kept", range(round_number * 1000, (round_number + 1) * 1000))
        killed = broker.pid
        assert killed
        os.kill(killed, signal.SIGKILL)
        assert wait_until_gone(killed)
        assert not broker.is_healthy()
        broker.start()
        assert guardians_of(killed) == []
        assert len(guardians_of(broker.pid or 0)) == 1

    assert broker.address == before
    assert consume(broker, "kept") == list(range(2000))


def test_a_stopped_broker_is_gone_and_starts_again_with_its_data(broker: KafkaBroker) -> None:
    make_topic(broker, "stopped")
    produce(broker, "stopped", range(10))
    pid = broker.pid
    assert pid
    broker.stop()
    broker.stop()

    assert wait_until_gone(pid)
    assert guardians_of(pid) == []
    assert (broker.pid, broker.is_healthy()) == (None, False)
    broker.start()
    assert consume(broker, "stopped") == list(range(10))


def test_one_directory_has_one_broker(
    broker: KafkaBroker, directory: Path, java: Java, kafka_jars: tuple[Path, ...]
) -> None:
    second = KafkaBroker(directory / "broker", launcher=java.launcher, jars=kafka_jars)

    with pytest.raises(Unavailable, match="in use") as caught:
        second.start()

    assert caught.value.code == "servers.kafka_in_use"
    assert broker.is_healthy()


def test_a_port_that_is_taken_is_named(tmp_path: Path, java: Java, kafka_jars: tuple[Path, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=str(port)) as caught:
            KafkaBroker(tmp_path, launcher=java.launcher, jars=kafka_jars, port=port).start()

    assert caught.value.code == "servers.port_taken"
    assert not (tmp_path / "data").exists()


def test_a_format_that_was_cut_short_is_done_again(
    tmp_path: Path, java: Java, kafka_jars: tuple[Path, ...]
) -> None:
    (tmp_path / "data.new").mkdir()
    (tmp_path / "data.new" / "meta.properties").write_text("half")

    with KafkaBroker(tmp_path, launcher=java.launcher, jars=kafka_jars) as broker:
        assert broker.is_healthy()


def test_a_broker_that_cannot_start_says_why(
    tmp_path: Path, java: Java, kafka_jars: tuple[Path, ...]
) -> None:
    with pytest.raises(Unavailable, match="ClassNotFoundException") as caught:
        KafkaBroker(tmp_path, launcher=java.launcher, jars=kafka_jars[:1]).start()

    assert caught.value.code == "servers.kafka_failed"


def test_it_does_not_outlive_a_parent_that_is_killed(
    tmp_path: Path, java: Java, kafka_jars: tuple[Path, ...]
) -> None:
    command = [sys.executable, "-c", PROGRAM, *map(str, (tmp_path, java.launcher, *kafka_jars))]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout
        pid, address = parent.stdout.readline().split()
        guardian = guardians_of(int(pid))
        parent.kill()
        # Its heir does not wait either, and finds clients where they were.
        with KafkaBroker(tmp_path, launcher=java.launcher, jars=kafka_jars) as heir:
            assert heir.address == address
        assert wait_until_gone(int(pid))
        assert all(wait_until_gone(number) for number in guardian)
    finally:
        parent.kill()
        parent.communicate()
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def test_a_client_of_a_broker_that_is_gone_gets_no_answer(broker: KafkaBroker) -> None:
    broker.stop()

    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": broker.address}).list_topics(timeout=1)
