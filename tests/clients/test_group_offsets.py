"""Committed offsets: where a group goes on, whoever reads next, and whatever happens to the broker."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import kafka
import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition
from kafka import KafkaConsumer
from kafka.structs import OffsetAndMetadata

from penstock.protocol.errors import ErrorCode
from tests.brokers import BrokerProcess
from tests.clients.conftest import Topics
from tests.clients.drivers import CLIENTS, Client, Commit, Outgoing, Refused, send_all
from tests.clients.drivers.face import poll_until
from tests.clients.members import Member
from tests.clients.steps import create_topic, wait_until

CONFLUENT = CLIENTS["confluent"]


@pytest.fixture
def group(unique: Callable[[str], str]) -> str:
    return unique("group")


def test_a_group_goes_on_where_it_committed(client: Client, bootstrap: str, new_topic: Topics, group: str) -> None:
    topic = new_topic()
    send_all(CONFLUENT, bootstrap, topic, [b"%d" % n for n in range(10)])
    consumer = client.consumer(bootstrap, group=group)
    consumer.subscribe(topic)
    poll_until(consumer, 10)
    consumer.commit({(topic, 0): Commit(7)})
    consumer.close()
    again = client.consumer(bootstrap, group=group)
    again.subscribe(topic)
    assert [m.value for m in poll_until(again, 3)] == [b"7", b"8", b"9"]
    again.close()


def test_committing_without_saying_what_commits_what_was_read(
    client: Client, bootstrap: str, new_topic: Topics, group: str
) -> None:
    topic = new_topic()
    send_all(CONFLUENT, bootstrap, topic, [b"%d" % n for n in range(10)])
    consumer = client.consumer(bootstrap, group=group)
    consumer.subscribe(topic)
    poll_until(consumer, 10)
    consumer.commit()
    committed = consumer.committed((topic, 0))
    assert committed is not None
    assert committed.offset == 10
    consumer.close()


def test_a_group_that_never_committed_has_no_offsets(
    client: Client, bootstrap: str, new_topic: Topics, group: str
) -> None:
    topic = new_topic()
    consumer = client.consumer(bootstrap, group=group)
    consumer.assign((topic, 0))
    assert consumer.committed((topic, 0)) is None
    consumer.close()


def test_a_commit_carries_a_note(client: Client, bootstrap: str, new_topic: Topics, group: str) -> None:
    topic = new_topic()
    consumer = client.consumer(bootstrap, group=group)
    consumer.assign((topic, 0))
    consumer.commit({(topic, 0): Commit(3, "host-7, žluť")})
    consumer.close()
    reader = CONFLUENT.consumer(bootstrap, group=group)
    assert reader.committed((topic, 0)) == Commit(3, "host-7, žluť")
    reader.close()


def test_a_note_that_is_too_long_is_refused(client: Client, bootstrap: str, new_topic: Topics, group: str) -> None:
    topic = new_topic()
    consumer = client.consumer(bootstrap, group=group)
    consumer.assign((topic, 0))
    consumer.commit({(topic, 0): Commit(1, "x" * 4095)})
    with pytest.raises(Refused) as refusal:
        consumer.commit({(topic, 0): Commit(2, "x" * 4097)})
    assert refusal.value.code == ErrorCode.OFFSET_METADATA_TOO_LARGE
    committed = consumer.committed((topic, 0))
    assert committed is not None
    assert committed.offset == 1
    consumer.close()


def test_an_assigned_consumer_commits_for_a_group_without_members(
    client: Client, bootstrap: str, new_topic: Topics, group: str
) -> None:
    topic = new_topic(partitions=3)
    consumer = client.consumer(bootstrap, group=group)
    consumer.assign((topic, 0), (topic, 2))
    consumer.commit({(topic, 0): Commit(11), (topic, 2): Commit(22)})
    consumer.close()
    other = client.consumer(bootstrap, group=group)
    other.assign((topic, 0), (topic, 1), (topic, 2))
    found = [other.committed((topic, n)) for n in range(3)]
    assert [commit and commit.offset for commit in found] == [11, None, 22]
    other.close()


def test_offsets_of_two_groups_are_apart(client: Client, bootstrap: str, new_topic: Topics, group: str) -> None:
    topic = new_topic()
    for name, offset in ((group, 5), (group + "-other", 9)):
        consumer = client.consumer(bootstrap, group=name)
        consumer.assign((topic, 0))
        consumer.commit({(topic, 0): Commit(offset)})
        consumer.close()
    for name, offset in ((group, 5), (group + "-other", 9)):
        consumer = client.consumer(bootstrap, group=name)
        consumer.assign((topic, 0))
        committed = consumer.committed((topic, 0))
        assert committed is not None
        assert committed.offset == offset
        consumer.close()


def test_a_commit_that_nobody_waits_for_calls_back(bootstrap: str, new_topic: Topics, group: str) -> None:
    topic = new_topic()
    answers: list[object] = []

    def committed(error: object, partitions: list[TopicPartition]) -> None:
        answers.append((error, [(p.partition, p.offset, p.error) for p in partitions]))

    consumer = ConfluentConsumer({"bootstrap.servers": bootstrap, "group.id": group, "on_commit": committed})
    consumer.assign([TopicPartition(topic, 0)])
    consumer.commit(offsets=[TopicPartition(topic, 0, 42)], asynchronous=True)
    wait_until(lambda: consumer.poll(0.05) is None and answers)
    assert answers == [(None, [(0, 42, None)])]
    consumer.close()


def test_kafka_python_commits_without_waiting_too(bootstrap: str, new_topic: Topics, group: str) -> None:
    topic = new_topic()
    answers: list[object] = []
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    assert consumer.committed(partition) is None  # it knows its coordinator now, for which the other does not wait
    consumer.commit_async({partition: OffsetAndMetadata(42, "", -1)}, lambda _, answer: answers.append(answer))
    wait_until(lambda: consumer.poll(50) == {} and answers)
    assert not isinstance(answers[0], Exception)
    assert consumer.committed(partition) == 42
    consumer.close()


def test_auto_commit_stores_what_was_read_when_the_consumer_closes(
    bootstrap: str, new_topic: Topics, group: str
) -> None:
    topic = new_topic()
    send_all(CONFLUENT, bootstrap, topic, [b"%d" % n for n in range(5)])
    consumer = CONFLUENT.consumer(bootstrap, group=group, **{"enable.auto.commit": True})
    consumer.subscribe(topic)
    poll_until(consumer, 5)
    consumer.close()
    reader = CONFLUENT.consumer(bootstrap, group=group)
    assert reader.committed((topic, 0)) == Commit(5)
    reader.close()


def test_a_stranger_may_not_commit_for_a_group_that_has_members(
    client: Client, quick_bootstrap: str, new_topic: Topics, group: str
) -> None:
    topic = new_topic(at=quick_bootstrap)
    member = Member(client, quick_bootstrap, group, topic)
    wait_until(lambda: member.owned)
    stranger = client.consumer(quick_bootstrap, group=group)
    stranger.assign((topic, 0))
    with pytest.raises(Refused) as refusal:
        stranger.commit({(topic, 0): Commit(1)})
    # Clients make of the broker's answer what they like: the commit failed.
    assert refusal.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, -1)
    stranger.close()
    member.close()


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_offsets_survive_the_broker(
    how: str, client: Client, new_broker: Callable[..., BrokerProcess], group: str
) -> None:
    broker = new_broker()
    topic = create_topic(broker.bootstrap, "kept", 2)
    consumer = client.consumer(broker.bootstrap, group=group)
    consumer.assign((topic, 0), (topic, 1))
    consumer.commit({(topic, 0): Commit(5, "first"), (topic, 1): Commit(6)})
    consumer.commit({(topic, 0): Commit(7, "second")})
    consumer.close()
    if how == "stop":
        assert broker.stop() == 0
    else:
        broker.kill()
    broker.start()
    reader = CONFLUENT.consumer(broker.bootstrap, group=group)
    assert reader.committed((topic, 0)) == Commit(7, "second")
    assert reader.committed((topic, 1)) == Commit(6)
    reader.close()


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_producer_and_consumer_go_on_when_the_broker_comes_back(
    how: str, client: Client, new_broker: Callable[..., BrokerProcess], group: str
) -> None:
    broker = new_broker(group_min_session_timeout_ms=100)
    topic = create_topic(broker.bootstrap, "kept", 2)
    with closing(client.producer(broker.bootstrap, idempotent=True)) as producer:
        member = Member(client, broker.bootstrap, group, topic, session_timeout_ms=3000)
        for n in range(20):
            producer.send(topic, Outgoing(b"%d" % n, partition=n % 2))
        producer.finish()
        wait_until(lambda: len(member.received) == 20)
        if how == "stop":
            assert broker.stop() == 0
        else:
            broker.kill()
        broker.start()
        for n in range(20, 40):
            producer.send(topic, Outgoing(b"%d" % n, partition=n % 2))
        placed = producer.finish()
        assert [(p.partition, p.offset) for p in placed] == [(n % 2, n // 2) for n in range(20, 40)]
        wait_until(lambda: {b"%d" % n for n in range(40)} <= set(member.values))
        for partition in range(2):
            offsets = [m.offset for m in member.received if m.partition == partition]
            assert sorted(set(offsets)) == list(range(20))
        member.close()
