"""The clients that people use, beside a broker in their own process; those of asyncio have a loop of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

from penstock.testing import PenstockBroker
from tests.testing.conftest import WAIT_S, read, send

COUNT = 200


def values() -> list[bytes]:
    return [b"%d" % n for n in range(COUNT)]


def test_confluent_kafka(
    broker: PenstockBroker, new_producer: Callable[..., Producer], new_consumer: Callable[..., Consumer]
) -> None:
    send(new_producer(broker), "orders", *values())
    assert [message.value() for message in read(new_consumer(broker, "orders"), COUNT)] == values()
    assert [message.value for message in broker.messages("orders")] == values()


def test_kafka_python(broker: PenstockBroker) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for value in values():
        producer.send("orders", value, headers=[("h", b"x")])
    producer.flush(WAIT_S)
    producer.close()
    assert [message.value for message in broker.messages("orders")] == values()
    consumer = KafkaConsumer(
        "orders", bootstrap_servers=broker.bootstrap, group_id="readers", auto_offset_reset="earliest",
        consumer_timeout_ms=WAIT_S * 1000,
    )  # fmt: skip
    assert [next(consumer).value for _ in range(COUNT)] == values()
    consumer.close()


async def test_aiokafka(broker: PenstockBroker) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        sent = [await producer.send("orders", value) for value in values()]
        await asyncio.wait_for(asyncio.gather(*sent), WAIT_S)
    assert [message.value for message in broker.messages("orders")] == values()
    consumer = AIOKafkaConsumer(
        "orders", bootstrap_servers=broker.bootstrap, group_id="readers", auto_offset_reset="earliest"
    )
    async with consumer:
        found = [await asyncio.wait_for(consumer.getone(), WAIT_S) for _ in range(COUNT)]
    assert [message.value for message in found] == values()


async def test_a_coroutine_may_ask_the_broker_between_two_awaits(broker: PenstockBroker) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, retry_backoff_ms=10) as producer:
        await producer.send_and_wait("orders", b"one")
        broker.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")
        await producer.send_and_wait("orders", b"two")
        broker.advance(minutes=10)
        broker.disconnect_clients()
        await producer.send_and_wait("orders", b"three")
    assert [message.text for message in broker.messages("orders")] == ["one", "two", "three"]
