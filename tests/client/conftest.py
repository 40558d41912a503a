"""What the tests of the client share: topics of their own, on a real broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.brokers import BrokerProcess

MakeTopic = Callable[..., str]


def create_topic(bootstrap: str, name: str, partitions: int = 1, **config: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(20)
    return name


@pytest.fixture
def make_topic(shared_broker: BrokerProcess, unique: Callable[[str], str]) -> MakeTopic:
    """A new topic of the shared broker."""

    def make(partitions: int = 1, prefix: str = "client", **config: str) -> str:
        return create_topic(shared_broker.bootstrap, unique(prefix), partitions, **config)

    return make


@pytest.fixture
def bootstrap(shared_broker: BrokerProcess) -> str:
    return shared_broker.bootstrap
