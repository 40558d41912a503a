"""AlterPartitionReassignments and ListPartitionReassignments."""

from __future__ import annotations

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from penstock.server.handlers import alter_partition_reassignments, list_partition_reassignments
from tests.server.admin_broker import AdminBroker

Wanted = dict[int, list[int] | None]


async def alter(
    broker: AdminBroker, *, version: int = 1, factor_may_change: bool = True, **topics: Wanted
) -> dict[str, list[tuple[int, int]]]:
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=factor_may_change,
        topics=[
            ReassignableTopic(
                name=name,
                partitions=[ReassignablePartition(partition_index=index, replicas=to) for index, to in wanted.items()],
            )
            for name, wanted in topics.items()
        ],
    )
    handle = alter_partition_reassignments.handle
    response = await broker.ask(handle, request, AlterPartitionReassignmentsResponse, version)
    assert response.error_code == ErrorCode.NONE
    assert response.allow_replication_factor_change == factor_may_change
    return {
        topic.name: [(partition.partition_index, partition.error_code) for partition in topic.partitions]
        for topic in response.responses
    }


async def ongoing(broker: AdminBroker, **topics: list[int]) -> list[tuple[str, int, list[int], list[int], list[int]]]:
    """Everywhere, if no topics are named."""
    named = [ListPartitionReassignmentsTopics(name=name, partition_indexes=of) for name, of in topics.items()] or None
    request = ListPartitionReassignmentsRequest(topics=named)
    response = await broker.ask(list_partition_reassignments.handle, request, ListPartitionReassignmentsResponse)
    assert response.error_code == ErrorCode.NONE
    return [
        (topic.name, moving.partition_index, moving.replicas, moving.adding_replicas, moving.removing_replicas)
        for topic in response.topics
        for moving in topic.partitions
    ]


@pytest.fixture
async def broker(admin_broker: AdminBroker) -> AdminBroker:
    admin_broker.add_broker(2)
    admin_broker.add_broker(3)
    await admin_broker.administration.create_topic("t", assignments=[(0, [1, 2]), (1, [1, 2])])
    await admin_broker.administration.create_topic("u", assignments=[(0, [2, 3])])
    return admin_broker


@pytest.mark.parametrize("version", range(2))
async def test_partitions_are_moved_and_seen_moving(broker: AdminBroker, version: int) -> None:
    assert await ongoing(broker) == []
    answered = await alter(broker, version=version, t={0: [3, 2]}, u={0: [1, 2]})
    assert answered == {"t": [(0, ErrorCode.NONE)], "u": [(0, ErrorCode.NONE)]}
    t, u = ("t", 0, [3, 2, 1], [3], [1]), ("u", 0, [1, 2, 3], [1], [3])
    assert await ongoing(broker) == [t, u]
    assert await ongoing(broker, t=[0, 0, 1, 7, -1], nowhere=[0]) == [t]
    assert await ongoing(broker, t=[1]) == []


async def test_what_is_under_way_can_be_taken_back(broker: AdminBroker) -> None:
    await alter(broker, t={0: [3, 2]})
    answered = await alter(broker, t={0: None, 1: None})
    assert answered == {"t": [(0, ErrorCode.NONE), (1, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)]}
    assert await ongoing(broker) == []
    assert set(broker.image.topics["t"].partitions[0].replicas) == {1, 2}


async def test_what_can_not_be_is_refused_partition_by_partition(broker: AdminBroker) -> None:
    answered = await alter(broker, t={0: [9], 1: [2, 1], 5: [1]}, u={0: []}, nowhere={0: [1]})
    assert answered == {
        "t": [
            (0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (1, ErrorCode.NONE),
            (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ],
        "u": [(0, ErrorCode.INVALID_REPLICA_ASSIGNMENT)],
        "nowhere": [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
    }
    assert broker.image.topics["t"].partitions[1].replicas == (2, 1)


async def test_the_number_of_replicas_may_be_protected(broker: AdminBroker) -> None:
    answered = await alter(broker, factor_may_change=False, t={0: [3, 2], 1: [1, 2, 3]})
    assert answered == {"t": [(0, ErrorCode.NONE), (1, ErrorCode.INVALID_REPLICATION_FACTOR)]}
    assert (await alter(broker, t={1: [1, 2, 3]})) == {"t": [(1, ErrorCode.NONE)]}
