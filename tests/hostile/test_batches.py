"""Record batches that no sound producer sends, to a topic whose batches are checked by their headers alone."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.protocol.framing import request_frame
from penstock.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.protocol.record_batch import (
    ATTRIBUTES_AT,
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    CRC_AT,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LENGTH_AT,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    RECORD_COUNT_AT,
    batch_crc,
    read_batches,
)
from tests.hostile.clients import NOW_MS, PRODUCE_VERSION, RawClient, answers_of, batch_of, produce_request
from tests.hostile.conftest import Hostile

CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION, MESSAGE_TOO_LARGE, INVALID_TOPIC_EXCEPTION = 2, 3, 10, 17
INVALID_REQUIRED_ACKS, INVALID_TIMESTAMP, TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 21, 32, 53
UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD = 76, 87
LONGEST_AGO, FARTHEST = -(2**63), 2**63 - 1


def changed(batch: bytes, position: int, layout: str, value: int, *, sign: bool = True) -> bytes:
    """The batch with another value in its header, and with the CRC of what it holds now unless told otherwise."""
    out = bytearray(batch)
    struct.pack_into(">" + layout, out, position, value)
    if sign:
        struct.pack_into(">I", out, CRC_AT, batch_crc(out))
    return bytes(out)


TWO = batch_of(b"one", b"two")

REFUSED: dict[str, tuple[bytes, int]] = {
    "no bytes": (b"", INVALID_RECORD),
    "one byte": (b"\0", CORRUPT_MESSAGE),
    "half a header": (TWO[:40], CORRUPT_MESSAGE),
    "a header less a byte": (TWO[: HEADER_SIZE - 1], CORRUPT_MESSAGE),
    "a header alone": (TWO[:HEADER_SIZE], INVALID_RECORD),
    "the last byte missing": (TWO[:-1], INVALID_RECORD),
    "a byte too many": (TWO + b"\0", INVALID_RECORD),
    "two batches": (TWO + TWO, INVALID_RECORD),
    "a wrong crc": (changed(TWO, CRC_AT, "I", 0xDEADBEEF, sign=False), CORRUPT_MESSAGE),
    "a flipped bit in a value": (TWO[:-2] + bytes([TWO[-2] ^ 1]) + TWO[-1:], CORRUPT_MESSAGE),
    "magic 0": (changed(TWO, MAGIC_AT, "b", 0), INVALID_RECORD),
    "magic 1": (changed(TWO, MAGIC_AT, "b", 1), INVALID_RECORD),
    "magic 3": (changed(TWO, MAGIC_AT, "b", 3), INVALID_RECORD),
    "magic -1": (changed(TWO, MAGIC_AT, "b", -1), INVALID_RECORD),
    "a length of 0": (changed(TWO, LENGTH_AT, "i", 0), INVALID_RECORD),
    "a length of -1": (changed(TWO, LENGTH_AT, "i", -1), INVALID_RECORD),
    "the longest length": (changed(TWO, LENGTH_AT, "i", 2**31 - 1), INVALID_RECORD),
    "a length one short": (changed(TWO, LENGTH_AT, "i", len(TWO) - 13), INVALID_RECORD),
    "no records": (changed(TWO, RECORD_COUNT_AT, "i", 0), INVALID_RECORD),
    "a negative count": (changed(TWO, RECORD_COUNT_AT, "i", -1), INVALID_RECORD),
    "the least count": (changed(TWO, RECORD_COUNT_AT, "i", -(2**31)), INVALID_RECORD),
    "more records than offsets": (changed(TWO, RECORD_COUNT_AT, "i", 3), INVALID_RECORD),
    "the largest count": (changed(TWO, RECORD_COUNT_AT, "i", 2**31 - 1), INVALID_RECORD),
    "fewer offsets than records": (changed(TWO, LAST_OFFSET_DELTA_AT, "i", 0), INVALID_RECORD),
    "a negative last delta": (changed(TWO, LAST_OFFSET_DELTA_AT, "i", -1), INVALID_RECORD),
    "the largest last delta": (changed(TWO, LAST_OFFSET_DELTA_AT, "i", 2**31 - 1), INVALID_RECORD),
    "a control batch": (batch_of(b"\0\0\0\0\0\0", control=True), INVALID_RECORD),
    "a control batch of a transaction": (batch_of(b"\0\0\0\0", control=True, transactional=True), INVALID_RECORD),
    "a transaction that nobody began": (
        batch_of(transactional=True, producer_id=9, producer_epoch=0, base_sequence=0),
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    "attributes not yet invented": (changed(TWO, ATTRIBUTES_AT, "h", 0x80), INVALID_RECORD),
    "the highest attribute": (changed(TWO, ATTRIBUTES_AT, "h", -(2**15)), INVALID_RECORD),
    "a delete horizon": (changed(TWO, ATTRIBUTES_AT, "h", 0x40), INVALID_RECORD),
    "codec 5": (changed(TWO, ATTRIBUTES_AT, "h", 5), UNSUPPORTED_COMPRESSION_TYPE),
    "codec 7": (changed(TWO, ATTRIBUTES_AT, "h", 7), UNSUPPORTED_COMPRESSION_TYPE),
    "the end of time": (changed(TWO, MAX_TIMESTAMP_AT, "q", FARTHEST), INVALID_TIMESTAMP),
    "the beginning of time": (changed(TWO, MAX_TIMESTAMP_AT, "q", LONGEST_AGO), INVALID_TIMESTAMP),
    "a producer without a sequence": (batch_of(producer_id=11, producer_epoch=0, base_sequence=-1), INVALID_RECORD),
    "a producer without an epoch": (batch_of(producer_id=11, producer_epoch=-1, base_sequence=0), INVALID_RECORD),
    "the least epoch": (batch_of(producer_id=11, producer_epoch=-(2**15), base_sequence=0), INVALID_RECORD),
    "the least sequence": (batch_of(producer_id=11, producer_epoch=0, base_sequence=-(2**31)), INVALID_RECORD),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_an_unsound_batch_is_refused_and_not_stored(hostile: Hostile, topic: str, what: str) -> None:
    batch, error = REFUSED[what]
    client = hostile()
    for _ in range(4):  # the third and fourth of a kind take the short way
        assert client.produce(topic, batch).error_code == error
    assert client.produce(topic, TWO).base_offset == 0
    for _ in range(3):
        assert client.produce(topic, batch, acks=1).error_code == error
    assert _stored(client, topic) == [(0, 2)]


def _stored(client: RawClient, topic: str) -> list[tuple[int, int]]:
    """(base offset, count) of all batches."""
    partition = client.fetch(topic).responses[0].partitions[0]
    return [(header.base_offset, header.record_count) for header, _ in read_batches(partition.records)]


@pytest.mark.parametrize(
    "batch",
    [
        changed(TWO, 0, "q", -1),
        changed(TWO, 0, "q", FARTHEST),
        changed(TWO, LEADER_EPOCH_AT, "i", -(2**31)),
        changed(TWO, LEADER_EPOCH_AT, "i", 2**31 - 1),
        changed(TWO, BASE_TIMESTAMP_AT, "q", FARTHEST),
        changed(TWO, BASE_TIMESTAMP_AT, "q", LONGEST_AGO),
        changed(TWO, BASE_SEQUENCE_AT, "i", 2**31 - 1),
    ],
)
def test_what_the_broker_writes_itself_or_never_reads_may_be_anything(
    hostile: Hostile, topic: str, batch: bytes
) -> None:
    client = hostile()
    for offset in (0, 2, 4):
        assert client.produce(topic, batch).base_offset == offset
    assert _stored(client, topic) == [(0, 2), (2, 2), (4, 2)]


def test_records_of_garbage_are_refused_where_they_can_be_seen(hostile: Hostile, topic: str) -> None:
    client = hostile()
    for batch in (
        _with_records(b"\xff" * 40, count=2),
        _with_records(b"", count=1),
        _with_records(b"\x02\x00\x00\x00\x01\x01\x00", count=2**20),
        _with_records(TWO[HEADER_SIZE:], count=1),
        _with_records(TWO[HEADER_SIZE:], count=3),
        _with_records(TWO[HEADER_SIZE:] + b"\0", count=2),
    ):
        answer = client.produce(topic, batch)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)


def test_compressed_garbage_under_a_right_crc_is_stored_and_never_stumbled_over(hostile: Hostile, topic: str) -> None:
    """Nobody opens it on the way in; a search by time opens it, and must not fall."""
    client = hostile()
    garbage = [
        _with_records(b"\x1f\x8b\x08" + bytes(60), count=3, codec=1),
        _with_records(b"\x82SNAPPY\0" + b"\xff" * 40, count=3, codec=2),
        _with_records(b"\x04\x22\x4d\x18" + b"\xff" * 40, count=3, codec=3),
        _with_records(b"\x28\xb5\x2f\xfd" + b"\xff" * 40, count=3, codec=4),
        changed(TWO, BASE_TIMESTAMP_AT, "q", FARTHEST),
    ]
    for batch in garbage:
        assert client.produce(topic, batch).error_code == 0
        for timestamp in (0, NOW_MS - 1, NOW_MS, NOW_MS + 1, FARTHEST, -1, -2, -3, -4, -5, -6, LONGEST_AGO):
            asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
            assert client.ask(request, 10) is not None, timestamp


def _with_records(records: bytes, count: int, codec: int = 0) -> bytes:
    out = bytearray(TWO[:HEADER_SIZE] + records)
    struct.pack_into(">i", out, LENGTH_AT, len(out) - 12)
    struct.pack_into(">h", out, ATTRIBUTES_AT, codec)
    struct.pack_into(">i", out, LAST_OFFSET_DELTA_AT, count - 1)
    return changed(bytes(out), RECORD_COUNT_AT, "i", count)


def test_a_batch_larger_than_the_topic_allows_is_refused(hostile: Hostile, topic: str) -> None:
    client = hostile()
    for _ in range(4):
        assert client.produce(topic, batch_of(b"x" * 2_000_000)).error_code == MESSAGE_TOO_LARGE


@pytest.mark.parametrize("acks", [2, 3, -2, 32767, -32768])
def test_acks_that_mean_nothing_are_refused_every_time(hostile: Hostile, topic: str, acks: int) -> None:
    client = hostile()
    for _ in range(5):
        assert client.produce(topic, TWO, acks=acks).error_code == INVALID_REQUIRED_ACKS
    assert client.produce(topic, TWO).base_offset == 0


@pytest.mark.parametrize("partition", [1, -1, 2**31 - 1, -(2**31)])
def test_a_partition_that_does_not_exist_is_refused(hostile: Hostile, topic: str, partition: int) -> None:
    client = hostile()
    client.produce(topic, TWO)
    client.produce(topic, TWO)
    for _ in range(3):
        assert client.produce(topic, TWO, partition=partition).error_code == UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["../victim", "a\0b", "", "x" * 250, "no-such-topic"])
def test_a_name_that_is_no_topic_is_refused(hostile: Hostile, name: str) -> None:
    client = hostile()
    for _ in range(4):
        assert client.produce(name, TWO).error_code in (UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION)


def test_internal_topics_take_nothing_from_clients(hostile: Hostile, unique: Callable[[str], str]) -> None:
    client = hostile()
    _begin_groups(client, unique("group"))
    for acks in (-1, 1):
        for _ in range(4):
            answer = client.produce("__consumer_offsets", TWO, acks=acks)
            assert (answer.error_code, answer.base_offset) == (INVALID_TOPIC_EXCEPTION, -1)


def _begin_groups(client: RawClient, group: str) -> None:
    """The internal topic exists from the first look for a coordinator on."""
    from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest

    client.ask(FindCoordinatorRequest(coordinator_keys=[group], key_type=0), 4)


def test_one_partition_ten_times_in_one_request_is_answered_ten_times(hostile: Hostile, topic: str) -> None:
    response = hostile().ask(produce_request(topic, *[TWO] * 10), PRODUCE_VERSION)
    assert [answer.base_offset for answer in answers_of(response)] == list(range(0, 20, 2))


def test_good_and_bad_batches_in_one_request_are_told_apart(hostile: Hostile, topic: str) -> None:
    bad = changed(TWO, CRC_AT, "I", 1, sign=False)
    response = hostile().ask(produce_request(topic, TWO, bad, TWO, b"", TWO + TWO), PRODUCE_VERSION)
    assert [answer.base_offset for answer in answers_of(response)] == [0, -1, 2, -1, -1]


def test_no_records_at_all_are_refused(hostile: Hostile, topic: str) -> None:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=None)])
    response = hostile().ask(ProduceRequest(acks=-1, topic_data=[data]), PRODUCE_VERSION)
    assert [answer.error_code for answer in answers_of(response)] == [INVALID_RECORD]


def test_a_bad_batch_that_nobody_waits_for_costs_the_connection(hostile: Hostile, topic: str) -> None:
    """With acks=0 there is no answer to hold the error; Kafka hangs up, so that the producer looks again."""
    client = hostile()
    bad = changed(TWO, CRC_AT, "I", 1, sign=False)
    for batch in (TWO, TWO, TWO, bad, TWO):
        client.send(request_frame(produce_request(topic, batch, acks=0), PRODUCE_VERSION, 1, "hostile"))
    assert client.is_closed()
    assert _stored(hostile(), topic)[:3] == [(0, 2), (2, 2), (4, 2)]
