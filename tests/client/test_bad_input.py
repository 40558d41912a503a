"""What a program may do wrong: an exception of ours, which says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.client import (
    BadName,
    BrokerUnreachable,
    Consumer,
    Delivery,
    DeliveryTimedOut,
    MessageTooLarge,
    PenstockError,
    Producer,
    Queue,
    QueueEmpty,
    SerializationError,
    SettingsError,
    Topic,
    TopicNotFound,
    UsageError,
)
from tests.brokers import free_port
from tests.client.conftest import MakeTopic, create_topic

Unique = Callable[[str], str]
WAIT_S = 20.0


def test_a_message_over_the_producers_limit(bootstrap: str, make_topic: MakeTopic) -> None:
    with Producer(bootstrap) as producer, pytest.raises(MessageTooLarge, match=r"message\.max\.bytes"):
        producer.send(make_topic(), b"x" * 2_000_000)


def test_a_message_over_the_topics_limit(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(max_message_bytes="1000")
    producer = Producer(bootstrap, settings={"compression.type": "none"})
    with pytest.raises(MessageTooLarge, match=r"max\.message\.bytes"):
        producer.send(topic, b"x" * 5000).result(WAIT_S)
    producer.close()


def test_a_failure_that_nobody_asked_about_is_raised_by_flush_once(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(max_message_bytes="1000")
    producer = Producer(bootstrap, settings={"compression.type": "none"})
    producer.send(topic, b"x" * 5000)
    with pytest.raises(MessageTooLarge):
        producer.flush(WAIT_S)
    producer.flush(WAIT_S)
    producer.send(topic, b"x" * 5000)
    with pytest.raises(MessageTooLarge):
        producer.close()


@pytest.mark.parametrize(
    ("options", "message", "words"),
    [
        ({}, {"value": {"a": 1}}, "Producer(value='json')"),
        ({}, {"value": b"", "key": 7}, "Producer(key='json')"),
        ({}, {"value": b"", "headers": {"a": 7}}, "Headers are"),
        ({"value": "json"}, {"value": {1, 2}}, "can't be serialized"),
        ({"value": "text"}, {"value": 5}, "int, not str"),
        ({"value": lambda value: 5}, {"value": 5}, "instead of bytes"),
    ],
)
def test_a_value_of_the_wrong_type(
    bootstrap: str, make_topic: MakeTopic, options: dict[str, Any], message: dict[str, Any], words: str
) -> None:
    with Producer(bootstrap, **options) as producer, pytest.raises(SerializationError) as caught:
        producer.send(make_topic(), **message)
    assert words in str(caught.value)


def test_a_broker_that_is_not_there(unique: Unique) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    with pytest.raises(BrokerUnreachable, match="penstock start") as caught:
        Producer(nowhere, connect_timeout_s=0.3).send("topic", b"")
    assert caught.value.retriable
    with pytest.raises(ConnectionError, match=nowhere):
        Consumer(nowhere, unique("group"), "topic", connect_timeout_s=0.3).poll()
    with (
        pytest.raises(BrokerUnreachable),
        Producer(nowhere, delivery="exactly-once", connect_timeout_s=0.3).transaction(),
    ):
        pass


@pytest.mark.parametrize("name", ["", ".", "a b", "a/b", "x" * 250, "größe", 7])
def test_a_topic_can_not_be_called_so(name: Any) -> None:
    with pytest.raises(BadName, match="topic"):
        Producer("127.0.0.1:1").send(name, b"")
    with pytest.raises(BadName, match="topic"):
        Consumer("127.0.0.1:1", "group", [name])


@pytest.mark.parametrize("name", ["", "  ", None, 7])
def test_a_group_can_not_be_called_so(name: Any) -> None:
    with pytest.raises(BadName, match="group"):
        Consumer("127.0.0.1:1", name, "topic")


def test_a_consumer_without_topics() -> None:
    with pytest.raises(BadName, match="topic"):
        Consumer("127.0.0.1:1", "group")


def test_a_topic_that_does_not_exist_is_waited_for_by_readers(new_broker: Callable[..., Any], unique: Unique) -> None:
    broker = new_broker(auto_create_topics_enable="false")
    with Producer(broker.bootstrap) as producer, pytest.raises(TopicNotFound, match="penstock topic create orders"):
        producer.send("orders", b"")
    with Consumer[bytes, bytes](broker.bootstrap, unique("group"), "orders") as consumer:
        assert consumer.poll(0.5) is None
        create_topic(broker.bootstrap, "orders")
        with Producer(broker.bootstrap) as producer:
            producer.send("orders", b"first")
        assert consumer.poll(WAIT_S) is not None


def test_a_client_that_is_closed_or_has_no_transactions(bootstrap: str, make_topic: MakeTopic, unique: Unique) -> None:
    topic = make_topic()
    producer, consumer = Producer(bootstrap), Consumer[bytes, bytes](bootstrap, unique("group"), topic)
    with pytest.raises(UsageError, match="delivery='exactly-once'"):
        producer.transaction()
    with pytest.raises(UsageError, match="delivery='exactly-once'"):
        consumer.transaction(producer)
    producer.close()
    consumer.close()
    for call in (lambda: producer.send(topic, b""), producer.flush, consumer.poll, lambda: next(iter(consumer))):
        with pytest.raises(UsageError, match="closed"):
            call()


def test_exactly_once_outside_of_a_transaction(bootstrap: str, make_topic: MakeTopic, unique: Unique) -> None:
    topic = make_topic()
    with Producer(bootstrap, delivery="exactly-once") as producer, pytest.raises(UsageError, match="transaction"):
        producer.send(topic, b"")
    consumer = Consumer[bytes, bytes](bootstrap, unique("group"), topic, delivery="exactly-once")
    with consumer, pytest.raises(UsageError, match="transaction"):
        consumer.poll()


def test_a_partitioner_that_chooses_what_is_not_there(bootstrap: str, make_topic: MakeTopic) -> None:
    producer = Producer(bootstrap, partitioner=lambda key, partitions: partitions)
    with producer, pytest.raises(UsageError, match="0 to 2"):
        producer.send(make_topic(partitions=3), b"")


def test_a_partition_that_is_not_there(bootstrap: str, make_topic: MakeTopic) -> None:
    with Producer(bootstrap) as producer, pytest.raises(TopicNotFound, match="partition"):
        producer.send(make_topic(), b"", partition=7).result(WAIT_S)


def test_an_empty_queue(bootstrap: str, make_topic: MakeTopic) -> None:
    with Queue(make_topic(), bootstrap) as queue, pytest.raises(QueueEmpty) as caught, queue.get(timeout=0.05):
        pass
    assert caught.value.retriable
    assert isinstance(caught.value, PenstockError)


@pytest.mark.parametrize("timeout", ["1", "5s", True, b"1"])
def test_a_time_out_that_is_no_number(timeout: Any) -> None:
    """Before a broker is asked for anything."""
    unreachable = f"127.0.0.1:{free_port()}"
    consumer, queue, producer = (
        Consumer(unreachable, "group", "topic"),
        Queue("jobs", unreachable),
        Producer(unreachable),
    )
    for call in (consumer.poll, consumer.messages, queue.take, producer.flush, Delivery(producer, "topic").result):
        with pytest.raises(UsageError, match="number of seconds"):
            call(timeout=timeout)


def test_an_acknowledgement_that_does_not_come_in_time(bootstrap: str, make_topic: MakeTopic) -> None:
    with Producer(bootstrap, settings={"linger.ms": 200}) as producer:
        delivery = producer.send(make_topic(), b"")
        with pytest.raises(DeliveryTimedOut, match=r"within 0\.01 s") as caught:
            delivery.result(0.01)
        assert isinstance(caught.value, TimeoutError)
        assert delivery.result(WAIT_S).offset == 0


def test_a_topic_can_not_be_published_to_exactly_once() -> None:
    with pytest.raises(SettingsError, match=r"Producer\(delivery='exactly-once'\)"):
        Topic("orders", delivery="exactly-once")


def test_a_full_local_queue_makes_the_sender_wait(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with Producer(bootstrap, settings={"queue.buffering.max.messages": 10}) as producer:
        sent = [producer.send(topic, b"%d" % number) for number in range(200)]
    assert [delivery.result().offset for delivery in sent] == list(range(200))
