"""Handlers at work on a real broker, and what they leave behind in its topics."""

from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import KafkaError, Producer, TopicPartition

from penstock.client.consumer import Consumer
from penstock.client.retrying.headers import Parked, split
from tests.brokers import BrokerProcess

WAIT_S = 40.0


def wait_until(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"not {what} after {WAIT_S:.0f} s"
        time.sleep(0.01)


def produce(
    bootstrap: str, topic: str, values: Iterable[object], key: Callable[[Any], str | None] = str, partition: int = 0
) -> None:
    """Values as JSON, bytes as they are; what has no key goes to one partition."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        name = key(value)
        producer.produce(
            topic, body, name, headers=[("sent-by", b"test")], **({} if name else {"partition": partition})
        )
    assert producer.flush(20) == 0


class Copy:
    def __init__(self, raw: Any) -> None:
        self.value: bytes = raw.value()
        self.key: bytes = raw.key()
        self.headers, found = split(raw.headers())
        assert found is not None
        self.parked: Parked = found


@functools.cache
def _reader(bootstrap: str) -> KafkaConsumer:
    return KafkaConsumer({
        "bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True, "fetch.wait.max.ms": 10,
        "enable.auto.commit": False, "isolation.level": "read_committed", "log_level": 0,
    })  # fmt: skip


def copies(bootstrap: str, *topics: str) -> list[Copy]:
    """What is in these topics, for readers of committed data."""
    consumer = _reader(bootstrap)
    known = consumer.list_topics(timeout=10).topics
    there = [name for name in topics if name in known]
    places = [TopicPartition(name, number, 0) for name in there for number in known[name].partitions]
    consumer.assign(places)
    found, ended = [], 0
    while ended < len(places):
        for message in consumer.consume(1000, 0.02):
            if message.error() is None:
                found.append(Copy(message))
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF
                ended += 1
    consumer.unassign()
    return found


def committed(bootstrap: str, group: str, topic: str, partitions: int = 1) -> list[tuple[int, str]]:
    consumer = KafkaConsumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    found = consumer.committed([TopicPartition(topic, number) for number in range(partitions)], timeout=10)
    consumer.close()
    return [(place.offset, place.metadata or "") for place in found]


@contextmanager
def running(consumer: Consumer[Any, Any]) -> Iterator[threading.Thread]:
    """`consumer.run()` in a thread; at the end it is stopped and closed, and what it raised is raised here."""
    failures: list[BaseException] = []

    def work() -> None:
        try:
            consumer.run()
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield thread
    finally:
        consumer.stop()
        thread.join(WAIT_S)
        assert not thread.is_alive()
        consumer.close()
    if failures:
        raise failures[0]


@pytest.fixture(params=["at-least-once", "exactly-once"])
def delivery(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One that takes a member for dead early."""
    broker = BrokerProcess(tmp_path_factory.mktemp("retrying"), group_min_session_timeout_ms=500).start()
    yield broker
    broker.close()


@pytest.fixture
def group(unique: Callable[[str], str]) -> str:
    return unique("group")
