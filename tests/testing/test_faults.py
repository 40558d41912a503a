"""Faults, as clients meet them: on warm connections too, whose requests take the short ways through the broker."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.testing import PenstockBroker
from tests.testing.conftest import QUICK, WAIT_S, read, send

NewProducer = Callable[..., Producer]
NewConsumer = Callable[..., Consumer]


def test_a_failed_produce_is_told_to_the_client_and_stores_nothing(
    broker: PenstockBroker, new_producer: NewProducer
) -> None:
    broker.topic("orders")
    producer = new_producer(broker, retries=0)
    broker.fail_next("Produce", "MESSAGE_TOO_LARGE")
    assert send(producer, "orders", b"no") == ["MSG_SIZE_TOO_LARGE"]
    assert send(producer, "orders", b"yes") == ["0"]
    assert [message.value for message in broker.messages("orders")] == [b"yes"]


@pytest.mark.parametrize("acks", ["1", "all"])
def test_a_warm_producer_meets_a_fault_at_its_next_request(
    broker: PenstockBroker, new_producer: NewProducer, acks: str
) -> None:
    broker.topic("orders")
    producer = new_producer(broker, retries=0, acks=acks, linger_ms=0)
    for n in range(5):  # from the third request on, the connection has a memo
        assert send(producer, "orders", b"warm") == [str(n)]
    broker.fail_next("Produce", "INVALID_RECORD", times=2)
    assert send(producer, "orders", b"no") == ["INVALID_RECORD"]
    assert send(producer, "orders", b"no") == ["INVALID_RECORD"]
    for n in range(5, 10):
        assert send(producer, "orders", b"again") == [str(n)]


def test_a_producer_that_retries_survives_a_fault_without_a_duplicate(
    broker: PenstockBroker, new_producer: NewProducer
) -> None:
    broker.topic("orders")
    producer = new_producer(broker, enable_idempotence=True)
    send(producer, "orders", b"0", b"1", b"2")
    broker.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", times=3)
    send(producer, "orders", b"3", b"4")
    assert [message.text for message in broker.messages("orders")] == ["0", "1", "2", "3", "4"]


def test_a_lost_answer_makes_a_duplicate_unless_the_producer_is_idempotent(
    broker: PenstockBroker, new_producer: NewProducer
) -> None:
    for topic, idempotent in (("plain", False), ("idempotent", True)):
        broker.topic(topic)
        producer = new_producer(broker, enable_idempotence=idempotent, acks="all")
        send(producer, topic, b"first")
        broker.lose_answer("Produce")
        send(producer, topic, b"second")
    assert [message.text for message in broker.messages("plain")] == ["first", "second", "second"]
    assert [message.text for message in broker.messages("idempotent")] == ["first", "second"]


def test_what_librdkafka_sends_under_sequences_of_an_aborted_transaction_is_refused_and_not_lost(
    broker: PenstockBroker, new_producer: NewProducer
) -> None:
    """It gives up on messages whose answer was lost, and uses their sequences again in the epoch that it has. Apache
    Kafka takes the next transaction's messages for those, and acknowledges what it does not store (decision 23)."""
    broker.topic("orders")
    producer = new_producer(
        broker, transactional_id="orders", linger_ms=20, retry_backoff_ms=300, retry_backoff_max_ms=300
    )
    producer.init_transactions(WAIT_S)
    outcomes: list[str] = []

    def begin(name: str) -> None:
        outcomes.clear()
        producer.begin_transaction()
        for n in range(3):
            producer.produce(
                "orders", f"{name} {n}", on_delivery=lambda error, _: outcomes.append(error.name() if error else "sent")
            )

    for attempt in range(1, 11):  # until it is aborted before it is sent again
        broker.lose_answer("Produce")
        begin("given up")
        broker.messages("orders", at_least=3 * attempt, isolation="read_uncommitted")
        producer.abort_transaction(WAIT_S)
        if outcomes == ["_PURGE_QUEUE"] * 3:
            break
    assert outcomes == ["_PURGE_QUEUE"] * 3
    begin("refused")
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(WAIT_S)
    assert refused.value.args[0].txn_requires_abort()
    assert outcomes == ["UNKNOWN_PRODUCER_ID"] * 3
    producer.abort_transaction(WAIT_S)
    begin("kept")
    producer.commit_transaction(WAIT_S)
    assert [message.text for message in broker.messages("orders")] == ["kept 0", "kept 1", "kept 2"]


def test_a_warm_consumer_meets_a_fault_at_its_next_fetch(broker: PenstockBroker, new_consumer: NewConsumer) -> None:
    broker.produce("orders", *(f"{n}" for n in range(5)))
    consumer = new_consumer(broker, fetch_wait_max_ms=100, fetch_error_backoff_ms=10)
    consumer.assign([TopicPartition("orders", 0, 0)])
    assert len(read(consumer, 5)) == 5
    broker.produce("orders", *(f"{n}" for n in range(5)))
    read(consumer, 5)
    broker.fail_next("Fetch", "TOPIC_AUTHORIZATION_FAILED")  # one may be waiting for data, and was sent before
    broker.produce("orders", "one", "two")
    seen: list[str] = []
    while len(seen) < 3:
        message = consumer.poll(WAIT_S)
        assert message is not None, f"only {seen} came"
        seen.append(message.value().decode() if message.error() is None else message.error().name())
    assert sorted(seen, key=str.isupper) == ["one", "two", "TOPIC_AUTHORIZATION_FAILED"]


def test_a_fetch_session_goes_on_behind_a_fault(broker: PenstockBroker) -> None:
    from kafka import KafkaConsumer

    broker.topic("orders", partitions=3)
    broker.produce("orders", *range(6))
    consumer = KafkaConsumer(
        "orders", bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", group_id=None,
        consumer_timeout_ms=WAIT_S * 1000, retry_backoff_ms=10, reconnect_backoff_ms=10,
    )  # fmt: skip
    try:
        first = [next(consumer) for _ in range(6)]
        broker.fail_next("Fetch", "NOT_LEADER_OR_FOLLOWER", times=2)
        broker.produce("orders", *range(6, 12))
        second = [next(consumer) for _ in range(6)]
    finally:
        consumer.close()
    assert sorted(int(each.value) for each in first) == list(range(6))
    assert sorted(int(each.value) for each in second) == list(range(6, 12))


def test_a_fault_of_one_topic_leaves_others_alone(broker: PenstockBroker, new_producer: NewProducer) -> None:
    broker.topic("orders")
    broker.topic("bills")
    producer = new_producer(broker, retries=0)
    broker.fail_next("Produce", "INVALID_RECORD", topic="orders")
    assert send(producer, "bills", b"fine") == ["0"]
    assert send(producer, "orders", b"no") == ["INVALID_RECORD"]
    assert send(producer, "orders", b"fine") == ["0"]


def test_faults_of_groups_and_administration_reach_their_clients(
    broker: PenstockBroker, new_consumer: NewConsumer
) -> None:
    broker.produce("orders", "one")
    consumer = new_consumer(broker, "orders", enable_auto_commit=False)
    broker.fail_next("FindCoordinator", "COORDINATOR_NOT_AVAILABLE")
    broker.fail_next("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS")
    read(consumer, 1)
    broker.fail_next("OffsetCommit", "GROUP_AUTHORIZATION_FAILED")
    with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
        consumer.commit(asynchronous=False)
    consumer.commit(asynchronous=False)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **QUICK})
    broker.fail_next("CreateTopics", "POLICY_VIOLATION")
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        admin.create_topics([NewTopic("bills", 1)])["bills"].result(WAIT_S)
    assert broker.topics() == ["orders"]


def test_a_client_lives_through_refused_metadata(broker: PenstockBroker, new_producer: NewProducer) -> None:
    broker.topic("orders")
    broker.fail_next("Metadata", "LEADER_NOT_AVAILABLE", times=2)
    assert send(new_producer(broker, topic_metadata_refresh_fast_interval_ms=10), "orders", b"one") == ["0"]


def test_a_delay_holds_requests_up_and_ends_with_the_clock(broker: PenstockBroker, new_producer: NewProducer) -> None:
    broker.topic("orders")
    producer = new_producer(broker, linger_ms=0)
    for _ in range(3):
        send(producer, "orders", b"warm")
    broker.delay("Produce", seconds=0.2, times=1)
    began = time.monotonic()
    send(producer, "orders", b"late")
    assert time.monotonic() - began >= 0.2
    broker.delay("Produce", seconds=3600)
    delivered: list[int] = []
    producer.produce("orders", b"much later", on_delivery=lambda error, message: delivered.append(message.offset()))
    producer.poll(0.1)
    assert len(broker.messages("orders")) == 4
    broker.clear_faults()
    broker.advance(hours=2)
    assert broker.messages("orders", at_least=5)[-1].value == b"much later"
    assert producer.flush(WAIT_S) == 0
    assert delivered == [4]


def test_a_slow_broker_makes_a_producer_give_up_though_the_message_is_stored(
    broker: PenstockBroker, new_producer: NewProducer
) -> None:
    broker.topic("orders")
    producer = new_producer(broker, delivery_timeout_ms=300, request_timeout_ms=200, linger_ms=0, acks="all")
    broker.delay("Produce", seconds=60, times=1)
    assert send(producer, "orders", b"nobody knows") == ["_MSG_TIMED_OUT"]
    assert broker.messages("orders") == []
    broker.advance(minutes=2)
    assert broker.messages("orders", at_least=1)[0].value == b"nobody knows"


def test_a_producer_that_waits_for_no_answer_is_cut_off(broker: PenstockBroker, new_producer: NewProducer) -> None:
    broker.topic("orders")
    producer = new_producer(broker, acks="0")
    send(producer, "orders", b"one")
    broker.messages("orders", at_least=1)
    broker.fail_next("Produce", "INVALID_RECORD")
    send(producer, "orders", b"lost")
    while len(found := broker.messages("orders")) < 2:
        send(producer, "orders", b"found")
    assert {message.text for message in found[1:]} == {"found"}


def test_large_requests_meet_faults_too(broker: PenstockBroker, new_producer: NewProducer) -> None:
    broker.topic("orders")
    producer = new_producer(broker, enable_idempotence=True, linger_ms=0)
    large = [bytes([n]) * 600_000 for n in range(4)]
    send(producer, "orders", large[0])
    broker.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")
    send(producer, "orders", large[1])
    broker.delay("Produce", seconds=0.05, times=1)
    send(producer, "orders", large[2])
    broker.lose_answer("Produce")
    send(producer, "orders", large[3])
    assert [message.value for message in broker.messages("orders")] == large


def test_requests_behind_one_that_fails_keep_their_order(broker: PenstockBroker, new_producer: NewProducer) -> None:
    broker.topic("orders")
    producer = new_producer(broker, enable_idempotence=True, linger_ms=0, batch_num_messages=1)
    values = [b"%d" % n for n in range(401)]
    send(producer, "orders", values[0])  # the broker knows the producer, and refuses what comes too early
    for at in range(1, len(values), 100):
        broker.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", times=3)
        broker.delay("Produce", seconds=0.01, times=2)
        send(producer, "orders", *values[at : at + 100])
    assert [message.value for message in broker.messages("orders")] == values


def test_disconnected_clients_come_back(
    broker: PenstockBroker, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    broker.topic("orders")
    producer, consumer = new_producer(broker), new_consumer(broker)
    consumer.assign([TopicPartition("orders", 0, 0)])
    for n in range(2):
        send(producer, "orders", b"%d" % n)
        assert read(consumer, 1)[0].value() == b"%d" % n
        broker.disconnect_clients()


def test_what_was_taken_back_does_not_happen(broker: PenstockBroker, new_producer: NewProducer) -> None:
    broker.topic("orders")
    broker.fail_next("Produce", "INVALID_RECORD", times=100)
    broker.clear_faults()
    assert send(new_producer(broker, retries=0), "orders", b"one") == ["0"]


def test_helpers_of_the_test_meet_no_faults(broker: PenstockBroker) -> None:
    broker.fail_next("Produce", "INVALID_RECORD")
    broker.fail_next("Fetch", "INVALID_RECORD")
    broker.produce("orders", "one")
    assert [message.text for message in broker.messages("orders")] == ["one"]


@pytest.mark.parametrize(
    ("api", "error", "says"),
    [
        ("produce", "INVALID_RECORD", "no API is called 'produce': did you mean Produce"),
        ("Fetsch", "INVALID_RECORD", "did you mean Fetch"),
        ("Produce", "NOT_LEADER_FOR_PARTITION", "no error is called .*: did you mean .*NOT_LEADER_OR_FOLLOWER"),
        ("Produce", "NONE", "no error is called 'NONE'"),
        ("???", "INVALID_RECORD", "there are AddOffsetsToTxn, "),
    ],
)
def test_a_name_that_does_not_exist_is_an_error_with_near_ones(
    broker: PenstockBroker, api: str, error: str, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        broker.fail_next(api, error)


def test_a_fault_that_would_never_happen_is_an_error(broker: PenstockBroker) -> None:
    with pytest.raises(ValueError, match="from 1 on"):
        broker.fail_next("Produce", "INVALID_RECORD", times=0)
    with pytest.raises(ValueError, match="more than"):
        broker.delay("Produce", seconds=0)
