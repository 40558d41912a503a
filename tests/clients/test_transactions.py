"""Transactions as applications use them, with each client: all of what was written can be seen, or none of it."""

from __future__ import annotations

import time
from collections.abc import Callable

import confluent_kafka
import pytest
from confluent_kafka import KafkaException

from penstock.protocol.errors import ErrorCode
from tests.clients.conftest import Topics
from tests.clients.drivers import CLIENTS, Client, Consumer, Refused, read_all, send_all
from tests.clients.drivers.confluent import ConfluentConsumer
from tests.clients.drivers.face import WAIT_S, poll_until
from tests.clients.steps import wait_until
from tests.clients.writers import CONFLUENT, LONG_MS, ConfluentWriter, NewWriter, committed_reader, values_up_to_end

# What each client calls the end of a producer whose place another has taken.
FENCED = {confluent_kafka.KafkaError._FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, -1}


# ---- commit and abort


def test_a_committed_transaction_is_seen_by_all_and_only_then(
    client: Client, bootstrap: str, new_topic: Topics, new_writer: NewWriter
) -> None:
    topic, writer = new_topic(), new_writer()
    careful = committed_reader(client, bootstrap, (topic, 0))
    writer.begin()
    writer.send(topic, b"one")
    writer.send(topic, b"two")
    writer.flush()
    assert [m.value for m in read_all(client, bootstrap, topic, 2)] == [b"one", b"two"]
    assert [m for _ in range(5) for m in careful.poll(0.1)] == []
    writer.commit()
    assert [m.value for m in poll_until(careful, 2)] == [b"one", b"two"]
    careful.close()


def test_an_aborted_transaction_is_seen_by_those_who_asked_for_it(
    client: Client, bootstrap: str, new_topic: Topics, new_writer: NewWriter
) -> None:
    topic, writer = new_topic(), new_writer()
    for value, ends in ((b"first", writer.commit), (b"undone", writer.abort), (b"last", writer.commit)):
        writer.begin()
        writer.send(topic, value)
        writer.flush()
        ends()
    for reader in CLIENTS.values():
        assert values_up_to_end(reader, bootstrap, topic, "read_committed") == [b"first", b"last"]
    assert values_up_to_end(client, bootstrap, topic, "read_uncommitted") == [b"first", b"undone", b"last"]


def test_what_was_never_flushed_is_aborted_too(
    client: Client, bootstrap: str, new_topic: Topics, new_writer: NewWriter
) -> None:
    topic, writer = new_topic(), new_writer()
    writer.begin()
    for n in range(50):
        writer.send(topic, b"%d" % n)
    writer.abort()
    writer.begin()
    writer.send(topic, b"this one counts")
    writer.commit()
    assert values_up_to_end(client, bootstrap, topic, "read_committed") == [b"this one counts"]


def test_transactions_with_nothing_in_them_end_well(
    client: Client, bootstrap: str, new_topic: Topics, new_writer: NewWriter
) -> None:
    topic, writer = new_topic(), new_writer()
    for end in (writer.commit, writer.abort, writer.commit):
        writer.begin()
        end()
    writer.begin()
    writer.send(topic, b"something")
    writer.commit()
    assert values_up_to_end(client, bootstrap, topic, "read_committed") == [b"something"]


def test_hundreds_of_transactions_follow_each_other(
    client: Client, bootstrap: str, new_topic: Topics, new_writer: NewWriter
) -> None:
    topic, writer = new_topic(), new_writer()
    for n in range(150):
        writer.begin()
        writer.send(topic, b"%d" % n)
        if n % 3 == 2:
            writer.flush()
            writer.abort()
        else:
            writer.commit()
    expected = [b"%d" % n for n in range(150) if n % 3 != 2]
    assert values_up_to_end(client, bootstrap, topic, "read_committed") == expected


def test_a_transaction_spans_topics_and_partitions(
    client: Client, bootstrap: str, new_topic: Topics, new_writer: NewWriter
) -> None:
    topics, writer = [new_topic(8) for _ in range(3)], new_writer()
    everywhere = [(topic, partition) for topic in topics for partition in range(8)]
    for value, ends in ((b"kept", writer.commit), (b"undone", writer.abort), (b"kept too", writer.commit)):
        writer.begin()
        for topic, partition in everywhere:
            writer.send(topic, value, partition=partition)
        writer.flush()
        ends()
    careful = committed_reader(client, bootstrap, *everywhere)
    received = poll_until(careful, 2 * len(everywhere))
    careful.close()
    for place in everywhere:
        assert [m.value for m in received if (m.topic, m.partition) == place] == [b"kept", b"kept too"]


def test_transactions_of_two_producers_in_one_partition_end_apart(
    client: Client, bootstrap: str, new_topic: Topics, new_writer: NewWriter
) -> None:
    topic, keeps, undoes = new_topic(), new_writer(), new_writer()
    keeps.begin()
    undoes.begin()
    for n in range(5):
        for writer, value in ((keeps, b"kept %d" % n), (undoes, b"undone %d" % n)):
            writer.send(topic, value)
            writer.flush()
    undoes.abort()
    careful = committed_reader(client, bootstrap, (topic, 0))
    assert [m for _ in range(5) for m in careful.poll(0.1)] == [], "one of them is still open"
    keeps.commit()
    assert [m.value for m in poll_until(careful, 5)] == [b"kept %d" % n for n in range(5)]
    careful.close()


def test_what_comes_behind_an_open_transaction_waits_for_it(
    client: Client, bootstrap: str, new_topic: Topics, new_writer: NewWriter
) -> None:
    """An idempotent producer without transactions writes to the same partition meanwhile."""
    topic, writer = new_topic(), new_writer()
    send_all(client, bootstrap, topic, [b"before"], idempotent=True)
    writer.begin()
    writer.send(topic, b"within")
    writer.flush()
    send_all(client, bootstrap, topic, [b"behind"], idempotent=True)
    careful = committed_reader(client, bootstrap, (topic, 0))
    assert [m.value for m in poll_until(careful, 1)] == [b"before"]
    assert [m for _ in range(5) for m in careful.poll(0.1)] == []
    writer.commit()
    assert [m.value for m in poll_until(careful, 2)] == [b"within", b"behind"]
    careful.close()


# ---- offsets


def test_offsets_are_committed_with_the_transaction_or_not_at_all(
    client: Client, bootstrap: str, new_topic: Topics, new_writer: NewWriter, unique: Callable[[str], str]
) -> None:
    source, target, group = new_topic(), new_topic(), unique("group")
    send_all(CONFLUENT, bootstrap, source, [b"%d" % n for n in range(10)])
    consumer = client.consumer(bootstrap, group=group)
    consumer.subscribe(source)
    poll_until(consumer, 10)
    writer = new_writer()
    for offset, ends, expected in ((4, writer.abort, None), (7, writer.commit, 7), (9, writer.abort, 7)):
        writer.begin()
        writer.send(target, b"up to %d" % offset)
        writer.add_offsets(consumer, group, {(source, 0): offset})
        ends()
        wait_until(lambda expected=expected: offset_of(consumer, source) == expected)
    consumer.close()
    assert values_up_to_end(client, bootstrap, target, "read_committed") == [b"up to 7"]


def offset_of(consumer: Consumer, topic: str) -> int | None:
    found = consumer.committed((topic, 0))
    return None if found is None else found.offset


def test_offsets_of_a_member_that_is_gone_are_refused(
    bootstrap: str, new_topic: Topics, unique: Callable[[str], str]
) -> None:
    """A zombie's transaction can't move the group on (KIP-447)."""
    source, group = new_topic(), unique("group")
    send_all(CONFLUENT, bootstrap, source, [b"%d" % n for n in range(10)])
    gone, stays = (CONFLUENT.consumer(bootstrap, group=group, session_timeout_ms=6000) for _ in range(2))
    gone.subscribe(source)
    poll_until(gone, 10)
    assert isinstance(gone, ConfluentConsumer)
    membership = gone.membership
    gone.close()
    stays.subscribe(source)
    poll_until(stays, 10)
    writer = ConfluentWriter(bootstrap, unique("writer"), LONG_MS)
    writer.begin()
    places = [confluent_kafka.TopicPartition(source, 0, 5)]
    with pytest.raises(KafkaException) as refused:
        writer._producer.send_offsets_to_transaction(places, membership, WAIT_S)
    assert refused.value.args[0].txn_requires_abort()
    writer.abort()
    writer.close()
    assert stays.committed((source, 0)) is None
    stays.close()


# ---- whose transaction it is


def test_a_second_producer_with_the_same_id_fences_the_first(
    client: Client, bootstrap: str, new_topic: Topics, new_writer: NewWriter, unique: Callable[[str], str]
) -> None:
    topic, identity = new_topic(), unique("writer")
    first = new_writer(identity)
    first.begin()
    first.send(topic, b"of the first")
    first.flush()
    second = new_writer(identity)
    with pytest.raises(Refused) as refused:
        first.commit()
    assert refused.value.code in FENCED
    second.begin()
    second.send(topic, b"of the second")
    second.commit()
    assert values_up_to_end(client, bootstrap, topic, "read_committed") == [b"of the second"]
    assert values_up_to_end(client, bootstrap, topic, "read_uncommitted") == [b"of the first", b"of the second"]


def test_a_transaction_that_takes_too_long_is_aborted(
    client: Client, bootstrap: str, new_topic: Topics, new_writer: NewWriter, unique: Callable[[str], str]
) -> None:
    topic, identity = new_topic(), unique("writer")
    slow = new_writer(identity, timeout_ms=1000)
    slow.begin()
    slow.send(topic, b"too late")
    slow.flush()
    began = time.monotonic()
    assert values_up_to_end(client, bootstrap, topic, "read_committed") == [], "it waits for the time-out"
    assert time.monotonic() - began > 0.3
    with pytest.raises(Refused):
        slow.commit()
    again = new_writer(identity)
    again.begin()
    again.send(topic, b"in time")
    again.commit()
    assert values_up_to_end(client, bootstrap, topic, "read_committed") == [b"in time"]


def test_a_time_out_beyond_the_brokers_limit_is_refused(bootstrap: str, unique: Callable[[str], str]) -> None:
    with pytest.raises(Refused) as refused:
        ConfluentWriter(bootstrap, unique("writer"), 16 * 60_000)
    assert refused.value.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
