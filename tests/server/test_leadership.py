"""What a broker answers about partitions that it leads, follows, or has no replica of."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.cluster.model import NO_LEADER, BrokerState, Endpoint, PartitionState
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from penstock.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.server.rooms import LISTENER, Client, Rooms, batch, produce
from tests.storage.logs import NOW_MS

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
CONSUMER, FOLLOWER = -1, 2

LEADING = PartitionState(leader=1, leader_epoch=3, replicas=(1, 2), isr=(1, 2))
FOLLOWING = PartitionState(leader=2, leader_epoch=4, replicas=(1, 2), isr=(1, 2))
ELSEWHERE = PartitionState(leader=2, leader_epoch=0, replicas=(2,), isr=(2,))
LED_BY_NOBODY = PartitionState(leader=NO_LEADER, leader_epoch=5, replicas=(1, 2), isr=(), eligible=(2,), last_leader=2)


@pytest.fixture
async def rooms(tmp_path: Path) -> AsyncIterator[Rooms]:
    """With five records of epoch 0 in partition 0, before that gets a second replica."""
    rooms = Rooms(tmp_path)
    rooms.image.brokers[2] = BrokerState(2, (Endpoint(LISTENER, "there", 9092),))
    rooms.create_topic("t", 4)
    client = rooms.connect()
    for count in (2, 3):
        await client.ask(produce("t", batch(count)), 9)
    await rooms.idle()
    for index, state in enumerate((LEADING, FOLLOWING, ELSEWHERE, LED_BY_NOBODY)):
        rooms.set_partition("t", state, index)
    yield rooms
    await rooms.close()


async def list_offset(client: Client, timestamp: int, index: int = 0, version: int = 11) -> tuple[int, int]:
    """Error and offset."""
    asked = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    answer = (await client.ask(request, version)).topics[0].partitions[0]
    return answer.error_code, answer.offset


async def delete_records(client: Client, offset: int, index: int = 0) -> tuple[int, int]:
    asked = DeleteRecordsPartition(partition_index=index, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[asked])], timeout_ms=1000)
    answer = (await client.ask(request)).topics[0].partitions[0]
    return answer.error_code, answer.low_watermark


async def end_of(client: Client, epoch: int, index: int = 0, *, replica: int = FOLLOWER) -> tuple[int, int, int]:
    """Error, epoch and end offset."""
    asked = OffsetForLeaderPartition(partition=index, leader_epoch=epoch)
    topics = [OffsetForLeaderTopic(topic="t", partitions=[asked])]
    answer = (await client.ask(OffsetForLeaderEpochRequest(replica_id=replica, topics=topics))).topics[0].partitions[0]
    return answer.error_code, answer.leader_epoch, answer.end_offset


async def producers(client: Client, index: int = 0) -> int:
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[index])])
    return int((await client.ask(request)).topics[0].partitions[0].error_code)


@pytest.mark.parametrize(
    ("index", "error"),
    [
        (0, ErrorCode.NONE),
        (1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (2, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (3, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (4, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_only_the_leader_answers(rooms: Rooms, index: int, error: ErrorCode) -> None:
    client = rooms.connect()
    assert (await list_offset(client, EARLIEST, index))[0] == error
    assert (await delete_records(client, 0, index))[0] == error
    assert (await end_of(client, 0, index))[0] == error


async def test_every_replica_tells_its_producers(rooms: Rooms) -> None:
    client = rooms.connect()
    elsewhere, unknown = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [await producers(client, index) for index in range(5)] == [0, 0, elsewhere, 0, unknown]


# ---- what is committed


async def test_a_new_leader_does_not_say_where_the_log_ends_before_it_knows(rooms: Rooms) -> None:
    client, partition = rooms.connect(), rooms.partition("t")
    partition.high_watermark = 2  # of what it has, so much was told by the leader before
    unknown = ErrorCode.OFFSET_NOT_AVAILABLE
    assert await list_offset(client, LATEST) == (unknown, -1)
    assert await list_offset(client, LATEST, version=5) == (unknown, -1)
    assert await list_offset(client, LATEST, version=4) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert await list_offset(client, NOW_MS + 10**9) == (unknown, -1), "it may be in what is not known to be committed"
    assert await list_offset(client, EARLIEST) == (0, 0)
    assert await list_offset(client, 0) == (0, 0), "what is known to be committed is told"
    rooms.replicas.fetched(partition, 2, 5, NOW_MS)
    assert partition.high_watermark == 5
    assert await list_offset(client, LATEST) == (0, 5)
    assert await list_offset(client, NOW_MS + 10**9) == (0, -1)


async def test_who_asks_for_the_end_does_not_wait_for_other_replicas(rooms: Rooms) -> None:
    client, partition = rooms.connect(), rooms.partition("t")
    rooms.replicas.fetched(partition, 2, 5, NOW_MS)
    await client.ask(produce("t", batch(1), acks=1), 9)
    await rooms.idle()
    assert (partition.log.end_offset, partition.high_watermark) == (6, 5)
    assert await list_offset(client, LATEST) == (0, 5)


async def test_only_what_is_committed_can_be_deleted(rooms: Rooms) -> None:
    client, partition = rooms.connect(), rooms.partition("t")
    partition.high_watermark = 2
    assert await delete_records(client, 3) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    rooms.replicas.low_watermarks.begins_at(partition, 2, 2)  # the other replica has deleted so much already
    assert await delete_records(client, -1) == (0, 2)
    assert await list_offset(client, EARLIEST) == (0, 2)


# ---- where logs part


async def test_to_a_follower_the_log_ends_where_it_ends(rooms: Rooms) -> None:
    client, partition = rooms.connect(), rooms.partition("t")
    partition.high_watermark = 2
    assert await end_of(client, 0) == (0, 0, 5), "committed or not"
    await client.ask(produce("t", batch(1), acks=1), 9)
    assert await end_of(client, 3) == (0, 3, 6)
    assert await end_of(client, 1) == (0, 0, 5), "the last one before it"


async def test_a_consumer_that_was_shown_more_by_the_leader_before_has_lost_nothing(rooms: Rooms) -> None:
    rooms.partition("t").high_watermark = 2
    assert await end_of(rooms.connect(), 0, replica=CONSUMER) == (0, 0, 5)


async def test_a_follower_keeps_nothing_where_the_leader_has_nothing(rooms: Rooms) -> None:
    client = rooms.connect()
    rooms.set_partition("t", LEADING, 1)
    assert rooms.partition("t", 1).log.end_offset == 0
    for epoch in (0, 2, 3):
        assert await end_of(client, epoch, 1) == (0, epoch, 0)


async def test_an_epoch_before_all_that_is_left_ended_where_that_begins(rooms: Rooms) -> None:
    client, partition = rooms.connect(), rooms.partition("t")
    rooms.replicas.fetched(partition, 2, 5, NOW_MS)
    await client.ask(produce("t", batch(2), acks=1), 9)
    await delete_records(client, 5)
    assert await end_of(client, 0) == (0, 0, 5)


async def test_an_epoch_that_the_leader_does_not_know_is_none_to_a_consumer(rooms: Rooms) -> None:
    client = rooms.connect()
    assert await end_of(client, 9, replica=CONSUMER) == (0, -1, -1)
    assert await end_of(client, -1) == (0, -1, -1)
    assert await end_of(client, 9) == (0, 0, 5), "a follower is to keep what both have"
