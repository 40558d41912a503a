"""What is read, written and committed together."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from penstock.client import Consumer, Producer, ProducerFenced, TransactionAborted, UsageError
from tests.client.conftest import MakeTopic

Unique = Callable[[str], str]
WAIT_S = 20.0


def read(bootstrap: str, topic: str, group: str, wait_s: float = 0.5) -> list[bytes]:
    with Consumer[bytes, bytes](bootstrap, group, topic) as consumer:
        first = consumer.poll(3.0)
        rest = [message.value for message in consumer.messages(timeout=wait_s)]
        return rest if first is None else [first.value, *rest]


def fail_in_the_midst(producer: Producer, topic: str) -> None:
    with producer.transaction() as txn:
        txn.send(topic, b"three").result(WAIT_S)
        raise LookupError


def copy(consumer: Consumer[bytes, bytes], producer: Producer, target: str, count: int, fail_at: int = -1) -> None:
    with consumer.transaction(producer) as txn:
        for position, message in enumerate(txn.messages(count=count, timeout=WAIT_S)):
            txn.send(target, message.value)
            if position == fail_at:
                raise LookupError


def test_a_transaction_is_visible_as_a_whole_or_not_at_all(
    bootstrap: str, make_topic: MakeTopic, unique: Unique
) -> None:
    topic = make_topic()
    with Producer(bootstrap, delivery="exactly-once") as producer:
        with producer.transaction() as txn:
            txn.send(topic, b"one")
            txn.send(topic, b"two")
        with pytest.raises(LookupError):
            fail_in_the_midst(producer, topic)
        with producer.transaction() as txn:
            txn.send(topic, b"four")
    assert read(bootstrap, topic, unique("group")) == [b"one", b"two", b"four"]


def test_an_exception_puts_the_consumer_back_to_where_the_block_began(
    bootstrap: str, make_topic: MakeTopic, unique: Unique
) -> None:
    source, target, group = make_topic(partitions=2), make_topic(), unique("group")
    with Producer(bootstrap) as filler:
        for number in range(20):
            filler.send(source, b"%d" % number, partition=number % 2)
    seen: list[bytes] = []
    with (
        Producer(bootstrap, delivery="exactly-once") as producer,
        Consumer[bytes, bytes](bootstrap, group, source, delivery="exactly-once") as consumer,
    ):
        with consumer.transaction(producer) as txn:
            seen += [message.value for message in txn.messages(count=5, timeout=WAIT_S)]
            txn.send(target, b"first")
        with pytest.raises(LookupError):
            copy(consumer, producer, target, count=10, fail_at=7)
        with consumer.transaction(producer) as txn:
            seen += [message.value for message in txn.messages(count=15, timeout=WAIT_S)]
            txn.send(target, b"second")
    assert sorted(seen) == sorted(b"%d" % number for number in range(20))
    assert read(bootstrap, target, unique("group")) == [b"first", b"second"]
    assert read(bootstrap, source, group) == []


def copy_while_another_joins(
    consumer: Consumer[bytes, bytes], producer: Producer, target: str, other: Consumer[bytes, bytes]
) -> None:
    with other, consumer.transaction(producer) as txn:
        for message in txn.messages(count=4, timeout=WAIT_S):
            txn.send(target, message.value)
        other.begin()
        deadline_s = time.monotonic() + WAIT_S
        while time.monotonic() < deadline_s:
            list(txn.messages(count=1, timeout=0.1))
            other.reader.refill(0)


def test_a_rebalance_while_it_is_open_aborts_it(bootstrap: str, make_topic: MakeTopic, unique: Unique) -> None:
    source, target, group = make_topic(partitions=2), make_topic(), unique("group")
    with Producer(bootstrap) as filler:
        for number in range(4):
            filler.send(source, b"%d" % number, partition=number % 2)
    with (
        Producer(bootstrap, delivery="exactly-once") as producer,
        Consumer[bytes, bytes](bootstrap, group, source, delivery="exactly-once") as consumer,
    ):
        with pytest.raises(TransactionAborted, match="another member"):
            copy_while_another_joins(consumer, producer, target, Consumer(bootstrap, group, source))
        while True:
            try:
                copy(consumer, producer, target, count=4)
                break
            except TransactionAborted:  # the other one leaves, and the group is balanced once more
                continue
    assert sorted(read(bootstrap, target, unique("group"))) == [b"0", b"1", b"2", b"3"]


def test_a_second_producer_with_the_same_id_fences_the_first(
    bootstrap: str, make_topic: MakeTopic, unique: Unique
) -> None:
    topic, name = make_topic(), unique("producer")
    old = Producer(bootstrap, delivery="exactly-once", transactional_id=name)
    with old.transaction() as txn:
        txn.send(topic, b"old")
    new = Producer(bootstrap, delivery="exactly-once", transactional_id=name)
    with new.transaction() as txn:
        txn.send(topic, b"new")
    with pytest.raises(ProducerFenced), old.transaction() as txn:
        txn.send(topic, b"too late")
    new.close()
    assert read(bootstrap, topic, unique("group")) == [b"old", b"new"]


def test_one_transaction_at_a_time(bootstrap: str) -> None:
    producer = Producer(bootstrap, delivery="exactly-once")
    with producer, producer.transaction(), pytest.raises(UsageError, match="still open"):
        producer.transaction().__enter__()
