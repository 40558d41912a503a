"""Producing, with each client in each of its ways."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from penstock.protocol.compression import Compression
from penstock.protocol.errors import ErrorCode
from penstock.protocol.record_batch import TimestampType, read_batches, read_records
from tests.brokers import BrokerProcess
from tests.clients.conftest import Topics
from tests.clients.drivers import CLIENTS, Client, Outgoing, Refused, read_all, send_all
from tests.clients.steps import wait_until
from tests.clients.wire import Wire, batch_of

ODD_MESSAGES = (
    Outgoing(b"plain"),
    Outgoing(b"", b""),
    Outgoing(b"value", b"key", (("trace", b"\x00\xff"), ("trace", b"again"), ("empty", b""))),
    Outgoing(bytes(range(256)) * 3, bytes(range(256))),
    Outgoing(None, b"a tombstone"),
    Outgoing("žluťoučký kůň".encode(), "ключ".encode(), (("hlavička", "頭".encode()),)),
    Outgoing(b"x" * 70_000, b"large"),
)

PATIENCE = {  # how each client is told to give up on a topic within two seconds
    "confluent": {"message.timeout.ms": 5000, "topic.metadata.propagation.max.ms": 500},
    "kafka-python": {"max_block_ms": 2000},
    "aiokafka": {"request_timeout_ms": 2000},
}


INVALID_RECORD_IN_AIOKAFKA = -1  # an error of which it does not know the name


def contents(messages: object) -> list[tuple[object, ...]]:
    return [(m.key, m.value, m.headers) for m in messages]


@pytest.mark.parametrize("reader", CLIENTS)
def test_a_client_reads_what_another_wrote_byte_for_byte(
    client: Client, reader: str, bootstrap: str, new_topic: Topics
) -> None:
    topic = new_topic()
    placed = send_all(client, bootstrap, topic, ODD_MESSAGES)
    received = read_all(CLIENTS[reader], bootstrap, topic, len(ODD_MESSAGES))
    assert contents(received) == contents(ODD_MESSAGES)
    assert [m.offset for m in received] == [p.offset for p in placed] == list(range(len(ODD_MESSAGES)))


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_message_arrives_once_whatever_acknowledgement_was_asked_for(
    acks: int | str, client: Client, bootstrap: str, new_topic: Topics
) -> None:
    topic = new_topic()
    sent = [b"%d" % n for n in range(300)]
    placed = send_all(client, bootstrap, topic, sent, acks=acks)
    if acks != 0:
        assert [p.offset for p in placed] == list(range(300))
    received = read_all(client, bootstrap, topic, 300)
    assert [m.value for m in received] == sent
    assert [m.offset for m in received] == list(range(300))


@pytest.mark.parametrize("acks", [1, "all"])
def test_what_was_acknowledged_can_be_seen_at_once(
    acks: int | str, client: Client, bootstrap: str, new_topic: Topics
) -> None:
    topic = new_topic()
    producer, consumer = client.producer(bootstrap, acks=acks), client.consumer(bootstrap)
    consumer.assign((topic, 0))
    for n in range(1, 21):
        producer.send(topic, Outgoing(b"x"))
        producer.finish()
        assert consumer.ends((topic, 0)) == (0, n)
    producer.close()
    consumer.close()


@pytest.mark.parametrize(
    ("name", "codec"), [(name, codec) for name, client in CLIENTS.items() for codec in client.codecs]
)
def test_a_batch_is_stored_in_the_codec_its_producer_chose(
    name: str, codec: str, bootstrap: str, new_topic: Topics, wire: Wire
) -> None:
    topic = new_topic()
    messages = [Outgoing(b"the same again " * 40, b"%d" % n) for n in range(100)]
    send_all(CLIENTS[name], bootstrap, topic, messages, compression=codec, linger_ms=50)
    batches = list(read_batches(wire.fetch(topic, 0).records))
    assert {header.compression for header, _ in batches} == {Compression[codec.upper()]}
    assert sum(header.record_count for header, _ in batches) == 100
    for reader in CLIENTS.values():
        if codec in reader.codecs:
            assert contents(read_all(reader, bootstrap, topic, 100)) == contents(messages)


@pytest.mark.parametrize("stored", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
@pytest.mark.parametrize("sent", ["gzip", "zstd", None])
def test_a_topic_with_a_codec_of_its_own_stores_batches_in_it(
    stored: str, sent: str | None, bootstrap: str, new_topic: Topics, wire: Wire
) -> None:
    topic = new_topic(compression_type=stored)
    messages = [Outgoing(b"the same again " * 40, b"%d" % n, (("h", b"%d" % n),)) for n in range(50)]
    confluent = CLIENTS["confluent"]
    placed = send_all(confluent, bootstrap, topic, messages, compression=sent, linger_ms=50, idempotent=True)
    assert [p.offset for p in placed] == list(range(50))
    expected = Compression.NONE if stored == "uncompressed" else Compression[stored.upper()]
    assert {header.compression for header, _ in read_batches(wire.fetch(topic, 0).records)} == {expected}
    assert contents(read_all(confluent, bootstrap, topic, 50)) == contents(messages)


def test_an_idempotent_producer_numbers_its_batches(
    client: Client, bootstrap: str, new_topic: Topics, wire: Wire
) -> None:
    topic = new_topic()
    placed = send_all(client, bootstrap, topic, [b"%d" % n for n in range(200)], idempotent=True)
    assert [p.offset for p in placed] == list(range(200))
    headers = [header for header, _ in read_batches(wire.fetch(topic, 0).records)]
    assert len({header.producer_id for header in headers}) == 1
    assert headers[0].producer_id >= 0
    assert [header.base_sequence for header in headers] == [header.base_offset for header in headers]


def test_idempotent_producers_have_ids_of_their_own(bootstrap: str, new_topic: Topics, wire: Wire) -> None:
    topic = new_topic()
    for client in CLIENTS.values():
        send_all(client, bootstrap, topic, [b"hello"], idempotent=True)
    ids = [header.producer_id for header, _ in read_batches(wire.fetch(topic, 0).records)]
    assert len(set(ids)) == 3


def test_a_key_leads_to_the_same_partition_with_every_client(bootstrap: str, new_topic: Topics) -> None:
    topic = new_topic(partitions=7)
    keyed = [Outgoing(b"value", b"key-%d" % n) for n in range(60)]
    choices = [[p.partition for p in send_all(client, bootstrap, topic, keyed)] for client in CLIENTS.values()]
    assert choices[0] == choices[1] == choices[2]
    assert len(set(choices[0])) == 7


def test_messages_without_keys_spread_over_the_partitions(client: Client, bootstrap: str, new_topic: Topics) -> None:
    topic = new_topic(partitions=3)
    producer = client.producer(bootstrap)
    used: set[int] = set()
    deadline = time.monotonic() + 20
    while used != {0, 1, 2}:
        assert time.monotonic() < deadline, f"only {used} were used"
        for n in range(20):
            producer.send(topic, Outgoing(b"%d" % n * 2000))
        used |= {p.partition for p in producer.finish()}
    producer.close()


def test_a_producer_may_choose_the_partition(client: Client, bootstrap: str, new_topic: Topics) -> None:
    topic = new_topic(partitions=4)
    messages = [Outgoing(b"%d" % n, b"one key", partition=n % 4) for n in range(40)]
    placed = send_all(client, bootstrap, topic, messages)
    assert [p.partition for p in placed] == [n % 4 for n in range(40)]
    received = read_all(client, bootstrap, topic, 10, partitions=[2])
    assert [m.value for m in received] == [b"%d" % n for n in range(2, 40, 4)]


def test_order_holds_within_each_partition(client: Client, bootstrap: str, new_topic: Topics) -> None:
    topic = new_topic(partitions=3)
    send_all(client, bootstrap, topic, [Outgoing(b"%d" % n, partition=n % 3) for n in range(600)], idempotent=True)
    received = read_all(client, bootstrap, topic, 600, partitions=[0, 1, 2])
    for partition in range(3):
        own = [(m.offset, int(m.value or b"")) for m in received if m.partition == partition]
        assert own == list(enumerate(range(partition, 600, 3)))


def timestamps_as_confluent_sees_them(bootstrap: str, topic: str) -> list[tuple[int, int]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        return [m.timestamp() for m in consumer.consume(2, 20)]
    finally:
        consumer.close()


def test_the_producer_says_when_a_message_was_created(client: Client, bootstrap: str, new_topic: Topics) -> None:
    topic = new_topic()
    stamps = [1_600_000_000_123, 1_500_000_000_456]
    send_all(client, bootstrap, topic, [Outgoing(b"x", timestamp_ms=stamp) for stamp in stamps])
    assert [m.timestamp_ms for m in read_all(client, bootstrap, topic, 2)] == stamps
    seen = timestamps_as_confluent_sees_them(bootstrap, topic)
    assert seen == [(TIMESTAMP_CREATE_TIME, stamp) for stamp in stamps]


def test_the_broker_says_when_a_message_was_appended(
    client: Client, bootstrap: str, new_topic: Topics, wire: Wire
) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    placed = send_all(client, bootstrap, topic, [Outgoing(b"x", timestamp_ms=1_600_000_000_000)] * 2)
    after = int(time.time() * 1000)
    received = read_all(client, bootstrap, topic, 2)
    assert all(before <= m.timestamp_ms <= after for m in received)
    seen = timestamps_as_confluent_sees_them(bootstrap, topic)
    assert seen == [(TIMESTAMP_LOG_APPEND_TIME, m.timestamp_ms) for m in received]
    if client.name != "confluent":  # whose reports keep the producer's own time
        assert [p.timestamp_ms for p in placed] == [m.timestamp_ms for m in received]
    header, batch = next(read_batches(wire.fetch(topic, 0).records))
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert list(read_records(batch, 1 << 20, check_crc=True))


def test_log_append_time_reaches_into_compressed_batches(bootstrap: str, new_topic: Topics) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime", compression_type="zstd")
    before = int(time.time() * 1000)
    client = CLIENTS["confluent"]
    sent = [Outgoing(b"%d" % n, timestamp_ms=1_600_000_000_000) for n in range(20)]
    send_all(client, bootstrap, topic, sent, compression="gzip", linger_ms=50)
    received = read_all(client, bootstrap, topic, 20)
    assert [m.value for m in received] == [b"%d" % n for n in range(20)]
    assert all(m.timestamp_ms >= before for m in received)


def test_a_message_from_too_far_in_the_future_is_refused(client: Client, bootstrap: str, new_topic: Topics) -> None:
    topic = new_topic()
    two_hours_ahead = int(time.time() * 1000) + 2 * 3_600_000
    with pytest.raises(Refused) as refusal:
        send_all(client, bootstrap, topic, [Outgoing(b"x", timestamp_ms=two_hours_ahead)])
    assert refusal.value.code == ErrorCode.INVALID_TIMESTAMP
    assert send_all(client, bootstrap, topic, [b"now"])[0].offset == 0


def test_a_message_from_too_far_in_the_past_is_refused(bootstrap: str, new_topic: Topics) -> None:
    topic = new_topic(message_timestamp_before_max_ms=60_000)
    with pytest.raises(Refused) as refusal:
        send_all(CLIENTS["confluent"], bootstrap, topic, [Outgoing(b"x", timestamp_ms=1_600_000_000_000)])
    assert refusal.value.code == ErrorCode.INVALID_TIMESTAMP


def test_a_tombstone_is_a_key_without_a_value(client: Client, bootstrap: str, new_topic: Topics) -> None:
    topic = new_topic(cleanup_policy="compact")
    send_all(client, bootstrap, topic, [Outgoing(b"v", b"k"), Outgoing(None, b"k"), Outgoing(b"", b"k")])
    assert [m.value for m in read_all(client, bootstrap, topic, 3)] == [b"v", None, b""]


def test_a_compacted_topic_refuses_messages_without_keys(client: Client, bootstrap: str, new_topic: Topics) -> None:
    topic = new_topic(cleanup_policy="compact")
    with pytest.raises(Refused) as refusal:
        send_all(client, bootstrap, topic, [b"no key"])
    assert refusal.value.code == (INVALID_RECORD_IN_AIOKAFKA if client.name == "aiokafka" else ErrorCode.INVALID_RECORD)
    assert send_all(client, bootstrap, topic, [Outgoing(b"", b"keyed")])[0].offset == 0


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_one_message_without_a_key_among_many_is_enough_to_be_refused(
    compression: str | None, bootstrap: str, new_topic: Topics
) -> None:
    topic = new_topic(cleanup_policy="compact")
    messages = [Outgoing(b"v", b"k")] * 9 + [Outgoing(b"v")]
    with pytest.raises(Refused) as refusal:
        send_all(CLIENTS["confluent"], bootstrap, topic, messages, compression=compression, linger_ms=100)
    assert refusal.value.code == ErrorCode.INVALID_RECORD


def test_the_largest_message_passes_and_one_larger_does_not(client: Client, bootstrap: str, new_topic: Topics) -> None:
    topic = new_topic(max_message_bytes=100_000)
    placed = send_all(client, bootstrap, topic, [bytes(99_900)], max_bytes=2_000_000)
    assert placed[0].offset == 0
    with pytest.raises(Refused) as refusal:
        send_all(client, bootstrap, topic, [bytes(100_001)], max_bytes=2_000_000)
    assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert [len(m.value or b"") for m in read_all(client, bootstrap, topic, 1)] == [99_900]


def test_a_message_of_ten_megabytes_passes_where_the_topic_allows_it(
    client: Client, bootstrap: str, new_topic: Topics
) -> None:
    topic = new_topic(max_message_bytes=11_000_000)
    value = bytes(range(250)) * 40_000
    send_all(client, bootstrap, topic, [value], max_bytes=11_000_000)
    (received,) = read_all(client, bootstrap, topic, 1)
    assert received.value == value


def test_the_default_limit_is_a_mebibyte_and_twelve_bytes(bootstrap: str, new_topic: Topics) -> None:
    topic = new_topic()
    confluent = CLIENTS["confluent"]
    send_all(confluent, bootstrap, topic, [bytes(1_048_500)], max_bytes=2_000_000)
    with pytest.raises(Refused) as refusal:
        send_all(confluent, bootstrap, topic, [bytes(1_048_588)], max_bytes=2_000_000)
    assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_what_counts_is_the_size_as_compressed(bootstrap: str, new_topic: Topics) -> None:
    topic = new_topic(max_message_bytes=20_000)
    confluent = CLIENTS["confluent"]
    send_all(confluent, bootstrap, topic, [bytes(500_000)], compression="gzip")
    assert len(read_all(confluent, bootstrap, topic, 1)[0].value or b"") == 500_000


def test_the_largest_batch_is_known_to_the_byte(new_topic: Topics, wire: Wire) -> None:
    size = len(batch_of(bytes(1000)))
    topic = new_topic(max_message_bytes=size)
    assert wire.produce(topic, batch_of(bytes(1000))).error_code == ErrorCode.NONE
    assert wire.produce(topic, batch_of(bytes(1001))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert wire.produce(topic, batch_of(bytes(1000))).base_offset == 1


def test_producing_to_a_topic_that_does_not_exist_makes_it(
    client: Client, bootstrap: str, unique: Callable[[str], str]
) -> None:
    topic = unique("made-by-producing")
    assert send_all(client, bootstrap, topic, [b"first"])[0].offset == 0
    assert [m.value for m in read_all(client, bootstrap, topic, 1)] == [b"first"]


def test_topics_are_not_made_by_themselves_where_that_is_off(
    client: Client, new_broker: Callable[..., BrokerProcess]
) -> None:
    broker = new_broker(auto_create_topics_enable="false")
    with pytest.raises(Exception) as refusal:
        send_all(client, broker.bootstrap, "nowhere", [b"x"], **PATIENCE[client.name])
    if client.name == "confluent":
        assert isinstance(refusal.value, Refused)
        local_unknown_topic = -188
        assert refusal.value.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, local_unknown_topic)
    topics = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=20).topics
    assert "nowhere" not in topics


def test_a_name_that_no_topic_can_have_is_refused(client: Client, bootstrap: str) -> None:
    with pytest.raises(Exception):  # noqa: B017
        send_all(client, bootstrap, "no/../such topic", [b"x"], **PATIENCE[client.name])


def test_two_producers_share_a_partition_without_losing_or_mixing_anything(bootstrap: str, new_topic: Topics) -> None:
    topic = new_topic()
    producers = [client.producer(bootstrap, idempotent=True) for client in CLIENTS.values()]
    for n in range(200):
        for number, producer in enumerate(producers):
            producer.send(topic, Outgoing(b"%d" % n, b"%d" % number))
    offsets = [placed.offset for producer in producers for placed in producer.finish()]
    for producer in producers:
        producer.close()
    assert sorted(offsets) == list(range(600))
    received = read_all(CLIENTS["confluent"], bootstrap, topic, 600)
    for number in range(3):
        assert [int(m.value or b"") for m in received if m.key == b"%d" % number] == list(range(200))


def test_new_partitions_are_used_by_a_producer_that_was_there_before(
    bootstrap: str, new_topic: Topics, admin: AdminClient
) -> None:
    topic = new_topic(partitions=1)
    producer = CLIENTS["confluent"].producer(bootstrap, **{"topic.metadata.refresh.interval.ms": 100})
    producer.send(topic, Outgoing(b"x"))
    producer.finish()
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(20)

    def partition_2_is_used() -> bool:
        try:
            producer.send(topic, Outgoing(b"x", partition=2))
            return producer.finish()[0].partition == 2
        except Refused:
            return False

    wait_until(partition_2_is_used)
    producer.close()
