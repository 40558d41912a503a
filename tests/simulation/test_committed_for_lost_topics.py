"""A coordinator does not hear that a topic was deleted: what was committed for it is not for the next of its name."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from tests.simulation.brokers import SimulatedBrokers, simulate
from tests.simulation.client import Client

GROUP, TOPIC = "g", "orders"
SESSION_MS = 18_000


async def coordinator_of(client: Client, cluster: SimulatedBrokers) -> int:
    while True:
        request = FindCoordinatorRequest(key=GROUP, key_type=0)
        found = await client.ask(1, request, 3, FindCoordinatorResponse)
        if found is not None and not found.error_code:
            return int(found.node_id)
        await asyncio.sleep(0.2)


async def commit(client: Client, coordinator: int, offset: int) -> None:
    place = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[place])
    request = OffsetCommitRequest(group_id=GROUP, member_id="", topics=[topic])
    for _ in range(20):
        answer = await client.ask(coordinator, request, 8, OffsetCommitResponse)
        if answer is not None and not answer.topics[0].partitions[0].error_code:
            return
        await asyncio.sleep(0.3)
    raise AssertionError("it was not committed")


async def committed(client: Client, coordinator: int) -> int:
    topic = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
    answer = await client.ask(coordinator, OffsetFetchRequest(group_id=GROUP, topics=[topic]), 7, OffsetFetchResponse)
    assert answer is not None
    assert answer.error_code == 0
    return int(answer.topics[0].partitions[0].committed_offset)


@pytest.mark.parametrize("is_made_while_cut", [False, True])
def test_a_coordinator_that_was_cut_off_while_a_topic_was_deleted(tmp_path: Path, is_made_while_cut: bool) -> None:
    async def scenario() -> None:
        async with SimulatedBrokers(
            tmp_path, 3, 1, zookeeper_session_timeout_ms=SESSION_MS, offsets_topic_num_partitions=1
        ) as cluster:
            client = Client(cluster)
            coordinator = await coordinator_of(client, cluster)
            others = [number for number in (1, 2, 3) if number != coordinator]
            await client.create(TOPIC, others, min_insync_replicas=2)
            await client.produce(others[0], TOPIC, ["old"])
            await commit(client, coordinator, 1)
            assert await committed(client, coordinator) == 1
            cluster.zookeeper.cut(f"b{coordinator}")
            request = DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=5000)
            answer = await client.ask(others[0], request, 5, DeleteTopicsResponse, timeout_s=10)
            assert answer is not None
            assert answer.responses[0].error_code == 0
            await asyncio.sleep(5)
            if is_made_while_cut:
                await client.create(TOPIC, others, min_insync_replicas=2)
            cluster.zookeeper.heal(f"b{coordinator}")
            await asyncio.sleep(10)
            if not is_made_while_cut:
                assert await committed(client, coordinator) == 1, "nobody knows what has become of the topic"
                await client.create(TOPIC, others, min_insync_replicas=2)
            await asyncio.sleep(2)
            assert await committed(client, coordinator) == -1

    simulate(0, scenario)
