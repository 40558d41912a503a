"""A follower's fetches, as a broker sends them: what they are answered, the short way and the ordinary one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.cluster.model import BrokerState, Endpoint, PartitionState
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from penstock.protocol.messages.produce import ProduceResponse
from penstock.replication.in_sync import UNKNOWN, InSyncReplicas
from penstock.server import replica_fetch
from penstock.server.fast_replica import ReplicaMemo
from tests.fakes import until
from tests.server.rooms import Client, Rooms, batch, produce

FOLLOWER, BROKER_EPOCH, VERSION = 2, 7, 17
TOPIC = "t"
IN_SYNC = PartitionState(leader=1, leader_epoch=3, replicas=(1, 2), isr=(1, 2))


@pytest.fixture(params=[True, False], ids=["the short way", "the ordinary way"])
async def rooms(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rooms]:
    rooms = Rooms(tmp_path, with_memos=request.param, flush="os")
    rooms.image.brokers[FOLLOWER] = BrokerState(FOLLOWER, (Endpoint("PLAINTEXT", "there", 9092),), epoch=BROKER_EPOCH)
    topic = rooms.create_topic(TOPIC, 2)
    rooms.put_topic(replace(topic, partitions=(IN_SYNC, IN_SYNC)))
    yield rooms
    await rooms.close()


class Follower:
    def __init__(self, rooms: Rooms) -> None:
        self.rooms = rooms
        self.client: Client = rooms.connect()
        self.topic_id = rooms.image.topics[TOPIC].topic_id
        self.session_id = 0
        self.epoch = 0

    def request(self, asked: dict[int, int], *, wait_ms: int = 10_000, epoch: int = 3, last: int = 3) -> FetchRequest:
        partitions = [
            FetchPartition(
                partition=index, current_leader_epoch=epoch, fetch_offset=offset,
                last_fetched_epoch=last if offset else -1, log_start_offset=0, partition_max_bytes=1 << 20,
            )
            for index, offset in asked.items()
        ]  # fmt: skip
        return FetchRequest(
            replica_state=ReplicaState(replica_id=FOLLOWER, replica_epoch=BROKER_EPOCH), max_wait_ms=wait_ms,
            min_bytes=1, max_bytes=1 << 22, session_id=self.session_id, session_epoch=self.epoch,
            topics=[FetchTopic(topic_id=self.topic_id, partitions=partitions)] if partitions else [],
        )  # fmt: skip

    async def send(self, asked: dict[int, int], **options: Any) -> None:
        await self.client.send(self.request(asked, **options), VERSION)
        self.epoch += 1

    async def receive(self) -> dict[int, PartitionData]:
        response: FetchResponse = await self.client.receive()
        assert response.error_code == 0
        self.session_id = response.session_id
        return {data.partition_index: data for topic in response.responses for data in topic.partitions}

    async def fetch(self, asked: dict[int, int], **options: Any) -> dict[int, PartitionData]:
        await self.send(asked, **options)
        return await self.receive()

    async def begin(self) -> None:
        """A session, and one fetch of it from which the next may take the short way."""
        await self.fetch({0: 0, 1: 0}, wait_ms=0)
        await self.fetch({}, wait_ms=0)
        await self.send({})


async def write(rooms: Rooms, producer: Client, index: int = 0, count: int = 1) -> None:
    await producer.send(produce(TOPIC, batch(count), index, acks=-1), 9)


async def test_what_is_written_is_sent_at_once_and_committed_by_the_next_fetch(rooms: Rooms) -> None:
    follower, producer = Follower(rooms), rooms.connect()
    await follower.begin()
    for offset in range(5):
        await write(rooms, producer)
        (data,) = (await follower.receive()).values()
        assert (data.partition_index, data.error_code, data.high_watermark) == (0, 0, offset)
        assert bytes(data.records)[:8] == offset.to_bytes(8, "big")
        assert not producer.has_answer()
        await follower.send({0: offset + 1})
        answer: ProduceResponse = await producer.receive()
        assert answer.responses[0].partition_responses[0].base_offset == offset
    assert rooms.partition(TOPIC).high_watermark == 5
    assert isinstance(follower.client.connection.memo, ReplicaMemo) is rooms.with_memos


async def test_several_partitions_are_answered_together(rooms: Rooms) -> None:
    follower, producers = Follower(rooms), [rooms.connect(), rooms.connect()]
    await follower.begin()
    for round in range(3):
        for index, producer in enumerate(producers):
            await write(rooms, producer, index)
        got: dict[int, PartitionData] = {}
        while len(got) < 2:
            data = await follower.receive()
            got |= data
            await follower.send(dict.fromkeys(data, round + 1))
        for producer in producers:
            assert (await producer.receive()).responses[0].partition_responses[0].error_code == 0


async def test_another_epoch_is_refused(rooms: Rooms) -> None:
    follower = Follower(rooms)
    await follower.begin()
    await follower.send({0: 0}, epoch=2)
    await follower.receive()  # of the fetch that waited until another came
    (data,) = (await follower.receive()).values()
    assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize(
    ("broker_epoch", "is_announced", "level"),
    [
        (BROKER_EPOCH + 1, True, "INFO"),
        (BROKER_EPOCH + 1, False, "INFO"),
        (BROKER_EPOCH - 1, True, "WARNING"),
    ],
)
async def test_a_broker_that_has_started_anew_is_refused_without_alarm_until_it_is_told_of(
    rooms: Rooms, caplog: pytest.LogCaptureFixture, broker_epoch: int, is_announced: bool, level: str
) -> None:
    caplog.set_level("INFO")
    if not is_announced:
        del rooms.image.brokers[FOLLOWER]
    follower = Follower(rooms)
    request = follower.request({0: 0})
    request.replica_state = ReplicaState(replica_id=FOLLOWER, replica_epoch=broker_epoch)
    await follower.client.send(request, VERSION)
    response: FetchResponse = await follower.client.receive()
    assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert [each.levelname for each in caplog.records if "a fetch was refused" in each.message] == [level]


async def test_who_has_no_replica_of_what_it_asks_for_is_refused_with_a_warning(
    rooms: Rooms, caplog: pytest.LogCaptureFixture
) -> None:
    follower = Follower(rooms)
    request = follower.request({0: 0})
    request.replica_state = ReplicaState(replica_id=9, replica_epoch=BROKER_EPOCH)
    await follower.client.send(request, VERSION)
    await follower.client.receive()
    assert [each.levelname for each in caplog.records if "a fetch was refused" in each.message] == ["WARNING"]


async def test_a_follower_whose_epoch_ends_earlier_here_is_told_where(rooms: Rooms) -> None:
    follower, producer = Follower(rooms), rooms.connect()
    await follower.begin()
    await write(rooms, producer)
    await follower.receive()
    data = (await follower.fetch({0: 5}))[0]
    assert data.diverging_epoch is not None
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (3, 1)
    assert rooms.partition(TOPIC).high_watermark == 0


async def test_it_is_told_so_where_its_log_is_just_as_long_as_the_leader_s(rooms: Rooms) -> None:
    """It has another batch there, of an epoch that the leader has none of."""
    follower, producer = Follower(rooms), rooms.connect()
    await follower.begin()
    await write(rooms, producer)
    await follower.receive()
    data = (await follower.fetch({0: 1}, last=2))[0]
    assert data.diverging_epoch is not None
    assert data.diverging_epoch.epoch < 2
    assert rooms.partition(TOPIC).high_watermark == 0


async def begins_at_2(rooms: Rooms) -> Follower:
    """The first two of three records are deleted, and what was known of their epochs with them."""
    await rooms.connect().send(produce(TOPIC, batch(3), 0, acks=1), 9)
    await until(lambda: rooms.partition(TOPIC).log.end_offset == 3)
    follower = Follower(rooms)
    await follower.fetch({0: 3})
    await follower.fetch({}, wait_ms=0)
    store = rooms.partition(TOPIC).log
    store.advance_start(2)
    assert (store.epochs.epochs, store.epochs.starts) == ([3], [2])
    return follower


def in_sync_of(rooms: Rooms) -> InSyncReplicas:
    in_sync = rooms.partition(TOPIC).in_sync
    assert in_sync is not None
    return in_sync


async def test_records_of_an_epoch_that_is_unknown_here_count_for_nothing_beyond_where_the_log_begins(
    rooms: Rooms,
) -> None:
    """What they are nobody knows: the leader's own are others."""
    follower = await begins_at_2(rooms)
    in_sync_of(rooms).forget(FOLLOWER)
    data = (await follower.fetch({0: 3}, last=1, wait_ms=0))[0]
    assert (data.error_code, bytes(data.records)) == (0, b"")
    assert data.diverging_epoch is not None
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (-1, -1)
    assert in_sync_of(rooms).position(FOLLOWER) == UNKNOWN


async def test_records_of_an_epoch_that_is_unknown_here_do_not_matter_where_all_of_them_are_deleted(
    rooms: Rooms,
) -> None:
    follower = await begins_at_2(rooms)
    data = (await follower.fetch({0: 2}, last=1))[0]
    assert data.error_code == 0
    assert bytes(data.records)
    assert in_sync_of(rooms).position(FOLLOWER) == 2


@pytest.mark.parametrize("last", [1, 3])
async def test_a_fetch_below_where_the_log_begins_counts_for_nothing(rooms: Rooms, last: int) -> None:
    follower = await begins_at_2(rooms)
    data = (await follower.fetch({0: 1}, last=last))[0]
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert data.log_start_offset == 2
    assert in_sync_of(rooms).position(FOLLOWER) == 3


async def test_a_fetch_behind_the_end_counts_for_nothing_where_no_epoch_is_named(rooms: Rooms) -> None:
    """As of a follower that has lost the file of its epochs."""
    follower, producer = Follower(rooms), rooms.connect()
    await follower.begin()
    await write(rooms, producer)
    await follower.receive()
    data = (await follower.fetch({0: 5}, last=-1))[0]
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert rooms.partition(TOPIC).high_watermark == 0
    assert not producer.has_answer()


async def test_a_follower_that_rests_and_was_put_out_is_to_show_anew_what_it_has(rooms: Rooms) -> None:
    """It names no partition that is at rest by itself; and what it has shown before counts no more."""
    follower = Follower(rooms)
    await follower.begin()
    await until(lambda: bool(follower.client.connection.slots))
    rooms.set_partition(TOPIC, replace(IN_SYNC, isr=(1,)))
    assert {index: data.error_code for index, data in (await follower.receive()).items()} == {
        0: ErrorCode.NOT_LEADER_OR_FOLLOWER
    }
    in_sync = rooms.partition(TOPIC).in_sync
    assert in_sync is not None
    assert not in_sync.may_join(FOLLOWER, 0)
    proposed: set[int] = set()
    rooms.replicas.propose = lambda partition, replica: proposed.add(replica)  # type: ignore[method-assign]
    assert await follower.fetch({0: 0}, wait_ms=0) == {}
    assert proposed == {FOLLOWER}
    assert in_sync.may_join(FOLLOWER, 0)
    assert await follower.fetch({}, wait_ms=0) == {}, "once is enough"


async def test_a_session_is_not_gone_on_with_by_another_number_or_life(rooms: Rooms) -> None:
    follower, producer = Follower(rooms), rooms.connect()
    await follower.begin()
    await write(rooms, producer)
    await follower.receive()
    follower.epoch += 1
    await follower.client.send(follower.request({0: 1}), VERSION)
    response: FetchResponse = await follower.client.receive()
    assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    follower.epoch -= 1
    brokers = rooms.image.brokers
    brokers[FOLLOWER] = replace(brokers[FOLLOWER], epoch=BROKER_EPOCH + 1)
    rooms.image.generation += 1
    await follower.client.send(follower.request({0: 1}), VERSION)
    response = await follower.client.receive()
    assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert rooms.partition(TOPIC).high_watermark == 0


async def test_a_fetch_waits_no_longer_than_it_asks(rooms: Rooms) -> None:
    follower, producer = Follower(rooms), rooms.connect()
    await follower.begin()
    await write(rooms, producer)
    await follower.receive()
    await follower.send({0: 1})
    await producer.receive()
    await follower.send({}, wait_ms=30)  # the one that waits is answered first: there is more to ask
    told = (await follower.receive())[0]
    assert (told.high_watermark, bytes(told.records)) == (1, b"")
    assert await follower.receive() == {}


async def test_the_session_of_a_follower_that_is_gone_is_woken_no_more(rooms: Rooms) -> None:
    follower = Follower(rooms)
    await follower.begin()
    await until(lambda: bool(follower.client.connection.slots))
    replica_fetch.close_gone(rooms.context)
    assert len(rooms.partition(TOPIC).followers) == 1
    del rooms.image.brokers[FOLLOWER]
    replica_fetch.close_gone(rooms.context)
    assert not rooms.partition(TOPIC).followers
    assert not rooms.context.replica_sessions
    response: FetchResponse = await follower.client.receive()
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "if it lives after all, it begins anew"


async def test_nobody_goes_on_with_a_session_who_does_not_know_the_broker_s_epoch(rooms: Rooms) -> None:
    follower, producer, liar = Follower(rooms), rooms.connect(), rooms.connect()
    await follower.begin()
    await write(rooms, producer)
    await follower.receive()
    for epoch in range(1, 6):  # one of them is right
        request = follower.request({0: 1}, wait_ms=0)
        request.replica_state = ReplicaState(replica_id=FOLLOWER, replica_epoch=-999)
        request.session_epoch = epoch
        response: FetchResponse = await liar.ask(request, VERSION)
        assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert rooms.partition(TOPIC).high_watermark == 0


async def test_a_session_that_goes_on_over_another_connection_is_answered_there(rooms: Rooms) -> None:
    follower, producer, other = Follower(rooms), rooms.connect(), Follower(rooms)
    await follower.begin()
    await until(lambda: bool(follower.client.connection.slots))
    other.session_id, other.epoch = follower.session_id, follower.epoch
    await other.send({})
    await until(lambda: bool(other.client.connection.slots))
    response: FetchResponse = await follower.client.receive()
    assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    follower.client.connection.close()
    await write(rooms, producer)
    assert (await other.receive())[0].records


async def test_a_fetch_that_fails_in_a_way_nobody_foresaw_costs_its_connection(rooms: Rooms) -> None:
    follower, producer = Follower(rooms), rooms.connect()
    await follower.begin()
    await write(rooms, producer)
    await follower.receive()

    def fail() -> None:
        raise RuntimeError("of someone who waits for a commit")

    rooms.partition(TOPIC).when_committed(1, fail)
    await follower.send({0: 1})
    assert await follower.client.is_closed()
