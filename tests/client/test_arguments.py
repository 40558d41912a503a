"""What is given to a call and can't be meant: an exception of ours that names it and says what will do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from penstock.client import (
    AsyncConsumer,
    AsyncProducer,
    AsyncQueue,
    BadName,
    Consumer,
    PenstockError,
    Producer,
    Queue,
    Retry,
    SerializationError,
    SettingsError,
    Topic,
    UsageError,
    known_topics,
)
from penstock.testing import PenstockBroker

NOWHERE = "127.0.0.1:1"
WAIT_S = 20.0
NO_TEXT = "\ud800"  # which has no UTF-8


@pytest.fixture(scope="module")
def broker() -> Iterator[PenstockBroker]:
    with PenstockBroker(group_initial_rebalance_delay_ms=0) as broker:
        broker.produce("orders", "1", "2")
        yield broker


@pytest.fixture(scope="module")
def producer(broker: PenstockBroker) -> Iterator[Producer]:
    with Producer(broker.bootstrap) as producer:
        yield producer


@pytest.fixture(scope="module")
def consumer(broker: PenstockBroker) -> Iterator[Consumer[bytes, bytes]]:
    with Consumer[bytes, bytes](broker.bootstrap, "readers", "orders") as consumer:
        yield consumer


def handle(topics: Any, **options: Any) -> Consumer[bytes, bytes]:
    consumer = Consumer[bytes, bytes](NOWHERE, "group", topics)
    consumer.handler(**options)(print)
    return consumer


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: Consumer(NOWHERE, "group", None), BadName, "topics=None"),  # type: ignore[arg-type]
        (lambda: Consumer(NOWHERE, "group", 5), BadName, "topics=5"),  # type: ignore[arg-type]
        (lambda: Consumer(NOWHERE, "group", "t").also_read(5), BadName, "topics=5"),  # type: ignore[arg-type]
        (lambda: Consumer(NOWHERE, "group", "t", connect_timeout_s="5"), SettingsError, "connect_timeout_s='5'"),  # type: ignore[arg-type]
        (lambda: Consumer(NOWHERE, "group", "t", start=["x"]), SettingsError, "'earliest'"),  # type: ignore[arg-type]
        (lambda: Producer(NOWHERE, connect_timeout_s="5"), SettingsError, "connect_timeout_s='5'"),  # type: ignore[arg-type]
        (lambda: Producer(NOWHERE, send_timeout_s=-1), SettingsError, "send_timeout_s=-1"),
        (lambda: AsyncProducer(NOWHERE, send_timeout_s="5"), SettingsError, "send_timeout_s='5'"),  # type: ignore[arg-type]
        (lambda: Producer(NOWHERE, delivery="exactly-once", transactional_id=5), SettingsError, "transactional_id=5"),  # type: ignore[arg-type]
        (lambda: Producer(NOWHERE, delivery=["x"]), SettingsError, "'at-least-once'"),  # type: ignore[arg-type]
        (lambda: Producer(NOWHERE, profile={}), SettingsError, "'balanced'"),  # type: ignore[arg-type]
        (lambda: Producer(f"{NO_TEXT}:1"), SettingsError, "surrogates"),
        (lambda: Producer(NOWHERE, settings={"client.id": NO_TEXT}), SettingsError, "client.id="),
        (lambda: Producer(NOWHERE, settings={NO_TEXT: 1}), SettingsError, "surrogates"),
        (lambda: Consumer(NOWHERE, NO_TEXT, "t"), SettingsError, "group="),
        (lambda: Consumer(NOWHERE, "group", f"^{NO_TEXT}"), BadName, "surrogates"),
        (lambda: Producer(NOWHERE, settings={"delivery.report.only.error": True}), SettingsError, "own: no Delivery"),
        (lambda: Producer(NOWHERE, value=5), SettingsError, "value=5"),  # type: ignore[arg-type]
        (lambda: Producer(NOWHERE, key=b"x"), SettingsError, "key=b'x'"),  # type: ignore[arg-type]
        (lambda: Consumer(NOWHERE, "group", "t", key=5), SettingsError, "key=5"),  # type: ignore[arg-type]
        (lambda: Consumer(NOWHERE, "group", "t", value=[]), SettingsError, "value=[]"),  # type: ignore[arg-type]
        (lambda: Topic("orders", NOWHERE, value=5), SettingsError, "value=5"),  # type: ignore[arg-type]
        (lambda: Topic("orders", NOWHERE, settings=5), SettingsError, "settings is int"),  # type: ignore[arg-type]
        (lambda: Topic("orders", NOWHERE, settings={"acks": 0}), SettingsError, "acks=0"),
        (lambda: Topic("t", NOWHERE).subscribe("group", settings=5), SettingsError, "settings is int"),  # type: ignore[typeddict-item]
        (lambda: Queue("jobs", NOWHERE, value=(1, 2)), SettingsError, "value=1"),  # type: ignore[arg-type]
        (lambda: Queue("jobs", NOWHERE, group=[]), BadName, "called []"),  # type: ignore[arg-type]
        (lambda: Queue("jobs", NOWHERE, consumer_settings=5), SettingsError, "consumer_settings is int"),  # type: ignore[arg-type]
        (lambda: Queue("jobs", NOWHERE, producer_settings=5), SettingsError, "producer_settings is int"),  # type: ignore[arg-type]
        (lambda: Consumer(NOWHERE, "group", "t", handle_signals="no"), SettingsError, "handle_signals='no'"),  # type: ignore[arg-type]
        (lambda: AsyncConsumer(NOWHERE, "group", "t", handle_signals=1), SettingsError, "handle_signals=1"),  # type: ignore[arg-type]
        (lambda: Queue("jobs", NOWHERE, handle_signals="no"), SettingsError, "handle_signals='no'"),  # type: ignore[arg-type]
        (lambda: AsyncQueue("jobs", NOWHERE, handle_signals=0), SettingsError, "handle_signals=0"),  # type: ignore[arg-type]
        (lambda: Retry(retry_on=5), SettingsError, "retry_on is 5"),  # type: ignore[arg-type]
        (lambda: Retry(give_up_on=None), SettingsError, "give_up_on is None"),  # type: ignore[arg-type]
        (lambda: Producer(NOWHERE, settings={5: 1}), SettingsError, "5 is no name"),  # type: ignore[dict-item]
        (lambda: Queue("jobs", NOWHERE, retry="5"), SettingsError, "Retry(attempts=5)"),
        (lambda: Queue("jobs", NOWHERE, dead_letter=5), SettingsError, "dead_letter is 5"),  # type: ignore[arg-type]
        (lambda: Queue("jobs", NOWHERE, dead_letter="a b"), BadName, "dead_letter='a b': a topic can't be called"),
        (lambda: Queue("jobs", NOWHERE, dead_letter=""), BadName, "dead_letter=''"),
        (lambda: Queue("jobs", NOWHERE, dead_letter="jobs"), SettingsError, "jobs.jobs.dlq"),
        (lambda: Queue("jobs", NOWHERE, dead_letter="jobs.jobs.retry.5m"), SettingsError, "that this group reads"),
        (lambda: handle(["a", "b"], dead_letter="b"), SettingsError, "that this group reads"),
        (lambda: handle(["a", "b"], dead_letter="b.group.retry.1s"), SettingsError, "that this group reads"),
        (lambda: handle(["a", "a.group.retry.1s"], retry=Retry(attempts=2)), SettingsError, "Leave it out"),
        (lambda: Topic("orders", NOWHERE, key="jsno"), SettingsError, "'json'"),
        (lambda: Topic("orders", NOWHERE, value="jsno"), SettingsError, "'json'"),
        (lambda: Topic("orders", "nowhere"), SettingsError, "HOST:PORT"),
        (lambda: Topic("orders", NOWHERE, profile="fast"), SettingsError, "'latency'"),  # type: ignore[arg-type]
    ],
)
def test_a_client_that_can_not_be_made_so(make: Callable[[], object], kind: type[PenstockError], words: str) -> None:
    with pytest.raises(kind) as caught:
        make()
    assert words in str(caught.value)


def test_dead_letters_that_are_read_later(broker: PenstockBroker) -> None:
    with Consumer[bytes, bytes](broker.bootstrap, "group", "orders") as consumer:
        consumer.handler(dead_letter="letters")(print)
        consumer.also_read(["letters"])
        with pytest.raises(SettingsError, match="that this group reads"):
            consumer.run()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"delivery.timeout.ms": 60_000, "transaction.timeout.ms": 5_000}, "`delivery.timeout.ms` must be"),
        ({"linger.ms": "soon"}, '"linger.ms"'),
    ],
)
def test_settings_that_fight_are_called_what_they_were_given_as(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Producer(NOWHERE, delivery="exactly-once", settings=settings)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "message",
    [
        {"partition": "0"},
        {"partition": 1.0},
        {"partition": 2**40},
        {"timestamp_ms": "now"},
        {"timestamp_ms": 1.5},
        {"timestamp_ms": 10**30},
        {"timestamp_ms": -7},
        {"timestamp_ms": 0},  # which librdkafka takes for now
    ],
)
def test_a_message_with_a_number_that_is_none(producer: Producer, message: dict[str, Any]) -> None:
    [(name, value)] = message.items()
    with pytest.raises(UsageError) as caught:
        producer.send("orders", b"", **message)
    assert f"{name}={value!r}" in str(caught.value)


@pytest.mark.parametrize("headers", [{5: "x"}, [(b"name", "x")], [("name",)], "name", 5])
def test_headers_without_names(producer: Producer, headers: Any) -> None:
    with pytest.raises(SerializationError, match="Headers are"):
        producer.send("orders", b"", headers=headers)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"value": NO_TEXT}, "the value of"),
        ({"value": "x", "key": NO_TEXT}, "the key of"),
        ({"value": "x", "headers": {"name": NO_TEXT}}, "the headers of"),
        ({"value": "x", "headers": {NO_TEXT: "x"}}, "the headers of"),
        ({"value": "x", "headers": [("é", "x"), (NO_TEXT, "x")]}, "the headers of"),
    ],
)
def test_text_that_is_none(producer: Producer, message: dict[str, Any], words: str) -> None:
    with pytest.raises(SerializationError) as caught:
        producer.send("orders", **message)
    assert words in str(caught.value)


def test_a_key_that_is_no_text_and_a_partitioner(broker: PenstockBroker) -> None:
    with (
        Producer(broker.bootstrap, partitioner=lambda key, count: 0) as producer,
        pytest.raises(SerializationError, match="the key of"),
    ):
        producer.send("orders", b"", key=NO_TEXT)


def test_a_partitioner_that_fails(broker: PenstockBroker) -> None:
    with (
        Producer(broker.bootstrap, partitioner=lambda key, count: 1 // 0) as producer,
        pytest.raises(UsageError, match="partitioner failed for topic 'orders': ZeroDivisionError") as caught,
    ):
        producer.send("orders", b"")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda consumer: consumer.messages(count="3"), "count='3'"),
        (lambda consumer: consumer.messages(count=-1), "count=-1"),
        (lambda consumer: consumer.pause("orders"), "('orders', 0)"),
        (lambda consumer: consumer.pause(("other", 0)), "It reads orders[0]"),
        (lambda consumer: consumer.resume(("orders", "0")), "('orders', 0)"),
        (lambda consumer: consumer.resume(("orders", 9)), "It reads orders[0]"),
        (lambda consumer: consumer.seek_to_time(datetime.now(UTC), ("other", 0)), "It reads orders[0]"),
        (lambda consumer: consumer.seek("orders", 0, "5"), "offset='5'"),
        (lambda consumer: consumer.seek("orders", 0, 10**30), f"offset={10**30}"),
        (lambda consumer: consumer.seek("orders", "0", 5), "('orders', 0)"),
        (lambda consumer: consumer.seek("orders", 9, 5), "It reads orders[0]"),
    ],
)
def test_a_consumer_that_can_not_be_asked_so(
    consumer: Consumer[bytes, bytes], call: Callable[[Consumer[bytes, bytes]], object], words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        call(consumer)
    assert words in str(caught.value)


async def test_an_asynchronous_consumer_that_can_not_be_asked_so(broker: PenstockBroker) -> None:
    async with AsyncConsumer[bytes, bytes](broker.bootstrap, "asynchronous", "orders") as consumer:
        with pytest.raises(UsageError, match="count=-1"):
            [message async for message in consumer.messages(count=-1)]


def test_a_transaction_that_can_not_be_asked_so(broker: PenstockBroker) -> None:
    with (
        Consumer[bytes, bytes](broker.bootstrap, "exact", "orders", delivery="exactly-once") as consumer,
        Producer(broker.bootstrap, delivery="exactly-once") as producer,
        consumer.transaction(producer) as txn,
    ):
        with pytest.raises(UsageError, match="count='3'"):
            txn.messages(count="3")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="timeout='1'"):
            txn.messages(timeout="1")  # type: ignore[arg-type]


def test_a_transaction_of_two_kinds_of_clients() -> None:
    consumer = Consumer[bytes, bytes](NOWHERE, "group", "orders", delivery="exactly-once")
    asynchronous = AsyncConsumer[bytes, bytes](NOWHERE, "group", "orders", delivery="exactly-once")
    with pytest.raises(UsageError, match="not AsyncProducer"):
        consumer.transaction(AsyncProducer(NOWHERE, delivery="exactly-once"))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="not Producer"):
        asynchronous.transaction(Producer(NOWHERE, delivery="exactly-once"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"topics": "^["}, BadName, "'^['"),
        ({"topics": "orders", "start": "fail"}, PenstockError, "start='earliest'"),
        ({"topics": "orders", "where": lambda headers: headers[0]}, UsageError, "where failed"),
    ],
)
def test_what_shows_only_when_it_is_read(
    broker: PenstockBroker, options: dict[str, Any], kind: type[PenstockError], words: str
) -> None:
    with Consumer[bytes, bytes](broker.bootstrap, f"{kind.__name__}", **options) as consumer:
        with pytest.raises(kind) as caught:
            consumer.poll(WAIT_S)
        assert words in str(caught.value)
        assert caught.value.hint


async def test_a_partitioner_learns_of_partitions_that_are_added(
    broker: PenstockBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_topics, "COUNT_EVERY_S", 0.0)
    broker.topic("growing")
    async with AsyncProducer(broker.bootstrap, partitioner=lambda key, count: count - 1) as producer:
        assert (await producer.send_and_wait("growing", b"")).partition == 0
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_partitions([NewPartitions("growing", 3)])["growing"].result(WAIT_S)
        assert (await producer.send_and_wait("growing", b"")).partition == 2
        assert producer.producer.send("growing", b"").result(WAIT_S).partition == 2
