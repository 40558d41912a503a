"""What a delivery permits happens, where another prevents it: so the promises are kept by the delivery, not by luck.

The kill of a consumer is in test_delivery_under_faults; these are the faults of a producer, and a group balanced anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from penstock.client import Consumer, DeliveryName, PenstockError, Producer, TransactionAborted
from penstock.testing import PenstockBroker

WAIT_S = 20.0
BEATS = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 5_000}  # so rarely that a member is seldom told anything


@pytest.fixture
def broker() -> Iterator[PenstockBroker]:
    with PenstockBroker(group_initial_rebalance_delay_ms=0) as broker:
        yield broker


def stored(broker: PenstockBroker) -> list[str]:
    return [message.text for message in broker.messages("orders")]


@pytest.mark.parametrize(("delivery", "arrives"), [("at-most-once", False), ("at-least-once", True)])
def test_a_message_that_a_broker_refuses_once(broker: PenstockBroker, delivery: DeliveryName, arrives: bool) -> None:
    broker.topic("orders")
    broker.fail_next("Produce", "REQUEST_TIMED_OUT")  # whether it is stored, the producer can not know
    with Producer(broker.bootstrap, delivery=delivery) as producer:
        sent = producer.send("orders", "1")
        if arrives:
            sent.result(WAIT_S)
        else:
            with pytest.raises(PenstockError, match="may be in the topic all the same"):
                sent.result(WAIT_S)
    assert stored(broker) == ["1"] * arrives


@pytest.mark.parametrize(("delivery", "is_told"), [("at-most-once", False), ("at-least-once", True)])
def test_a_message_whose_acknowledgement_is_lost_is_stored_once(
    broker: PenstockBroker, delivery: DeliveryName, is_told: bool
) -> None:
    broker.topic("orders")
    broker.lose_answer("Produce")
    with Producer(broker.bootstrap, delivery=delivery) as producer:
        sent = producer.send("orders", "1")
        if is_told:
            sent.result(WAIT_S)
        else:
            with pytest.raises(PenstockError, match="may be in the topic all the same"):
                sent.result(WAIT_S)
    assert stored(broker) == ["1"]


def consumer(broker: PenstockBroker, delivery: DeliveryName) -> Consumer[bytes, str]:
    return Consumer(
        broker.bootstrap, "readers", "orders", delivery=delivery, value="text", commit_interval_s=100, settings=BEATS
    )


@pytest.mark.parametrize(
    ("delivery", "processed"),
    [("at-most-once", {"0": 1, "1": 1}), ("at-least-once", {"0": 2, "1": 2, "2": 1, "3": 1, "4": 1})],
)
def test_a_member_that_the_group_has_given_up(
    broker: PenstockBroker, delivery: DeliveryName, processed: dict[str, int]
) -> None:
    broker.produce("orders", *(str(number) for number in range(5)))
    first, second = consumer(broker, delivery), consumer(broker, delivery)
    seen = [message.value for message in first.messages(count=2, timeout=WAIT_S)]
    broker.advance(seconds=10)
    with second:
        seen += [message.value for message in second.messages(count=second.lag, timeout=WAIT_S)]
    assert Counter(seen) == processed
    try:
        first.close()
    except PenstockError:
        pass  # what it has processed is no longer its own to commit


def test_exactly_once_where_the_group_has_given_a_member_up(broker: PenstockBroker) -> None:
    broker.produce("orders", *(str(number) for number in range(5)))
    first, second = consumer(broker, "exactly-once"), consumer(broker, "exactly-once")
    with (
        Producer(broker.bootstrap, delivery="exactly-once") as one,
        Producer(broker.bootstrap, delivery="exactly-once") as other,
        second,
    ):
        copy(first, one, 2, broker)
        copy(second, other, 5)
        try:
            first.close()
        except PenstockError:
            pass
    assert sorted(message.text for message in broker.messages("bills")) == ["0", "1", "2", "3", "4"]


def copy(
    consumer: Consumer[bytes, str], producer: Producer, count: int, given_up: PenstockBroker | None = None
) -> None:
    try:
        with consumer.transaction(producer) as txn:
            for message in txn.messages(count=count, timeout=WAIT_S):
                txn.send("bills", message.value)
            if given_up is not None:
                given_up.advance(seconds=10)
    except TransactionAborted:
        assert given_up is not None
    else:
        assert given_up is None, "what another member will read again was committed"
