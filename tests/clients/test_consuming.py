"""Consuming without a group's help, and what a consumer may do with its place in a partition."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.clients.conftest import Topics
from tests.clients.drivers import CLIENTS, Client, Outgoing, Refused, read_all, send_all
from tests.clients.drivers.face import Consumer, poll_until
from tests.clients.steps import create_topic, wait_until
from tests.clients.wire import Wire, batch_of, fetch_request

CONFLUENT = CLIENTS["confluent"]


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, last)]


def values(messages: object) -> list[bytes]:
    return [m.value for m in messages]


def delete_records(wire: Wire, topic: str, before: int) -> None:
    partition = DeleteRecordsPartition(partition_index=0, offset=before)
    asked = DeleteRecordsTopic(name=topic, partitions=[partition])
    response = wire.ask(DeleteRecordsRequest(topics=[asked], timeout_ms=10_000))
    assert response.topics[0].partitions[0].error_code == ErrorCode.NONE


def test_a_subscription_gets_everything_in_the_topic(
    client: Client, bootstrap: str, new_topic: Topics, unique: Callable[[str], str]
) -> None:
    topic = new_topic(partitions=3)
    send_all(CONFLUENT, bootstrap, topic, [Outgoing(b"%d" % n, partition=n % 3) for n in range(90)])
    consumer = client.consumer(bootstrap, group=unique("group"))
    consumer.subscribe(topic)
    assert sorted(int(m.value or b"") for m in poll_until(consumer, 90)) == list(range(90))
    assert consumer.assignment() == {(topic, 0), (topic, 1), (topic, 2)}
    consumer.close()


def test_an_assigned_partition_is_all_that_is_read(client: Client, bootstrap: str, new_topic: Topics) -> None:
    topic = new_topic(partitions=3)
    send_all(CONFLUENT, bootstrap, topic, [Outgoing(b"%d" % n, partition=n % 3) for n in range(30)])
    received = read_all(client, bootstrap, topic, 10, partitions=[1])
    assert values(received) == [b"%d" % n for n in range(1, 30, 3)]
    assert {m.partition for m in received} == {1}


def test_a_new_consumer_may_begin_at_the_end(
    client: Client, bootstrap: str, new_topic: Topics, unique: Callable[[str], str]
) -> None:
    topic = new_topic()
    send_all(CONFLUENT, bootstrap, topic, numbers(0, 5))
    consumer = client.consumer(bootstrap, group=unique("group"), reset="latest")
    consumer.assign((topic, 0))
    deadline = time.monotonic() + 20
    received: list[bytes] = []
    sent = 5
    while not received:  # until the consumer has found the end, what is sent lies before it
        assert time.monotonic() < deadline
        send_all(CONFLUENT, bootstrap, topic, numbers(sent, sent + 1))
        sent += 1
        received += values(consumer.poll(0.2))
    assert int(received[0]) >= 5
    consumer.close()


def test_seeking_goes_back_and_forth(client: Client, bootstrap: str, new_topic: Topics) -> None:
    topic = new_topic()
    send_all(CONFLUENT, bootstrap, topic, numbers(0, 100))
    consumer = client.consumer(bootstrap)
    consumer.assign((topic, 0))
    assert values(poll_until(consumer, 100)) == numbers(0, 100)
    for offset in (90, 10, 99):
        consumer.seek((topic, 0), offset)
        assert values(poll_until(consumer, 100 - offset)) == numbers(offset, 100)
    assert consumer.position((topic, 0)) == 100
    consumer.close()


def test_a_fetch_from_inside_a_batch_gives_the_messages_from_there(
    client: Client, bootstrap: str, new_topic: Topics, wire: Wire
) -> None:
    topic = new_topic()
    for first in range(0, 30, 10):
        wire.produce(topic, batch_of(*numbers(first, first + 10)))
    consumer = client.consumer(bootstrap)
    consumer.assign((topic, 0))
    poll_until(consumer, 30)
    consumer.seek((topic, 0), 17)
    received = poll_until(consumer, 13)
    assert [m.offset for m in received] == list(range(17, 30))
    assert values(received) == numbers(17, 30)
    consumer.close()


def test_a_fetch_from_inside_a_batch_returns_the_whole_batch(new_topic: Topics, wire: Wire) -> None:
    topic = new_topic()
    first, second = batch_of(*numbers(0, 10)), batch_of(*numbers(10, 20))
    wire.produce(topic, first)
    wire.produce(topic, second)
    assert len(wire.fetch(topic, 9).records) == len(first) + len(second)
    assert len(wire.fetch(topic, 10).records) == len(second)
    assert len(wire.fetch(topic, 20, wait_ms=0).records) == 0


def test_a_paused_partition_is_silent_until_it_is_resumed(client: Client, bootstrap: str, new_topic: Topics) -> None:
    topic = new_topic(partitions=2)
    consumer = client.consumer(bootstrap)
    consumer.assign((topic, 0), (topic, 1))
    send_all(CONFLUENT, bootstrap, topic, [Outgoing(b"before", partition=0), Outgoing(b"before", partition=1)])
    poll_until(consumer, 2)
    consumer.pause((topic, 0))
    send_all(CONFLUENT, bootstrap, topic, [Outgoing(b"after", partition=0), Outgoing(b"after", partition=1)])
    heard = poll_until(consumer, 1) + consumer.poll(0.3)
    assert [m.partition for m in heard] == [1]
    consumer.resume((topic, 0))
    assert [(m.partition, m.value) for m in poll_until(consumer, 1)] == [(0, b"after")]
    consumer.close()


def test_a_time_leads_to_the_first_message_not_older_than_it(client: Client, bootstrap: str, new_topic: Topics) -> None:
    topic = new_topic()
    start = 1_700_000_000_000
    send_all(client, bootstrap, topic, [Outgoing(b"%d" % n, timestamp_ms=start + n * 1000) for n in range(50)])
    consumer = client.consumer(bootstrap)
    consumer.assign((topic, 0))
    assert consumer.offset_at((topic, 0), start) == 0
    assert consumer.offset_at((topic, 0), start - 5) == 0
    assert consumer.offset_at((topic, 0), start + 20_000) == 20
    assert consumer.offset_at((topic, 0), start + 20_001) == 21
    assert consumer.offset_at((topic, 0), start + 49_000) == 49
    assert consumer.offset_at((topic, 0), start + 49_001) is None
    consumer.seek((topic, 0), consumer.offset_at((topic, 0), start + 45_500) or 0)
    assert values(poll_until(consumer, 4)) == numbers(46, 50)
    consumer.close()


def test_a_time_is_found_inside_a_compressed_batch(client: Client, bootstrap: str, new_topic: Topics) -> None:
    topic = new_topic()
    start = 1_700_000_000_000
    messages = [Outgoing(b"%d" % n, timestamp_ms=start + n * 1000) for n in range(50)]
    send_all(CONFLUENT, bootstrap, topic, messages, compression="lz4", linger_ms=100)
    consumer = client.consumer(bootstrap)
    consumer.assign((topic, 0))
    assert consumer.offset_at((topic, 0), start + 33_000) == 33
    consumer.close()


def test_beginning_and_end_of_a_partition(client: Client, bootstrap: str, new_topic: Topics, wire: Wire) -> None:
    topic = new_topic()
    consumer = client.consumer(bootstrap)
    consumer.assign((topic, 0))
    assert consumer.ends((topic, 0)) == (0, 0)
    send_all(CONFLUENT, bootstrap, topic, numbers(0, 10))
    assert consumer.ends((topic, 0)) == (0, 10)
    delete_records(wire, topic, 4)
    assert consumer.ends((topic, 0)) == (4, 10)
    consumer.close()
    assert values(read_all(client, bootstrap, topic, 6)) == numbers(4, 10)


def test_a_message_larger_than_the_most_a_fetch_may_carry_still_comes(
    client: Client, bootstrap: str, new_topic: Topics
) -> None:
    topic = new_topic()
    sent = [bytes([n]) * 50_000 for n in range(5)]
    send_all(client, bootstrap, topic, sent)
    assert values(read_all(client, bootstrap, topic, 5, fetch_bytes=1_000)) == sent


def test_a_fetch_carries_no_more_than_was_asked_for(new_topic: Topics, wire: Wire) -> None:
    topic = new_topic(partitions=2)
    batch = batch_of(bytes(10_000))
    for _ in range(10):
        wire.produce(topic, batch)
    assert len(wire.fetch(topic, 0, max_bytes=35_000).records) <= 35_000
    assert len(wire.fetch(topic, 0, max_bytes=35_000).records) >= 3 * len(batch)
    # Less than a batch still brings one, or a consumer could never go on (KIP-74).
    assert len(wire.fetch(topic, 0, max_bytes=1).records) == len(batch)


def test_the_limit_of_a_whole_fetch_holds_over_all_its_partitions(new_topic: Topics, wire: Wire) -> None:
    topic = new_topic(partitions=4)
    batch = batch_of(bytes(10_000))
    for partition in range(4):
        wire.produce(topic, batch, partition=partition)
    request = fetch_request(topic, 0, max_bytes=25_000)
    only = request.topics[0].partitions[0]
    request.topics[0].partitions = [
        type(only)(partition=n, fetch_offset=0, partition_max_bytes=1 << 20) for n in range(4)
    ]
    response = wire.ask(request, 12)
    sizes = [len(p.records or b"") for topic in response.responses for p in topic.partitions]
    assert sum(sizes) <= 25_000
    assert sizes.count(len(batch)) == 2


def test_a_pattern_subscribes_to_topics_that_exist_and_to_those_that_come(
    client: Client, bootstrap: str, unique: Callable[[str], str]
) -> None:
    prefix = unique("pattern")
    create_topic(bootstrap, f"{prefix}-1")
    create_topic(bootstrap, f"other-{prefix}")
    send_all(CONFLUENT, bootstrap, f"{prefix}-1", [b"one"])
    send_all(CONFLUENT, bootstrap, f"other-{prefix}", [b"not this"])
    consumer = client.consumer(bootstrap, group=unique("group"), metadata_max_age_ms=200)
    consumer.subscribe(pattern=f"^{prefix}-.*")
    assert values(poll_until(consumer, 1)) == [b"one"]
    create_topic(bootstrap, f"{prefix}-2")
    send_all(CONFLUENT, bootstrap, f"{prefix}-2", [b"two"])
    received: list[bytes] = []

    def both_topics_are_read() -> bool:
        received.extend(values(consumer.poll()))
        return b"two" in received

    wait_until(both_topics_are_read)
    assert b"not this" not in received
    assert {topic for topic, _ in consumer.assignment()} == {f"{prefix}-1", f"{prefix}-2"}
    consumer.close()


def begin_out_of_range(consumer: Consumer, topic: str, offset: int) -> None:
    consumer.assign((topic, 0))
    poll_until(consumer, 6)
    consumer.seek((topic, 0), offset)


@pytest.mark.parametrize("offset", [1, 1000])
def test_a_place_that_is_gone_or_not_there_yet_is_reset_to_the_beginning(
    offset: int, client: Client, bootstrap: str, new_topic: Topics, wire: Wire
) -> None:
    topic = new_topic()
    send_all(CONFLUENT, bootstrap, topic, numbers(0, 10))
    delete_records(wire, topic, 4)
    consumer = client.consumer(bootstrap)
    begin_out_of_range(consumer, topic, offset)
    assert values(poll_until(consumer, 6)) == numbers(4, 10)
    consumer.close()


def test_a_place_out_of_range_is_an_error_where_nothing_resets_it(
    client: Client, bootstrap: str, new_topic: Topics, wire: Wire
) -> None:
    topic = new_topic()
    send_all(CONFLUENT, bootstrap, topic, numbers(0, 10))
    consumer = client.consumer(bootstrap, reset="none")
    consumer.assign((topic, 0))
    consumer.seek((topic, 0), 1000)
    with pytest.raises(Refused) as refusal:
        poll_until(consumer, 1)
    local_auto_offset_reset = -140
    assert refusal.value.code in (ErrorCode.OFFSET_OUT_OF_RANGE, local_auto_offset_reset)
    consumer.close()


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_every_isolation_level_reads_messages_that_are_in_no_transaction(
    isolation: str, client: Client, bootstrap: str, new_topic: Topics
) -> None:
    topic = new_topic()
    send_all(client, bootstrap, topic, numbers(0, 100), idempotent=True)
    assert values(read_all(client, bootstrap, topic, 100, isolation=isolation)) == numbers(0, 100)


def test_without_transactions_the_last_stable_offset_is_the_high_watermark(new_topic: Topics, wire: Wire) -> None:
    topic = new_topic()
    wire.produce(topic, batch_of(*numbers(0, 7)))
    for level in (0, 1):
        found = wire.fetch(topic, 0, isolation_level=level)
        assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (7, 7, 0)
        assert not found.aborted_transactions


def test_a_consumer_does_not_make_the_topic_it_asks_for(
    bootstrap: str, unique: Callable[[str], str], admin: AdminClient
) -> None:
    topic = unique("not-there")
    consumer = CONFLUENT.consumer(bootstrap, group=unique("group"))
    consumer.subscribe(topic)
    with pytest.raises(Refused) as refusal:
        poll_until(consumer, 1)
    assert refusal.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert topic not in admin.list_topics(timeout=20).topics
    consumer.close()


def test_a_long_poll_is_answered_as_soon_as_there_is_something(
    client: Client, bootstrap: str, new_topic: Topics
) -> None:
    topic = new_topic()
    consumer = client.consumer(bootstrap, wait_ms=15_000)
    consumer.assign((topic, 0))
    producer = CONFLUENT.producer(bootstrap)
    for n in range(3):
        threading.Timer(0.3, lambda n=n: producer.send(topic, Outgoing(b"%d" % n))).start()
        began = time.monotonic()
        assert values(poll_until(consumer, 1)) == [b"%d" % n]
        assert time.monotonic() - began < 5
    producer.finish()
    producer.close()
    consumer.close()


def test_a_long_poll_waits_until_there_is_enough_or_its_time_is_up(new_topic: Topics, wire: Wire) -> None:
    topic = new_topic()
    began = time.monotonic()
    assert len(wire.fetch(topic, 0, wait_ms=300).records) == 0
    assert 0.28 <= time.monotonic() - began < 5
    batch = batch_of(bytes(1000))
    wire.produce(topic, batch)
    began = time.monotonic()
    found = wire.fetch(topic, 0, wait_ms=300, min_bytes=10_000)
    assert len(found.records) == len(batch)
    assert time.monotonic() - began >= 0.28
    began = time.monotonic()
    assert len(wire.fetch(topic, 0, wait_ms=15_000, min_bytes=1000).records) == len(batch)
    assert time.monotonic() - began < 5


def test_a_long_poll_over_many_partitions_hears_of_each(bootstrap: str, new_topic: Topics, wire: Wire) -> None:
    topic = new_topic(partitions=8)
    request = fetch_request(topic, 0, wait_ms=15_000)
    only = request.topics[0].partitions[0]
    for loud in range(8):
        request.topics[0].partitions = [
            type(only)(partition=n, fetch_offset=0 if n >= loud else 1, partition_max_bytes=1 << 20) for n in range(8)
        ]
        wire.send(request, 12)
        with Wire(bootstrap) as other:
            began = time.monotonic()
            assert other.produce(topic, batch_of(b"x"), partition=loud).error_code == ErrorCode.NONE
        found = {p.partition_index: len(p.records or b"") for p in wire.receive().responses[0].partitions}
        assert [n for n, size in found.items() if size] == [loud]
        assert time.monotonic() - began < 5
