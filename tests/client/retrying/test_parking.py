"""Handing over in transactions, when the brokers have given one up."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import TopicPartition

from penstock.client.retrying.headers import Failure, Parked, Place
from penstock.client.retrying.parking import OPEN_MS_MAX, Copy, Transactional
from penstock.testing.broker import PenstockBroker

TOPIC, TIER, GROUP = "orders", "orders.retry", "group"


class Absent:
    """A member of the group that is away, in the midst of a transaction, until the brokers have given it up."""

    def __init__(self, consumer: KafkaConsumer, broker: PenstockBroker, transactional: Transactional) -> None:
        self._consumer = consumer
        self._broker = broker
        self._transactional = transactional
        self.absences = 1

    def consumer_group_metadata(self) -> Any:
        if self.absences:
            self.absences -= 1
            self._transactional._ready().flush(10)
            self._broker.advance(seconds=OPEN_MS_MAX / 1000 + 5)
        return self._consumer.consumer_group_metadata()

    def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return self._consumer.committed(places, timeout)


def test_a_transaction_that_the_brokers_gave_up_is_done_again_once() -> None:
    with PenstockBroker() as broker:
        for topic in (TOPIC, TIER):
            broker.topic(topic, partitions=1)
        broker.produce(TOPIC, "first")
        connection = {"bootstrap.servers": broker.bootstrap}
        consumer = KafkaConsumer({**connection, "group.id": GROUP, "auto.offset.reset": "earliest"})
        consumer.subscribe([TOPIC])
        assert consumer.poll(20) is not None
        transactional = Transactional(connection, GROUP)
        place = Place(TOPIC, 0, 0)
        parked = Parked(place, GROUP, 0, 1, Failure("ValueError", "no"), "", "", 0, place)
        transactional.kept.append(Copy(TIER, 0, None, b"first", [], parked))
        absent: Any = Absent(consumer, broker, transactional)
        transactional.commit(absent, [TopicPartition(TOPIC, 0, 1)])
        assert absent.absences == 0
        assert transactional.kept == []
        assert consumer.committed([TopicPartition(TOPIC, 0)], 10)[0].offset == 1
        reader = KafkaConsumer({**connection, "group.id": "reader", "auto.offset.reset": "earliest"})
        reader.subscribe([TIER])
        message = reader.poll(20)
        assert message is not None
        assert message.value() == b"first"
        assert reader.poll(0.2) is None
        for each in (reader, consumer):
            each.close()
