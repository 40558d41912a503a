"""A broker, a cluster, and confluent-kafka's clients of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer

from penstock.testing import PenstockBroker, PenstockCluster
from penstock.testing.kit import Kit

pytest_plugins = ["pytester"]

WAIT_S = 20.0
QUICK: dict[str, Any] = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50, "log_level": 0}

# The plugin is there by itself where the package is installed, and is given by name where only the source is.
IS_INSTALLED = any(each.value == "penstock.testing.plugin" for each in entry_points(group="pytest11"))
WITH_PLUGIN = () if IS_INSTALLED else ("-p", "penstock.testing.plugin")


@pytest.fixture
def broker() -> Iterator[PenstockBroker]:
    with PenstockBroker() as broker:
        yield broker


@pytest.fixture
def cluster() -> Iterator[PenstockCluster]:
    with PenstockCluster() as cluster:
        yield cluster


@pytest.fixture
def new_producer() -> Iterator[Callable[..., Producer]]:
    made: list[Producer] = []

    def new(kit: Kit, **settings: Any) -> Producer:
        dotted = {name.replace("_", "."): value for name, value in settings.items()}
        made.append(Producer({"bootstrap.servers": kit.bootstrap, **QUICK, "retry.backoff.ms": 10, **dotted}))
        return made[-1]

    yield new
    for producer in made:
        producer.purge()


@pytest.fixture
def new_consumer() -> Iterator[Callable[..., Consumer]]:
    made: list[Consumer] = []

    def new(kit: Kit, *topics: str, group: str = "readers", **settings: Any) -> Consumer:
        dotted = {name.replace("_", "."): value for name, value in settings.items()}
        own = {"group.id": group, "auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 500}
        made.append(Consumer({"bootstrap.servers": kit.bootstrap, **QUICK, **own, **dotted}))
        if topics:
            made[-1].subscribe(list(topics))
        return made[-1]

    yield new
    for consumer in made:
        consumer.close()


def read(consumer: Consumer, count: int) -> list[Message]:
    """So many messages, however long errors that pass come between."""
    found: list[Message] = []
    while len(found) < count:
        message = consumer.poll(WAIT_S)
        assert message is not None, f"{len(found)} of {count} messages came in {WAIT_S} s"
        if message.error() is None:
            found.append(message)
    return found


def send(producer: Producer, topic: str, *values: bytes) -> list[str]:
    """What became of each: its offset, or the name of the error."""
    outcomes: list[str] = []
    for value in values:
        producer.produce(
            topic, value, on_delivery=lambda error, sent: outcomes.append(error.name() if error else str(sent.offset()))
        )
    assert producer.flush(WAIT_S) == 0
    return outcomes
