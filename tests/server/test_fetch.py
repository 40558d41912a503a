"""Fetch: what is answered at once, and what wakes a fetch that waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from penstock.protocol.record_batch import read_batches, read_records
from penstock.server.handlers.fetch import READ_NOW_MAX
from penstock.storage.disk import Disk, File
from tests.fakes import turns
from tests.server.rooms import Rooms, batch, fetch, produce

LONG_MS = 5_000


@pytest.fixture
async def rooms(tmp_path: Path) -> AsyncIterator[Rooms]:
    rooms = Rooms(tmp_path)
    rooms.create_topic("t", 3)
    yield rooms
    await rooms.close()


def only(response: Any) -> PartitionData:
    ((partition,),) = [topic.partitions for topic in response.responses]
    assert isinstance(partition, PartitionData)
    return partition


def offsets(data: PartitionData) -> list[int]:
    return [r.offset for _, each in read_batches(data.records) for r in read_records(each, 1 << 20, check_crc=True)]


async def test_data_that_is_there_is_answered_at_once(rooms: Rooms) -> None:
    client = rooms.connect()
    await client.ask(produce("t", batch(3)), 9)
    data = only(await client.ask(fetch("t", wait_ms=LONG_MS), 11))
    assert (data.error_code, data.high_watermark, data.last_stable_offset, data.log_start_offset) == (0, 3, 3, 0)
    assert offsets(data) == [0, 1, 2]


async def test_a_fetch_in_the_middle_of_a_batch_gets_all_of_it(rooms: Rooms) -> None:
    client = rooms.connect()
    await client.ask(produce("t", batch(3)), 9)
    await client.ask(produce("t", batch(2)), 9)
    assert offsets(only(await client.ask(fetch("t", 1), 11))) == [0, 1, 2, 3, 4]
    assert offsets(only(await client.ask(fetch("t", 3), 11))) == [3, 4]


@pytest.mark.parametrize("size", [100, READ_NOW_MAX - 500, READ_NOW_MAX + 1, 900_000])
async def test_small_and_large_answers_are_whole(rooms: Rooms, size: int) -> None:
    client = rooms.connect()
    await client.ask(produce("t", batch(size=size)), 9)
    data = only(await client.ask(fetch("t", max_bytes=1 << 21, partition_max_bytes=1 << 21), 11))
    assert offsets(data) == [0]
    assert len(data.records) > size


async def test_a_batch_larger_than_the_fetch_is_answered_if_it_is_the_first(rooms: Rooms) -> None:
    client = rooms.connect()
    for index in (0, 1):
        await client.ask(produce("t", batch(size=5000), index), 9)
    request = fetch("t", max_bytes=100, partition_max_bytes=100)
    request.topics[0].partitions.append(FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=100))
    response = await client.ask(request, 11)
    first, second = response.responses[0].partitions
    assert (offsets(first), offsets(second)) == ([0], [])
    assert second.high_watermark == 1


async def test_nothing_above_the_high_watermark_is_seen(tmp_path: Path) -> None:
    rooms = Rooms(tmp_path / "held", held_syncs=True)
    rooms.create_topic("t")
    client, other = rooms.connect(), rooms.connect()
    await client.ask(produce("t", batch(2), acks=1), 9)
    data = only(await other.ask(fetch("t"), 11))
    assert (data.error_code, data.high_watermark, offsets(data)) == (0, 0, [])
    data = only(await other.ask(fetch("t", 2), 11))
    assert (data.error_code, offsets(data)) == (0, [])
    rooms.committer.end_all()
    assert offsets(only(await other.ask(fetch("t"), 11))) == [0, 1]
    await rooms.close()


@pytest.mark.parametrize("version", [4, 9, 11, 12, 13, 18])
async def test_what_a_partition_says_when_it_can_not_be_fetched(rooms: Rooms, version: int) -> None:
    client = rooms.connect()
    await client.ask(produce("t", batch(3)), 9)
    topic: str | bytes = rooms.image.topics["t"].topic_id if version >= 13 else "t"
    unknown: str | bytes = b"\1" * 16 if version >= 13 else "u"
    for request, code in (
        (fetch(topic, 4), ErrorCode.OFFSET_OUT_OF_RANGE),
        (fetch(topic, -1), ErrorCode.OFFSET_OUT_OF_RANGE),
        (fetch(topic, 0, 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (fetch(unknown), ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        request.max_wait_ms = LONG_MS
        data = only(await client.ask(request, version))
        assert (data.error_code, bytes(data.records)) == (code, b"")
    if version >= 9:
        rooms.set_leader_epoch("t", 5)
        for epoch, code in ((4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH), (5, 0)):
            assert only(await client.ask(fetch(topic, epoch=epoch), version)).error_code == code


class UnreadableFile(File):
    """While its disk fails, it can't be read."""

    __slots__ = ("disk",)

    def read(self, size: int, position: int) -> bytes:
        if self.disk.fails:
            raise OSError(5, "Input/output error")
        return super().read(size, position)


class UnreadableDisk(Disk):
    fails = False

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        file = UnreadableFile(path, create=create, writable=writable)
        file.disk = self
        return file


@pytest.mark.parametrize("known", [True, False], ids=["the records", "where they begin"])
async def test_a_disk_that_can_not_be_read_is_a_storage_error_and_costs_no_connection(
    tmp_path: Path, known: bool
) -> None:
    """Whether a fetch takes the short way or not, and whatever it wanted to read."""
    disk = UnreadableDisk()
    rooms = Rooms(tmp_path / "unreadable", disk=disk)
    rooms.create_topic("t")
    client = rooms.connect()
    await client.ask(produce("t", batch()), 9)
    for _ in range(3):
        assert offsets(only(await client.ask(fetch("t"), 11))) == [0]
    assert client.connection.memo is not None
    await client.ask(produce("t", batch()), 9)
    for _ in range(2):
        await client.ask(fetch("t"), 11)
    disk.fails = True
    assert only(await client.ask(fetch("t", 1 if known else 0), 11)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.fails = False
    assert offsets(only(await client.ask(fetch("t", 1), 11))) == [1]
    await rooms.close()


async def test_a_stopped_partition_is_a_storage_error(tmp_path: Path) -> None:
    rooms = Rooms(tmp_path / "held", held_syncs=True)
    rooms.create_topic("t")
    client = rooms.connect()
    await client.ask(produce("t", batch(2), acks=1), 9)
    rooms.committer.end_one(OSError(5, "Input/output error"))
    data = only(await client.ask(fetch("t", wait_ms=LONG_MS), 11))
    assert data.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    await rooms.close()


async def test_a_consumer_whose_log_was_cut_learns_where_it_diverged(rooms: Rooms) -> None:
    client = rooms.connect()
    await client.ask(produce("t", batch(3)), 9)
    topic = rooms.image.topics["t"].topic_id
    data = only(await client.ask(fetch(topic, 5, last_epoch=0, wait_ms=LONG_MS), 13))
    assert data.diverging_epoch is not None
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 3)
    assert data.error_code == 0


# ---- waiting


async def test_a_fetch_waits_for_data_and_no_longer(rooms: Rooms) -> None:
    consumer, producer = rooms.connect(), rooms.connect()
    await consumer.send(fetch("t", wait_ms=LONG_MS), 11)
    await turns()
    assert not consumer.has_answer()
    await producer.ask(produce("t", batch(2)), 9)
    assert offsets(only(await consumer.receive())) == [0, 1]
    assert not rooms.partition("t").fetchers


async def test_a_fetch_waits_no_longer_than_it_said(rooms: Rooms) -> None:
    client = rooms.connect()
    began = asyncio.get_running_loop().time()
    data = only(await client.ask(fetch("t", wait_ms=60), 11))
    assert 0.055 <= asyncio.get_running_loop().time() - began < 2
    assert (data.error_code, offsets(data)) == (0, [])
    assert not rooms.partition("t").fetchers


async def test_a_fetch_waits_until_there_is_enough(rooms: Rooms) -> None:
    consumer, producer = rooms.connect(), rooms.connect()
    await consumer.send(fetch("t", wait_ms=LONG_MS, min_bytes=300), 11)
    for _ in range(3):
        await producer.ask(produce("t", batch(size=30)), 9)
        await turns()
        assert not consumer.has_answer()
    await producer.ask(produce("t", batch(size=100)), 9)
    assert offsets(only(await consumer.receive())) == [0, 1, 2, 3]


async def test_enough_may_come_from_several_partitions(rooms: Rooms) -> None:
    consumer, producer = rooms.connect(), rooms.connect()
    request = fetch("t", wait_ms=LONG_MS, min_bytes=300)
    for index in (1, 2):
        request.topics[0].partitions.append(FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000))
    await consumer.send(request, 11)
    await producer.ask(produce("t", batch(size=100), 1), 9)
    await turns()
    assert not consumer.has_answer()
    await producer.ask(produce("t", batch(size=100), 2), 9)
    response = await consumer.receive()
    assert [offsets(data) for data in response.responses[0].partitions] == [[], [0], [0]]
    assert not any(rooms.partition("t", index).fetchers for index in range(3))


async def test_when_time_is_up_what_there_is_is_answered(rooms: Rooms) -> None:
    consumer, producer = rooms.connect(), rooms.connect()
    await consumer.send(fetch("t", wait_ms=80, min_bytes=10_000), 11)
    await producer.ask(produce("t", batch(2)), 9)
    assert offsets(only(await consumer.receive())) == [0, 1]


async def test_a_fetch_that_wants_nothing_is_answered_at_once(rooms: Rooms) -> None:
    client = rooms.connect()
    assert offsets(only(await client.ask(fetch("t", wait_ms=LONG_MS, min_bytes=0), 11))) == []
    response = await client.ask(FetchRequest(max_wait_ms=LONG_MS, min_bytes=1, max_bytes=100, topics=[]), 11)
    assert response.responses == []


async def test_what_is_asked_twice_is_answered_once(rooms: Rooms) -> None:
    client = rooms.connect()
    await client.ask(produce("t", batch()), 9)
    request = fetch("t")
    request.topics.append(FetchTopic(topic="t", partitions=list(request.topics[0].partitions)))
    assert offsets(only(await client.ask(request, 11))) == [0]


async def test_a_waiting_fetch_learns_that_its_topic_was_deleted(rooms: Rooms) -> None:
    for version in (11, 13):
        topic = rooms.image.topics["t"].topic_id if version >= 13 else "t"
        consumer = rooms.connect()
        await consumer.ask(produce("t", batch()), 9)
        await consumer.send(fetch(topic, 1, wait_ms=LONG_MS), version)
        await turns()
        rooms.delete_topic("t")
        data = only(await consumer.receive())
        expected = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert data.error_code == expected
        rooms.create_topic("t", 3)


async def test_a_waiting_fetch_learns_that_its_partition_stopped(tmp_path: Path) -> None:
    rooms = Rooms(tmp_path / "held", held_syncs=True)
    rooms.create_topic("t")
    consumer, producer = rooms.connect(), rooms.connect()
    await consumer.send(fetch("t", wait_ms=LONG_MS), 11)
    await producer.ask(produce("t", batch(), acks=1), 9)
    rooms.committer.end_one(OSError(5, "Input/output error"))
    assert only(await consumer.receive()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    await rooms.close()


async def test_nothing_is_left_of_a_fetch_whose_client_has_gone(rooms: Rooms) -> None:
    client = rooms.connect()
    await client.send(fetch("t", wait_ms=LONG_MS), 11)
    await turns()
    assert len(rooms.partition("t").fetchers) == 1
    client.close()
    await turns()
    assert client.connection.closed
    assert not rooms.partition("t").fetchers


async def test_many_wait_for_one_partition_and_each_gets_its_own(rooms: Rooms) -> None:
    consumers = [rooms.connect() for _ in range(20)]
    for number, consumer in enumerate(consumers):
        await consumer.send(fetch("t", wait_ms=LONG_MS, min_bytes=1 + 60 * (number % 3)), 11)
    await turns()
    producer = rooms.connect()
    for _ in range(5):
        await producer.ask(produce("t", batch()), 9)
    for consumer in consumers:
        assert offsets(only(await consumer.receive()))[0] == 0
    assert not rooms.partition("t").fetchers
