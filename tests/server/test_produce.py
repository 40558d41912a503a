"""Produce, the ordinary way: many partitions in one request, what is refused, and batches that must be opened."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from penstock.protocol import short
from penstock.protocol.compression import Compression
from penstock.protocol.errors import CorruptBatch, ErrorCode
from penstock.protocol.messages.produce import PartitionProduceResponse, ProduceRequest
from penstock.protocol.record_batch import (
    BASE_TIMESTAMP_AT,
    MAX_TIMESTAMP_AT,
    Record,
    build_batch,
    read_header,
    read_records,
)
from penstock.storage.worker import WorkerFailed
from tests.fakes import turns, until
from tests.server.rooms import OFFSETS_TOPIC, Rooms, batch, produce
from tests.storage.logs import NOW_MS

VERSIONS = range(3, 14)


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Callable[..., Rooms]]:
    made: list[Rooms] = []

    def make(**options: Any) -> Rooms:
        made.append(Rooms(tmp_path / str(len(made)), **options))
        return made[-1]

    yield make
    for rooms in made:
        await rooms.close()


@pytest.fixture
async def rooms(make: Callable[..., Rooms]) -> Rooms:
    rooms = make()
    rooms.create_topic("t", 3)
    return rooms


def only(response: Any) -> PartitionProduceResponse:
    ((answer,),) = [topic.partition_responses for topic in response.responses]
    assert isinstance(answer, PartitionProduceResponse)
    return answer


def stored(rooms: Rooms, topic: str = "t", index: int = 0) -> bytes:
    return (rooms.folder / f"{topic}-{index}" / f"{0:020d}.log").read_bytes()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [1, -1])
async def test_every_version_is_served(rooms: Rooms, version: int, acks: int) -> None:
    client = rooms.connect()
    topic: str | bytes = rooms.image.topics["t"].topic_id if version >= 13 else "t"
    for base_offset in (0, 2, 4):
        answer = only(await client.ask(produce(topic, batch(2), acks=acks), version))
        assert (answer.index, answer.error_code, answer.base_offset, answer.log_append_time_ms) == (
            0,
            0,
            base_offset,
            -1,
        )
        assert answer.log_start_offset == (0 if version >= 5 else -1)


async def test_partitions_of_one_request_succeed_and_fail_by_themselves(rooms: Rooms) -> None:
    client = rooms.connect()
    rooms.create_topic("u")
    request = produce("t", batch(2), more={1: b"nonsense", 2: batch(3), 9: batch()})
    request.topic_data += produce("nowhere", batch()).topic_data + produce("u", batch()).topic_data
    response = await client.ask(request, 9)
    answers = {
        (topic.name, p.index): (p.error_code, p.base_offset)
        for topic in response.responses
        for p in topic.partition_responses
    }
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert answers == {
        ("t", 0): (0, 0), ("t", 1): (ErrorCode.CORRUPT_MESSAGE, -1), ("t", 2): (0, 0), ("t", 9): unknown,
        ("nowhere", 0): unknown, ("u", 0): (0, 0),
    }  # fmt: skip
    assert [rooms.partition("t", index).high_watermark for index in range(3)] == [2, 0, 3]


async def test_a_request_is_answered_when_the_last_of_its_partitions_is_committed(make: Callable[..., Rooms]) -> None:
    rooms = make(held_syncs=True)
    rooms.create_topic("t", 3)
    client = rooms.connect()
    await client.send(produce("t", batch(), more={1: batch(), 2: batch()}), 9)
    await until(lambda: len(rooms.committer.under_way) == 3)
    for _ in range(2):
        rooms.committer.end_one()
        await turns()
        assert not client.has_answer()
    rooms.committer.end_one()
    response = await client.receive()
    assert [p.error_code for p in response.responses[0].partition_responses] == [0, 0, 0]


async def test_what_is_refused_whole(rooms: Rooms) -> None:
    client = rooms.connect()
    for acks in (2, -2, 7):
        assert only(await client.ask(produce("t", batch(), acks=acks), 9)).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert (await client.ask(ProduceRequest(acks=-1, timeout_ms=1, topic_data=[]), 9)).responses == []
    assert rooms.partition("t").log.next_offset == 0


async def test_what_is_refused_of_a_partition(rooms: Rooms) -> None:
    client = rooms.connect()
    rooms.create_topic(OFFSETS_TOPIC, internal=True)
    rooms.create_topic("careful", min_insync_replicas="2")
    for request, code in (
        (produce(OFFSETS_TOPIC, batch()), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (produce("t", None), ErrorCode.INVALID_RECORD),
        (produce("t", b""), ErrorCode.INVALID_RECORD),
        (produce("t", batch(), 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        answer = only(await client.ask(request, 9))
        assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (code, -1, -1)
    for acks in (1, -1):  # as in Kafka: no more replicas are asked for than there are
        assert only(await client.ask(produce("careful", batch(), acks=acks), 9)).error_code == 0
    unknown = only(await client.ask(produce(b"\7" * 16, batch()), 13))
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_the_reason_is_told_from_version_8_on(rooms: Rooms) -> None:
    client = rooms.connect()
    answer = only(await client.ask(produce("t", batch()[:-1]), 8))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert answer.error_message
    assert answer.record_errors == [], "it is the batch that is wrong, and not a record"
    assert only(await client.ask(produce("t", batch()[:-1]), 7)).error_code == ErrorCode.INVALID_RECORD


async def test_log_append_time_is_in_the_answer(rooms: Rooms) -> None:
    rooms.create_topic("stamped", message_timestamp_type="LogAppendTime")
    client = rooms.connect()
    for _ in range(4):
        answer = only(await client.ask(produce("stamped", batch(timestamps=[5])), 9))
        assert answer.log_append_time_ms == NOW_MS
        rooms.clock.now = NOW_MS


async def test_waiting_producers_learn_that_their_topic_was_deleted(make: Callable[..., Rooms]) -> None:
    rooms = make(held_syncs=True)
    rooms.create_topic("t")
    client = rooms.connect()
    for _ in range(4):
        await client.send(produce("t", batch()), 9)
    await until(lambda: rooms.partition("t").log.end_offset == 4)
    rooms.delete_topic("t")
    for _ in range(4):
        assert only(await client.receive()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_producer_that_leaves_harms_nobody(make: Callable[..., Rooms]) -> None:
    rooms = make(held_syncs=True)
    rooms.create_topic("t")
    leaving, staying = rooms.connect(), rooms.connect()
    for client in (leaving, staying):
        await client.send(produce("t", batch()), 9)
    await until(lambda: rooms.partition("t").log.end_offset == 2)
    leaving.close()
    await until(lambda: leaving.connection.closed)
    while rooms.committer.under_way:
        rooms.committer.end_one()
    assert only(await staying.receive()).error_code == 0
    assert rooms.partition("t").high_watermark == 2


# ---- batches that must be opened


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
async def test_a_topic_may_choose_the_compression_of_its_batches(rooms: Rooms, codec: str) -> None:
    rooms.create_topic("packed", compression_type=codec)
    client = rooms.connect()
    sent = [Compression.NONE, Compression.ZSTD, Compression.GZIP, Compression.NONE]
    for base_offset, compression in enumerate(sent):
        answer = only(await client.ask(produce("packed", batch(size=500, compression=compression)), 9))
        assert (answer.error_code, answer.base_offset) == (0, base_offset)
    data = memoryview(stored(rooms, "packed"))
    wanted = Compression.NONE if codec == "uncompressed" else Compression[codec.upper()]
    for offset in range(4):
        header = read_header(data)
        assert (header.compression, header.base_offset) == (wanted, offset)
        (record,) = read_records(data[: header.size], 1 << 20, check_crc=True)
        assert len(record.value or b"") == 500
        data = data[header.size :]


async def test_a_compacted_topic_wants_keys(rooms: Rooms) -> None:
    rooms.create_topic("compacted", cleanup_policy="compact")
    client = rooms.connect()
    answer = only(await client.ask(produce("compacted", batch(2, keys=["a", None])), 9))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert only(await client.ask(produce("compacted", batch(2, keys=["a", "b"])), 9)).error_code == 0
    assert rooms.partition("compacted").high_watermark == 2


async def test_records_are_looked_at_where_the_topic_asks_for_it(rooms: Rooms) -> None:
    rooms.create_topic("checked", record_validation="full")
    client = rooms.connect()
    torn = bytearray(batch(2, size=50))
    torn[22] = 1  # gzip, which it is not
    struct.pack_into(">I", torn, 17, crc32c(torn[21:]))
    assert only(await client.ask(produce("t", bytes(torn)), 9)).error_code == 0
    assert only(await client.ask(produce("checked", bytes(torn)), 9)).error_code == ErrorCode.INVALID_RECORD
    assert only(await client.ask(produce("checked", batch(2, size=50)), 9)).error_code == 0


async def test_records_without_a_key_for_a_compacted_topic_are_named(rooms: Rooms) -> None:
    rooms.create_topic("compacted", cleanup_policy="compact")
    client = rooms.connect()
    mixed = build_batch([Record(n, 5, b"k" if n % 2 == 0 else None, b"v") for n in range(6)])
    answer = only(await client.ask(produce("compacted", mixed), 9))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in answer.record_errors] == [1, 3, 5]
    assert "without key in topic partition compacted-0" in (answer.error_message or "")


@pytest.mark.parametrize("warm", [False, True], ids=["the ordinary way", "the short way"])
async def test_records_that_are_not_what_the_header_says_are_refused(rooms: Rooms, warm: bool) -> None:
    client = rooms.connect()
    stored_before = 0
    for _ in range(3 if warm else 0):
        assert only(await client.ask(produce("t", batch(2)), 9)).error_code == 0
        stored_before += 2
    torn = bytearray(batch(2, size=50))
    torn[-1] = 9  # the last record claims headers that are not there
    leap = bytearray(build_batch([Record(0, 5, None, b"a"), Record(5, 5, None, b"b")]))
    struct.pack_into(">i", leap, 23, 1)  # the last delta of two records, which the second one does not have
    nonsense = bytearray(batch(1))[:61] + b"\x7f\0\0\0"
    struct.pack_into(">i", nonsense, 8, len(nonsense) - 12)
    for wrong in (torn, leap, nonsense):
        struct.pack_into(">I", wrong, 17, crc32c(wrong[21:]))
        answer = only(await client.ask(produce("t", bytes(wrong)), 9))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert only(await client.ask(produce("t", batch(2)), 9)).base_offset == stored_before


async def test_without_the_c_only_short_batches_are_walked(rooms: Rooms) -> None:
    """In Python that takes so long that everybody else would wait."""
    client = rooms.connect()
    for count in (500, 501):
        torn = bytearray(batch(count))
        torn[-1] = 9
        struct.pack_into(">I", torn, 17, crc32c(torn[21:]))
        is_walked = count <= short.WALKED_MAX
        assert is_walked == (short.COMPILED or count == 500)
        answer = only(await client.ask(produce("t", bytes(torn)), 9))
        assert answer.error_code == (ErrorCode.INVALID_RECORD if is_walked else 0)


async def test_without_the_c_only_small_batches_are_walked(rooms: Rooms) -> None:
    """A few records may have very many headers."""
    client = rooms.connect()
    for size in (50_000, 70_000):
        torn = bytearray(batch(1, size=size))
        torn[-1] = 9
        struct.pack_into(">I", torn, 17, crc32c(torn[21:]))
        is_walked = short.COMPILED or size < short.WALKED_BYTES_MAX
        answer = only(await client.ask(produce("t", bytes(torn)), 9))
        assert answer.error_code == (ErrorCode.INVALID_RECORD if is_walked else 0)


async def test_a_record_dated_behind_all_time_is_refused_and_takes_no_other_answer_with_it(rooms: Rooms) -> None:
    hostile, honest = rooms.connect(), rooms.connect()
    for client in (hostile, honest):
        for _ in range(3):
            assert only(await client.ask(produce("t", batch(), acks=1), 9)).error_code == 0
    late = bytearray(build_batch([Record(0, 0, None, b"a"), Record(1, 1, None, b"b")]))
    struct.pack_into(">qq", late, BASE_TIMESTAMP_AT, 2**63 - 1, -1)
    struct.pack_into(">I", late, 17, crc32c(late[21:]))
    for client, sent in ((hostile, bytes(late)), (honest, batch())):  # both are read in one turn
        client.sock.send(client.frame(produce("t", sent, acks=1), 9))
    assert only(await hostile.receive()).error_code == ErrorCode.INVALID_TIMESTAMP
    assert only(await honest.receive()).base_offset == 6


async def test_a_refusal_of_whatever_kind_takes_no_other_answer_of_its_turn_with_it(rooms: Rooms) -> None:
    hostile, honest = rooms.connect(), rooms.connect()
    for client in (hostile, honest):
        for _ in range(3):
            assert only(await client.ask(produce("t", batch(), acks=1), 9)).error_code == 0
    for client in (hostile, honest):
        client.sock.send(client.frame(produce("t", batch(), acks=1), 9))
        client.connection._readable()
    promises = rooms.router._produce.promises
    connection, correlation_id, route, _, failures = promises[0]
    promises[0] = (connection, correlation_id, route, CorruptBatch("torn"), failures)
    assert only(await hostile.receive()).error_code == ErrorCode.CORRUPT_MESSAGE
    assert only(await honest.receive()).base_offset == 7


async def test_the_newest_time_of_records_that_are_not_in_order_is_found(rooms: Rooms) -> None:
    client = rooms.connect()
    dated = bytearray(build_batch([Record(n, time, None, b"a") for n, time in enumerate((50, 90, 20))]))
    struct.pack_into(">q", dated, MAX_TIMESTAMP_AT, -1)
    struct.pack_into(">I", dated, 17, crc32c(dated[21:]))
    assert only(await client.ask(produce("t", bytes(dated)), 9)).error_code == 0
    await rooms.idle()
    assert read_header(memoryview(stored(rooms, "t"))).max_timestamp == 90


async def test_large_batches_that_are_opened_keep_their_memory_until_they_are_stored(rooms: Rooms) -> None:
    rooms.create_topic("packed", compression_type="lz4", max_message_bytes="2000000")
    client = rooms.connect()
    frames = [client.frame(produce("packed", batch(size=size)), 9) for size in (400_000, 300, 500_000, 400_000)]
    await client.send_bytes(b"".join(frames[:2]))
    for frame in frames[2:]:
        await client.send_bytes(frame)
    assert [only(await client.receive()).base_offset for _ in frames] == [0, 1, 2, 3]
    data = memoryview(stored(rooms, "packed"))
    sizes = []
    while data:
        header = read_header(data)
        sizes += [len(r.value or b"") for r in read_records(data[: header.size], 1 << 22, check_crc=True)]
        data = data[header.size :]
    assert sizes == [400_000, 300, 500_000, 400_000]
    client.connection.release_idle_memory()
    assert rooms.memory.used == 0


async def test_a_worker_that_fails_is_an_error_that_the_producer_may_try_again(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise WorkerFailed("it is gone")

    rooms.create_topic("packed", 2, compression_type="gzip")
    client = rooms.connect()
    with monkeypatch.context() as patch:
        patch.setattr(rooms.context.worker, "run", fail)
        answer = only(await client.ask(produce("packed", batch()), 9))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    assert only(await client.ask(produce("packed", batch()), 9)).base_offset == 0


async def test_requests_behind_one_that_is_opened_wait_for_it(rooms: Rooms) -> None:
    rooms.create_topic("packed", compression_type="gzip")
    client = rooms.connect()
    requests = [
        produce("packed", batch()),
        produce("t", batch()),
        produce("packed", batch()),
        produce("t", batch(), acks=1),
    ]
    await client.send_bytes(b"".join(client.frame(request, 9) for request in requests))
    assert [only(await client.receive()).base_offset for _ in requests] == [0, 0, 1, 1]


async def test_a_batch_that_is_refused_is_not_opened_first(rooms: Rooms) -> None:
    rooms.create_topic("packed", compression_type="gzip", max_message_bytes="1000")
    client = rooms.connect()
    good = batch()
    for data, code in (
        (good[:-1] + bytes((good[-1] ^ 1,)), ErrorCode.CORRUPT_MESSAGE),
        (batch(size=2000), ErrorCode.MESSAGE_TOO_LARGE),
        (good[:40], ErrorCode.CORRUPT_MESSAGE),
        (None, ErrorCode.INVALID_RECORD),
    ):
        assert only(await client.ask(produce("packed", data), 9)).error_code == code
