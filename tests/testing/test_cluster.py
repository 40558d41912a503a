"""Three brokers in this process: they replicate, take over and come back, and forget nothing that was acknowledged."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer

from penstock.testing import PenstockCluster
from tests.testing.conftest import WAIT_S, read, send
from tests.testing.test_time import state_of

NewProducer = Callable[..., Producer]
NewConsumer = Callable[..., Consumer]


def test_brokers_replicate(cluster: PenstockCluster) -> None:
    cluster.topic("orders", partitions=3)
    assert sorted(cluster.brokers) == [1, 2, 3]
    assert all(each.is_up and each.bootstrap in cluster.bootstrap for each in cluster.brokers.values())
    written = cluster.produce("orders", *range(30))
    assert sorted(cluster.messages("orders"), key=lambda each: int(each.text)) == written
    assert [cluster.in_sync("orders", index) for index in range(3)] == [[1, 2, 3]] * 3
    assert {cluster.leader("orders", index) for index in range(3)} == {1, 2, 3}


def test_another_broker_takes_over_from_one_that_was_killed(
    cluster: PenstockCluster, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    cluster.topic("orders", min_insync_replicas=2)
    producer, consumer = new_producer(cluster), new_consumer(cluster, "orders")
    expected: list[bytes] = []
    for leader in (cluster.leader("orders"), None):
        values = [b"%d" % (len(expected) + n) for n in range(20)]
        expected += values
        send(producer, "orders", *values)
        if leader is not None:
            cluster.kill(leader)
            assert not cluster.brokers[leader].is_up
            assert cluster.leader("orders") != leader
    assert [message.value for message in cluster.messages("orders")] == expected
    assert [message.value() for message in read(consumer, len(expected))] == expected


def test_a_broker_that_comes_back_catches_up_and_may_lead(cluster: PenstockCluster, new_producer: NewProducer) -> None:
    cluster.topic("orders", min_insync_replicas=2)
    producer = new_producer(cluster)
    send(producer, "orders", b"0")
    for n, number in enumerate((1, 2, 3), start=1):
        address = cluster.brokers[number].bootstrap
        cluster.kill(number)
        send(producer, "orders", b"%d" % n)
        cluster.start(number)
        assert cluster.brokers[number].bootstrap == address
        cluster.wait_until_in_sync()
        assert cluster.in_sync("orders") == [1, 2, 3]
    assert [message.text for message in cluster.messages("orders")] == ["0", "1", "2", "3"]


def test_too_few_replicas_take_nothing_with_acks_all(cluster: PenstockCluster, new_producer: NewProducer) -> None:
    cluster.topic("orders", min_insync_replicas=2)
    send(producer := new_producer(cluster, message_timeout_ms=1000), "orders", b"one")
    leader = cluster.leader("orders")
    others = [number for number in cluster.brokers if number != leader]
    for number in others:
        cluster.kill(number)
    assert send(producer, "orders", b"two") == ["_MSG_TIMED_OUT"]
    for number in others:
        cluster.start(number)
    cluster.wait_until_in_sync()
    assert send(new_producer(cluster), "orders", b"three") == ["1"]


def test_a_broker_that_stops_hands_over_first(cluster: PenstockCluster) -> None:
    cluster.topic("orders")
    cluster.produce("orders", "one")
    leader = cluster.leader("orders")
    cluster.stop(leader)
    assert cluster.leader("orders") != leader
    cluster.produce("orders", "two")
    assert [message.text for message in cluster.messages("orders")] == ["one", "two"]


def test_groups_and_transactions_survive_their_coordinator(
    cluster: PenstockCluster, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    producer = new_producer(cluster, transactional_id="t")
    producer.init_transactions(WAIT_S)
    consumer = new_consumer(cluster, "orders", enable_auto_commit=False, isolation_level="read_committed")
    for n, number in enumerate((1, 2)):
        producer.begin_transaction()
        producer.produce("orders", b"%d" % n)
        producer.commit_transaction(WAIT_S)
        assert read(consumer, 1)[0].value() == b"%d" % n
        consumer.commit(asynchronous=False)
        cluster.kill(number)
        cluster.start(number)
        cluster.wait_until_in_sync()
    assert [message.text for message in cluster.messages("orders")] == ["0", "1"]


def test_time_and_faults_are_those_of_all_brokers(cluster: PenstockCluster, new_producer: NewProducer) -> None:
    cluster.topic("orders", partitions=3, retention_ms=3_600_000)
    producer = new_producer(cluster, retries=0)
    cluster.fail_next("Produce", "INVALID_RECORD", times=2)
    outcomes = [send(producer, "orders", b"x")[0] for _ in range(6)]
    assert outcomes[:2] == ["INVALID_RECORD"] * 2
    assert "INVALID_RECORD" not in outcomes[2:]
    cluster.fail_next("Fetch", "UNKNOWN_SERVER_ERROR", times=1000)  # not of brokers among themselves
    cluster.produce("orders", *range(6))
    cluster.clear_faults()
    cluster.advance(hours=2)
    assert cluster.messages("orders") == []
    assert [cluster.in_sync("orders", index) for index in range(3)] == [[1, 2, 3]] * 3
    cluster.disconnect_clients()
    cluster.produce("orders", "after")


def test_a_group_loses_its_members_by_time(cluster: PenstockCluster, new_consumer: NewConsumer) -> None:
    cluster.produce("orders", "one")
    read(new_consumer(cluster, "orders", heartbeat_interval_ms=40_000), 1)
    assert state_of(cluster, "readers")[1] == 1
    cluster.advance(minutes=1)
    assert state_of(cluster, "readers")[1] == 0


def test_nothing_is_left_of_a_cluster() -> None:
    def one() -> None:
        with PenstockCluster() as cluster:
            cluster.topic("orders", partitions=3)
            cluster.produce("orders", *range(3))
            cluster.kill(2)
            cluster.start(2)

    one()
    gc.collect()
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        one()
    gc.collect()
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) <= files


def test_mistakes_say_what_to_do(cluster: PenstockCluster) -> None:
    with pytest.raises(ValueError, match="there is no broker 4: there are 1, 2, 3"):
        cluster.kill(4)
    with pytest.raises(RuntimeError, match="broker 1 is running"):
        cluster.start(1)
    with pytest.raises(ValueError, match="no topic 'orders'"):
        cluster.leader("orders")
    cluster.topic("orders", replication_factor=1)
    with pytest.raises(ValueError, match="and no 1"):
        cluster.leader("orders", 1)
    with pytest.raises(ValueError, match="1 to 9 brokers"):
        PenstockCluster(brokers=0)
