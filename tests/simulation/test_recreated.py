"""A topic is moved off a broker that is away, deleted, and made again: what the broker has kept is another topic's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tests.rules.telling import TOPIC, write
from tests.simulation.attacks import in_sync
from tests.simulation.brokers import SimulatedBrokers, simulate
from tests.simulation.client import Client
from tests.simulation.verdict import violations

AWAY = 3
stopped_or_killed = pytest.mark.parametrize("cleanly", [True, False], ids=["stopped", "killed"])


async def assign(client: Client, replicas: list[int]) -> None:
    wanted = ReassignablePartition(partition_index=0, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=TOPIC, partitions=[wanted])])
    found = await client.ask(1, request, 0, AlterPartitionReassignmentsResponse)
    assert found is not None
    assert found.responses[0].partitions[0].error_code == 0


async def delete(client: Client) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=1000)
    found = await client.ask(1, request, 6, DeleteTopicsResponse)
    assert found is not None
    assert found.responses[0].error_code == 0


async def deleted_while_it_is_away(cluster: SimulatedBrokers, client: Client, *, cleanly: bool) -> None:
    await client.create(TOPIC, [1, 2, 3], min_insync_replicas=2)
    await write(cluster, client, 4, "old")
    await cluster.until_in_sync(TOPIC, [1, 2, 3])
    if cleanly:
        await cluster[AWAY].stop()
    else:
        cluster[AWAY].kill()
    await cluster.until("it counts no more", lambda: in_sync(cluster) == (1, 2))
    await assign(client, [1, 2, 4])
    await cluster.until("it is no replica any more", lambda: cluster[1].knows(TOPIC).replicas == (1, 2, 4))
    await delete(client)
    await asyncio.sleep(2)


async def left_alone(cluster: SimulatedBrokers, client: Client) -> list[str]:
    """The others die and come back: then all are as that one is."""
    for number in (1, 2):
        cluster[number].kill()
    await cluster.until("the others are gone", lambda: set(cluster[AWAY].broker.image.brokers) == {AWAY, 4})
    await asyncio.sleep(2)
    for number in (1, 2):
        await cluster[number].start()
    client.forget_leader(TOPIC)
    return await violations(cluster, client, TOPIC, [1, 2, 3])


@pytest.mark.parametrize("replicas", [[1, 2, 3], [3, 1, 2]], ids=["it follows", "it leads"])
@stopped_or_killed
def test_a_topic_made_again_begins_empty_on_a_broker_that_was_away(
    cleanly: bool, replicas: list[int], tmp_path: Path
) -> None:
    async def scenario() -> list[str]:
        async with SimulatedBrokers(tmp_path, 4, 1) as cluster:
            await deleted_while_it_is_away(cluster, Client(cluster), cleanly=cleanly)
            await cluster[AWAY].start()
            await asyncio.sleep(1)  # until the others have heard of it
            client = Client(cluster)
            await client.create(TOPIC, replicas, min_insync_replicas=2)
            await asyncio.sleep(1)
            assert [cluster[number].partition(TOPIC).log.end_offset for number in replicas] == [0, 0, 0]
            await write(cluster, client, 6, "new")
            await cluster.until_in_sync(TOPIC, [1, 2, 3])
            return await left_alone(cluster, client)

    found = simulate(1, scenario)
    assert not found, "\n".join(found)


@stopped_or_killed
def test_a_broker_that_was_away_joins_a_topic_made_again_with_nothing(cleanly: bool, tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        async with SimulatedBrokers(tmp_path, 4, 1) as cluster:
            await deleted_while_it_is_away(cluster, Client(cluster), cleanly=cleanly)
            client = Client(cluster)
            await client.create(TOPIC, [1, 2], min_insync_replicas=2)
            await write(cluster, client, 6, "new")
            await cluster[AWAY].start()
            await asyncio.sleep(1)
            await assign(client, [3, 1, 2])
            await cluster.until("it is in sync", lambda: set(in_sync(cluster)) == {1, 2, 3})
            await asyncio.sleep(1)
            return await left_alone(cluster, client)

    found = simulate(1, scenario)
    assert not found, "\n".join(found)
