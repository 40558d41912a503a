"""A connection that has asked the same again and again is answered as one that asks for the first time.

The broker remembers what such a client repeats. Whatever changes meanwhile, and whatever odd request comes in between,
must be answered as if nothing were remembered: each test warms a connection first.
"""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from penstock.protocol.compression import Compression
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.protocol.record_batch import Record, TimestampType, build_batch, read_batches
from tests.clients.conftest import PEER, Topics
from tests.clients.steps import create_topic, wait_until
from tests.clients.wire import Wire, batch_of

PRODUCE_VERSIONS = [3, 7, 8, 9, 12, 13]
FETCH_VERSIONS = [4, 8, 9, 11, 12, 13, 16, 18]
STEPS = 150


def produce(
    wire: Wire, version: int, topic: str, topic_id: bytes, batch: bytes, *, partition: int = 0, acks: int = -1
) -> Any:
    data = PartitionProduceData(index=partition, records=memoryview(batch))
    asked = TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])
    response = wire.ask(ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[asked]), version)
    return response.responses[0].partition_responses[0]


def fetch(wire: Wire, version: int, topic: str, topic_id: bytes, offset: int, **options: int) -> Any:
    asked = FetchPartition(
        partition=options.get("partition", 0),
        fetch_offset=offset,
        partition_max_bytes=options.get("max_bytes", 1 << 20),
        current_leader_epoch=options.get("leader_epoch", -1),
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=options.get("min_bytes", 1),
        max_bytes=1 << 20,
        isolation_level=options.get("isolation_level", 0),
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[asked])],
    )
    return wire.ask(request, version).responses[0].partitions[0]


def alter(bootstrap: str, topic: str, **settings: object) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    entries = [
        ConfigEntry(name.replace("_", "."), str(value), incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    (answer,) = admin.incremental_alter_configs([resource]).values()
    answer.result(20)
    if PEER:
        time.sleep(0.5)  # Kafka answers when its controller knows; its logs hear of it later


def recreate(bootstrap: str, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.delete_topics([topic])[topic].result(20)
    wait_until(lambda: topic not in admin.list_topics(timeout=20).topics)
    create_topic(bootstrap, topic, partitions)


class Warm:
    """A connection that produced to the topic and fetched from it, several times in the same way."""

    def __init__(self, wire: Wire, topic: str, version: int, fetch_version: int) -> None:
        self.wire, self.topic, self.topic_id = wire, topic, wire.topic_id(topic)
        self.version, self.fetch_version = version, fetch_version
        for _ in range(4):
            assert self.produce(batch_of(b"warm")).error_code == ErrorCode.NONE
        for offset in range(4):
            assert self.fetch(offset).error_code == ErrorCode.NONE

    def produce(self, batch: bytes, **options: Any) -> Any:
        return produce(self.wire, self.version, self.topic, self.topic_id, batch, **options)

    def fetch(self, offset: int, **options: Any) -> Any:
        return fetch(self.wire, self.fetch_version, self.topic, self.topic_id, offset, **options)


@pytest.fixture(params=[(7, 11), (9, 12), (13, 16)], ids=["plain", "flexible", "by-id"])
def warm(request: pytest.FixtureRequest, wire: Wire, new_topic: Topics) -> Warm:
    version, fetch_version = request.param
    return Warm(wire, new_topic(), version, fetch_version)


# ---- what changes meanwhile


def test_a_smaller_limit_is_heeded(warm: Warm, bootstrap: str) -> None:
    assert warm.produce(batch_of(bytes(2000))).error_code == ErrorCode.NONE
    alter(bootstrap, warm.topic, max_message_bytes=1000)
    assert warm.produce(batch_of(bytes(2000))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert warm.produce(batch_of(bytes(100))).base_offset == 5


def test_another_codec_is_heeded(warm: Warm, bootstrap: str) -> None:
    alter(bootstrap, warm.topic, compression_type="zstd")
    placed = warm.produce(batch_of(bytes(2000)))
    assert (placed.error_code, placed.base_offset) == (ErrorCode.NONE, 4)
    (header, _) = next(read_batches(warm.fetch(4).records))
    assert header.compression is Compression.ZSTD


def test_another_time_is_heeded(warm: Warm, bootstrap: str) -> None:
    assert warm.produce(batch_of(b"x")).log_append_time_ms == -1
    alter(bootstrap, warm.topic, message_timestamp_type="LogAppendTime")
    placed = warm.produce(batch_of(b"x"))
    assert placed.log_append_time_ms > 1_700_000_000_000
    (header, _) = next(read_batches(warm.fetch(placed.base_offset).records))
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.max_timestamp == placed.log_append_time_ms


def test_a_topic_that_becomes_compacted_wants_keys(warm: Warm, bootstrap: str) -> None:
    keyless = build_batch([Record(0, 1_700_000_000_000, None, b"v")])
    assert warm.produce(keyless).error_code == ErrorCode.NONE
    alter(bootstrap, warm.topic, cleanup_policy="compact")
    assert warm.produce(keyless).error_code == ErrorCode.INVALID_RECORD
    assert warm.produce(batch_of(b"keyed")).base_offset == 5


def test_records_that_were_deleted_are_gone(warm: Warm) -> None:
    asked = DeleteRecordsTopic(name=warm.topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])
    warm.wire.ask(DeleteRecordsRequest(topics=[asked], timeout_ms=5000))
    assert warm.fetch(1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    found = warm.fetch(2)
    assert (found.error_code, found.log_start_offset) == (ErrorCode.NONE, 2)
    placed = warm.produce(batch_of(b"x"))
    assert placed.base_offset == 4
    if warm.version >= 5:
        assert placed.log_start_offset == 2


def test_a_topic_that_was_made_again_is_another_one(warm: Warm, bootstrap: str) -> None:
    recreate(bootstrap, warm.topic)
    if warm.version >= 13:
        assert warm.produce(batch_of(b"x")).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert warm.fetch(0).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        warm.topic_id = warm.wire.topic_id(warm.topic)
    assert warm.fetch(3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert warm.produce(batch_of(b"x")).base_offset == 0
    assert len(warm.fetch(0).records) == len(batch_of(b"x"))


def test_a_topic_that_was_deleted_is_unknown(warm: Warm, bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.delete_topics([warm.topic])[warm.topic].result(20)
    wait_until(lambda: warm.topic not in admin.list_topics(timeout=20).topics)
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if warm.version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert warm.produce(batch_of(b"x")).error_code == unknown
    assert warm.fetch(0).error_code == unknown


def test_a_partition_that_was_added_is_found(warm: Warm, bootstrap: str) -> None:
    assert warm.produce(batch_of(b"x"), partition=1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert warm.fetch(0, partition=1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_partitions([NewPartitions(warm.topic, 2)])[warm.topic].result(20)
    wait_until(lambda: warm.produce(batch_of(b"x"), partition=1).error_code == ErrorCode.NONE)
    assert len(warm.fetch(0, partition=1).records) > 0
    assert warm.produce(batch_of(b"x")).base_offset == 4


# ---- the same steps on a warm connection and, one by one, on new ones


def odd_batches(rng: random.Random, sequence: int) -> tuple[str, bytes]:
    good = batch_of(*(b"%d" % n * rng.randint(0, 300) for n in range(rng.randint(1, 5))))
    numbered = {"producer_id": 5, "producer_epoch": 0}
    wrong = bytearray(good)
    return rng.choice(
        [
            ("good", good),
            ("good", good),
            ("good", good),
            ("compressed", batch_of(b"x" * 500, compression=Compression.GZIP)),
            ("a wrong CRC", bytes(wrong[:-1]) + bytes([wrong[-1] ^ 1])),
            ("an old magic", bytes(wrong[:16]) + b"\1" + bytes(wrong[17:])),
            ("cut short", good[:-3]),
            ("nothing", b""),
            ("two batches", good + good),
            ("something behind it", good + b"\0\0"),
            ("too large", batch_of(bytes(3000))),
            ("from the future", batch_of(b"x", timestamp_ms=9_999_999_999_999)),
            ("numbered", batch_of(b"n", **numbered, base_sequence=sequence)),
            ("a number left out", batch_of(b"n", **numbered, base_sequence=sequence + 3)),
            ("a number again", batch_of(b"n", **numbered, base_sequence=max(0, sequence - 1))),
        ]
    )


def seen(answer: Any) -> tuple[Any, ...]:
    return (
        ErrorCode(answer.error_code).name,
        answer.index,
        answer.base_offset,
        answer.log_append_time_ms,
        answer.log_start_offset,
    )


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_producing_on_a_warm_connection_is_as_on_new_ones(
    version: int, bootstrap: str, new_topic: Topics, wire: Wire
) -> None:
    rng = random.Random(version)
    warm, cold = (new_topic(partitions=2, max_message_bytes=2500) for _ in range(2))
    warm_id, cold_id = wire.topic_id(warm), wire.topic_id(cold)
    sequence = 0
    for step in range(STEPS):
        kind, batch = odd_batches(rng, sequence)
        options = {"partition": 0 if "number" in kind else rng.choice([0, 0, 0, 1, 7]), "acks": rng.choice([-1, -1, 1])}
        one = produce(wire, version, warm, warm_id, batch, **options)
        with Wire(bootstrap) as fresh:
            other = produce(fresh, version, cold, cold_id, batch, **options)
        assert seen(one) == seen(other), f"step {step}: {kind}, {options}"
        sequence += kind == "numbered" and one.error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetching_on_a_warm_connection_is_as_on_new_ones(
    version: int, bootstrap: str, new_topic: Topics, wire: Wire
) -> None:
    rng = random.Random(version)
    topic = new_topic(partitions=2)
    topic_id = wire.topic_id(topic)
    for n in range(20):
        wire.produce(topic, batch_of(*[b"%d" % n * rng.randint(1, 3000)] * rng.randint(1, 4)))
    end = wire.fetch(topic, 0).high_watermark
    for step in range(STEPS):
        options = {
            "offset": rng.choice([rng.randint(0, end - 1)] * 8 + [end, end + 1, -1, 1 << 40]),
            "partition": rng.choice([0] * 6 + [1, 5]),
            "max_bytes": rng.choice([1 << 20] * 4 + [0, 1, 5000, -1]),
            "min_bytes": rng.choice([1] * 5 + [0, 1 << 16]),
            "isolation_level": rng.choice([0, 0, 0, 1]),
            "leader_epoch": rng.choice([-1, -1, -1, 0, 0, 9]) if version >= 9 else -1,
        }
        one = fetch(wire, version, topic, topic_id, **options)
        with Wire(bootstrap) as fresh:
            other = fetch(fresh, version, topic, topic_id, **options)
        assert one == other, f"step {step}: {options}"
