"""ListOffsets, DeleteRecords and OffsetForLeaderEpoch: what a client asks to find its way in a log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.fakes import turns
from tests.server.rooms import Client, Rooms, batch, fetch, produce
from tests.storage.disks import FullDisk
from tests.storage.logs import NOW_MS

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


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
    """With a topic of five records in three batches, whose timestamps do not rise."""
    rooms = make()
    rooms.create_topic("t", 2)
    client = rooms.connect()
    for timestamps in ([10, 30], [20], [50, 40]):
        stamped = [NOW_MS + t for t in timestamps]
        await client.ask(produce("t", batch(len(stamped), timestamps=stamped)), 9)
    await rooms.idle()
    return rooms


# ---- ListOffsets


async def list_offset(
    client: Client, timestamp: int, index: int = 0, *, version: int = 11, epoch: int = -1, topic: str = "t"
) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=epoch)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
    response = await client.ask(request, version)
    answer = response.topics[0].partitions[0]
    assert isinstance(answer, ListOffsetsPartitionResponse)
    return answer


@pytest.mark.parametrize(
    ("timestamp", "offset", "stamp", "epoch"),
    [
        (LATEST, 5, -1, 0),
        (EARLIEST, 0, -1, 0),
        (EARLIEST_LOCAL, 0, -1, 0),
        (LATEST_TIERED, -1, -1, -1),
        (MAX_TIMESTAMP, 3, NOW_MS + 50, 0),
        (0, 0, NOW_MS + 10, 0),
        (NOW_MS + 10, 0, NOW_MS + 10, 0),
        (NOW_MS + 11, 1, NOW_MS + 30, 0),
        (NOW_MS + 31, 3, NOW_MS + 50, 0),
        (NOW_MS + 50, 3, NOW_MS + 50, 0),
        (NOW_MS + 51, -1, -1, -1),
        (2**63 - 1, -1, -1, -1),
    ],
)
async def test_places_in_a_log(rooms: Rooms, timestamp: int, offset: int, stamp: int, epoch: int) -> None:
    answer = await list_offset(rooms.connect(), timestamp)
    assert answer.error_code == 0
    assert (answer.offset, answer.timestamp, answer.leader_epoch) == (offset, stamp, epoch)


@pytest.mark.parametrize(("timestamp", "offset"), [(LATEST, 0), (EARLIEST, 0), (MAX_TIMESTAMP, -1), (0, -1)])
async def test_places_in_an_empty_log(rooms: Rooms, timestamp: int, offset: int) -> None:
    answer = await list_offset(rooms.connect(), timestamp, 1)
    assert (answer.error_code, answer.offset, answer.timestamp) == (0, offset, -1)


@pytest.mark.parametrize("version", range(1, 12))
async def test_named_places_are_known_from_their_versions_on(rooms: Rooms, version: int) -> None:
    client = rooms.connect()
    for place, first in ((LATEST, 1), (EARLIEST, 1), (MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9)):
        answer = await list_offset(client, place, version=version)
        assert answer.error_code == (0 if version >= first else ErrorCode.UNSUPPORTED_VERSION)
    assert (await list_offset(client, -7, version=version)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_what_list_offsets_refuses(rooms: Rooms) -> None:
    client = rooms.connect()
    assert (await list_offset(client, LATEST, 2)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await list_offset(client, LATEST, topic="u")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rooms.set_leader_epoch("t", 3)
    for epoch, code in ((2, ErrorCode.FENCED_LEADER_EPOCH), (3, 0), (4, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, 0)):
        assert (await list_offset(client, LATEST, epoch=epoch)).error_code == code


async def test_the_end_waits_for_what_was_acknowledged_before(make: Callable[..., Rooms]) -> None:
    rooms = make(held_syncs=True)
    rooms.create_topic("t")
    client, other = rooms.connect(), rooms.connect()
    await client.ask(produce("t", batch(2), acks=1), 9)
    asked = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    await other.send(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked])]), 7)
    await turns()
    assert not other.has_answer()
    rooms.committer.end_all()
    assert (await other.receive()).topics[0].partitions[0].offset == 2


async def test_who_asks_for_an_offset_does_not_wait_for_a_partition_that_stopped(make: Callable[..., Rooms]) -> None:
    rooms = make(held_syncs=True)
    rooms.create_topic("t")
    client = rooms.connect()
    await client.ask(produce("t", batch(2), acks=1), 9)
    rooms.committer.end_one(OSError(5, "Input/output error"))
    assert (await list_offset(client, LATEST)).offset == 0


# ---- DeleteRecords


async def delete_records(client: Client, offset: int, index: int = 0, topic: str = "t") -> DeleteRecordsPartitionResult:
    asked = DeleteRecordsPartition(partition_index=index, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[asked])], timeout_ms=1000)
    result = (await client.ask(request)).topics[0].partitions[0]
    assert isinstance(result, DeleteRecordsPartitionResult)
    return result


async def test_records_below_an_offset_are_deleted(rooms: Rooms) -> None:
    client = rooms.connect()
    result = await delete_records(client, 3)
    assert (result.error_code, result.low_watermark) == (0, 3)
    assert (await list_offset(client, EARLIEST)).offset == 3
    assert (await list_offset(client, 0)).offset == 3
    assert (await list_offset(client, MAX_TIMESTAMP)).offset == 3
    fetched = await client.ask(fetch("t", 2), 11)
    assert fetched.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    result = await delete_records(client, 1)
    assert (result.error_code, result.low_watermark) == (0, 3), "what is gone does not come back"


async def test_all_records_may_be_deleted_and_offsets_go_on(rooms: Rooms) -> None:
    client = rooms.connect()
    result = await delete_records(client, -1)
    assert (result.error_code, result.low_watermark) == (0, 5)
    for place in (EARLIEST, LATEST):
        assert (await list_offset(client, place)).offset == 5
    response = await client.ask(produce("t", batch()), 9)
    assert response.responses[0].partition_responses[0].base_offset == 5
    assert response.responses[0].partition_responses[0].log_start_offset == 5


async def test_what_delete_records_refuses(rooms: Rooms) -> None:
    client = rooms.connect()
    rooms.create_topic("compacted", cleanup_policy="compact")
    for offset, index, topic, code in (
        (6, 0, "t", ErrorCode.OFFSET_OUT_OF_RANGE),
        (-2, 0, "t", ErrorCode.OFFSET_OUT_OF_RANGE),
        (0, 2, "t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, 0, "u", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, 0, "compacted", ErrorCode.POLICY_VIOLATION),
    ):
        result = await delete_records(client, offset, index, topic)
        assert (result.error_code, result.low_watermark) == (code, -1)
    assert (await list_offset(client, EARLIEST)).offset == 0


async def test_what_could_not_be_made_to_last_is_an_error_and_not_done(make: Callable[..., Rooms]) -> None:
    disk = FullDisk(100_000)
    rooms = make(disk=disk)
    rooms.create_topic("t")
    client = rooms.connect()
    await client.ask(produce("t", batch(5)), 9)
    disk.room, room = 0, disk.room
    assert (await delete_records(client, 3)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await list_offset(client, EARLIEST)).offset == 0
    disk.room = room
    assert (await delete_records(client, 3)).low_watermark == 3


# ---- OffsetForLeaderEpoch


async def end_of(
    client: Client, epoch: int, index: int = 0, *, current: int = -1, topic: str = "t"
) -> tuple[int, int, int]:
    """Error, epoch and end offset."""
    asked = OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])])
    answer = (await client.ask(request)).topics[0].partitions[0]
    assert isinstance(answer, EpochEndOffset)
    return answer.error_code, answer.leader_epoch, answer.end_offset


async def test_where_an_epoch_ended(rooms: Rooms) -> None:
    client = rooms.connect()
    assert await end_of(client, 0) == (0, 0, 5)
    log = rooms.partition("t").log
    rooms.set_leader_epoch("t", 4)
    log.begin_epoch(4)
    await client.ask(produce("t", batch(2)), 9)
    assert await end_of(client, 0) == (0, 0, 5)
    assert await end_of(client, 2) == (0, 0, 5), "the last one before it"
    assert await end_of(client, 4) == (0, 4, 7)


async def test_an_epoch_before_all_that_is_left_ended_where_that_begins(rooms: Rooms) -> None:
    client = rooms.connect()
    rooms.set_leader_epoch("t", 4)
    rooms.partition("t").log.begin_epoch(4)
    await client.ask(produce("t", batch(2)), 9)
    await delete_records(client, 5)
    assert await end_of(client, 0) == (0, 0, 5), "a consumer at offset 5 has lost nothing"


async def test_an_epoch_that_never_was_has_no_end(rooms: Rooms) -> None:
    client = rooms.connect()
    assert await end_of(client, 7) == (0, -1, -1)
    assert await end_of(client, -1) == (0, -1, -1)


async def test_what_offset_for_leader_epoch_refuses(rooms: Rooms) -> None:
    client = rooms.connect()
    assert await end_of(client, 0, 2) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert await end_of(client, 0, topic="u") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    rooms.set_leader_epoch("t", 3)
    assert await end_of(client, 0, current=2) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert await end_of(client, 0, current=4) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert (await end_of(client, 0, current=3))[0] == 0
