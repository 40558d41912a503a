"""What a group has committed, asked by whoever needs to know: its coordinator is here, elsewhere or nowhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import cast

import pytest

from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest
from penstock.server import committed_offsets
from penstock.server.committed_offsets import NOTHING, CommittedOffsets
from penstock.transport.peers import Peers
from tests.fakes import TIMEOUT_S, rounds
from tests.server.linked_rooms import LinkedRooms
from tests.server.rooms import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests.storage.logs import NOW_MS
from tests.transactions.engine import BUMPING
from tests.transactions.raw import RawProducer, error_of

GROUP = "archive"
WANTED = [("t", 0), ("t", 1), ("u", 0)]
HERE, ELSEWHERE = 2, 1  # of the coordinator


@pytest.fixture
async def linked(tmp_path: Path) -> AsyncIterator[LinkedRooms]:
    """Groups are coordinated by broker 2."""
    linked = LinkedRooms(tmp_path)
    linked.create(OFFSETS_TOPIC, [2], (2, 1), internal=True)
    linked.create("t", [1, 2])
    linked.create("u", [1])
    yield linked
    await linked.close()


def asker(linked: LinkedRooms, node_id: int) -> CommittedOffsets:
    rooms = linked.brokers[node_id]
    return CommittedOffsets(node_id, rooms.image, rooms.groups, cast(Peers, linked.peers[node_id]))


async def commit(linked: LinkedRooms, topic: str, index: int, offset: int, to: int = 2) -> None:
    partition = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    request = OffsetCommitRequest(group_id=GROUP, generation_id_or_member_epoch=-1, topics=topics)
    response = await linked.brokers[to].connect().ask(request, 9)
    assert response.topics[0].partitions[0].error_code == 0


@pytest.mark.parametrize("node_id", [HERE, ELSEWHERE])
async def test_the_coordinator_is_asked_once_for_all(linked: LinkedRooms, node_id: int) -> None:
    assert await asker(linked, node_id).of(GROUP, WANTED) == dict.fromkeys(WANTED, NOTHING)
    await commit(linked, "t", 1, 7)
    await commit(linked, "u", 0, 0)
    linked.peers[ELSEWHERE].sent.clear()
    assert await asker(linked, node_id).of(GROUP, WANTED) == {("t", 0): NOTHING, ("t", 1): 7, ("u", 0): 0}
    assert len(linked.peers[ELSEWHERE].of(OffsetFetchRequest)) == (1 if node_id == ELSEWHERE else 0)


@pytest.mark.parametrize("node_id", [HERE, ELSEWHERE])
async def test_where_no_group_has_ever_committed_all_is_known(tmp_path: Path, node_id: int) -> None:
    linked = LinkedRooms(tmp_path)
    assert await asker(linked, node_id).of(GROUP, WANTED) == dict.fromkeys(WANTED, NOTHING)
    assert linked.peers[node_id].sent == []
    await linked.close()


async def test_offsets_of_an_open_transaction_do_not_count_until_it_is_committed(linked: LinkedRooms) -> None:
    linked.create(TRANSACTIONS_TOPIC, [1], (1, 2), internal=True)
    await commit(linked, "t", 1, 7)
    producer = RawProducer("payments", BUMPING, now_ms=NOW_MS)
    clients = {node_id: rooms.connect() for node_id, rooms in linked.brokers.items()}
    producer.heard(await clients[1].ask(*producer.initialize()))
    assert error_of(await clients[2].ask(*producer.commit_offsets(GROUP, "t", 9, partition=1))) == 0
    assert (await asker(linked, ELSEWHERE).of(GROUP, [("t", 1)])) == {("t", 1): 7}
    producer.heard(await clients[1].ask(*producer.end()))
    async with asyncio.timeout(TIMEOUT_S), aclosing(rounds(0.005)) as each:
        async for _ in each:
            if (await asker(linked, ELSEWHERE).of(GROUP, [("t", 1)])) == {("t", 1): 9}:
                break


@pytest.mark.parametrize("fault", ["lost", "unheard"])
async def test_a_coordinator_that_does_not_answer_leaves_everything_unknown(linked: LinkedRooms, fault: str) -> None:
    await commit(linked, "t", 1, 7)
    linked.peers[ELSEWHERE].fault = lambda node_id, request: fault
    assert await asker(linked, ELSEWHERE).of(GROUP, WANTED) == {}
    linked.peers[ELSEWHERE].fault = lambda node_id, request: None
    assert (await asker(linked, ELSEWHERE).of(GROUP, WANTED))["t", 1] == 7


async def test_without_a_coordinator_nothing_is_known(linked: LinkedRooms) -> None:
    linked.elect(OFFSETS_TOPIC, 0, -1)
    assert await asker(linked, ELSEWHERE).of(GROUP, WANTED) == {}
    assert await asker(linked, HERE).of(GROUP, WANTED) == {}
    linked.elect(OFFSETS_TOPIC, 0, 2)
    for rooms in linked.brokers.values():
        del rooms.image.brokers[2]
    assert await asker(linked, ELSEWHERE).of(GROUP, WANTED) == {}


async def test_who_is_the_coordinator_no_more_says_so_and_nothing_is_known(linked: LinkedRooms) -> None:
    await commit(linked, "t", 1, 7)
    linked.elect(OFFSETS_TOPIC, 0, 1, told=[2])
    assert await asker(linked, ELSEWHERE).of(GROUP, WANTED) == {}, "broker 1 has not heard of it yet"
    linked.elect(OFFSETS_TOPIC, 0, 2, told=[1])
    assert await asker(linked, ELSEWHERE).of(GROUP, WANTED) == {}


async def test_a_machine_that_is_slow_to_answer_is_not_waited_for(
    linked: LinkedRooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committed_offsets, "ANSWER_S_MAX", 0.05)
    monkeypatch.setattr(linked.brokers[HERE].groups, "submit", lambda index, make, reply: None)
    assert await asker(linked, HERE).of(GROUP, WANTED) == {}
