"""Commits of handlers that nobody waits for: one that got no answer, one that was refused, and no broker at all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from penstock.client.consumer import Consumer
from penstock.client.message import Message
from penstock.testing.broker import PenstockBroker
from tests.client.retrying.conftest import committed, running, wait_until

INTERVAL_S = 0.1
QUICK = {"retry.backoff.ms": 10, "retry.backoff.max.ms": 10, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 20}


@pytest.fixture(scope="module")
def broker() -> Iterator[PenstockBroker]:
    with PenstockBroker(group_initial_rebalance_delay_ms=0) as broker:
        yield broker


@pytest.fixture
def topic(broker: PenstockBroker, unique: Callable[[str], str]) -> Iterator[str]:
    name = unique("orders")
    broker.topic(name)
    broker.produce(name, b"0", b"1")
    yield name
    broker.clear_faults()


def handling(broker: PenstockBroker, topic: str, group: str) -> tuple[Consumer[bytes, bytes], list[int]]:
    consumer: Consumer[bytes, bytes] = Consumer(
        broker.bootstrap, group, topic, commit_interval_s=INTERVAL_S, settings=QUICK
    )
    done: list[int] = []

    @consumer.handler(dead_letter=True)
    def handle(message: Message[bytes, bytes]) -> None:
        done.append(message.offset)

    return consumer, done


def test_a_commit_that_is_sent_again_does_not_land_behind_the_last_one(
    broker: PenstockBroker, topic: str, group: str
) -> None:
    consumer, done = handling(broker, topic, group)
    with running(consumer):
        wait_until(lambda: committed(broker.bootstrap, group, topic)[0][0] == 2, "committed")
        broker.lose_answer("OffsetCommit")
        broker.produce(topic, b"2")
        wait_until(lambda: committed(broker.bootstrap, group, topic)[0][0] == 3, "committed without an answer")
        broker.produce(topic, b"3")
        wait_until(lambda: len(done) == 4, "handled")
    assert committed(broker.bootstrap, group, topic) == [(4, "")]


def test_a_commit_that_was_refused_is_made_again_though_nothing_comes(
    broker: PenstockBroker, topic: str, group: str
) -> None:
    consumer, done = handling(broker, topic, group)
    with running(consumer):
        wait_until(lambda: committed(broker.bootstrap, group, topic)[0][0] == 2, "committed")
        broker.fail_next("OffsetCommit", "REBALANCE_IN_PROGRESS")
        broker.produce(topic, b"2")
        wait_until(lambda: committed(broker.bootstrap, group, topic)[0][0] == 3, "committed again")
        assert done == [0, 1, 2]


@pytest.mark.parametrize("handles", [True, False])
def test_a_consumer_ends_though_the_brokers_are_gone(group: str, handles: bool) -> None:
    with PenstockBroker(group_initial_rebalance_delay_ms=0) as broker:
        broker.topic("orders")
        broker.produce("orders", b"0")
        consumer, done = handling(broker, "orders", group)
        consumer.reader.commits.committer.timeout_s = 0.2
        if not handles:
            for _ in consumer.messages(1):
                broker.kill()
            consumer.reader.count_in_hand()
            began_s = time.monotonic()
            with pytest.raises(Exception, match="No answer"):
                consumer.close()
        else:
            with running(consumer):
                wait_until(lambda: done, "handled")
                broker.kill()
                time.sleep(2 * INTERVAL_S)
                began_s = time.monotonic()
        assert time.monotonic() - began_s < 6
