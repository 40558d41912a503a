from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from penstock.cluster.model import NO_LEADER
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from penstock.server.handlers import describe_topic_partitions
from tests.cluster.controlled_cluster import NODE_ID
from tests.server.admin_broker import AdminBroker


async def ask(
    broker: AdminBroker, *names: str, limit: int = 2000, cursor: Cursor | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
    )
    return await broker.ask(describe_topic_partitions.handle, request, DescribeTopicPartitionsResponse)


def shown(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(topic.name, [p.partition_index for p in topic.partitions]) for topic in response.topics]


@pytest.fixture
async def broker(admin_broker: AdminBroker) -> AdminBroker:
    for name, partitions in (("b", 3), ("a", 2), ("c", 1)):
        await admin_broker.administration.create_topic(name, partitions)
    return admin_broker


async def test_without_names_all_topics_come_in_order(broker: AdminBroker) -> None:
    response = await ask(broker)
    assert shown(response) == [("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])]
    assert response.next_cursor is None
    partition = response.topics[0].partitions[0]
    assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (NODE_ID, [NODE_ID], [NODE_ID])
    assert response.topics[0].topic_id == broker.image.topics["a"].topic_id


@pytest.mark.parametrize("limit", range(1, 8))
async def test_page_by_page_everything_comes_once(broker: AdminBroker, limit: int) -> None:
    seen: list[tuple[str | None, int]] = []
    cursor: Cursor | None = None
    for _ in range(10):
        response = await ask(broker, limit=limit, cursor=cursor)
        page = [(name, index) for name, indexes in shown(response) for index in indexes]
        assert len(page) <= limit
        seen += page
        cursor = response.next_cursor
        if cursor is None:
            break
    assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]


async def test_the_broker_has_a_limit_of_its_own(admin_broker_with: Callable[..., Awaitable[AdminBroker]]) -> None:
    broker = await admin_broker_with(max_request_partition_size_limit="2")
    await broker.administration.create_topic("t", 3)
    response = await ask(broker)
    assert shown(response) == [("t", [0, 1])]
    assert response.next_cursor == Cursor(topic_name="t", partition_index=2)


async def test_topics_that_do_not_exist_are_errors_when_named(broker: AdminBroker) -> None:
    response = await ask(broker, "nowhere", "a", "bad name")
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("a", ErrorCode.NONE),
        ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


async def test_a_cursor_at_a_topic_that_was_deleted_goes_on_behind_it(broker: AdminBroker) -> None:
    await broker.administration.delete_topic("b")
    assert shown(await ask(broker, cursor=Cursor(topic_name="b", partition_index=1))) == [("c", [0])]


async def test_a_cursor_behind_the_last_partition_shows_none_of_it(broker: AdminBroker) -> None:
    response = await ask(broker, cursor=Cursor(topic_name="b", partition_index=9))
    assert shown(response) == [("b", []), ("c", [0])]


@pytest.mark.parametrize(("topic", "partition"), [("b", 0), ("a", -1)])
async def test_a_cursor_that_makes_no_sense_is_refused(broker: AdminBroker, topic: str, partition: int) -> None:
    cursor = Cursor(topic_name=topic, partition_index=partition)
    (answer,) = (await ask(broker, "a", cursor=cursor)).topics
    assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_who_may_lead_where_nobody_does_is_told(admin_broker: AdminBroker) -> None:
    for node_id in (2, 3):
        admin_broker.add_broker(node_id)
    topic = await admin_broker.administration.create_topic("t", assignments=[(0, [NODE_ID, 2, 3])])
    state = replace(topic.partitions[0], leader=NO_LEADER, leader_epoch=4, isr=(), eligible=(3, 2), last_leader=2)
    await admin_broker.cluster.catalog.write_topics([replace(topic, partitions=(state,))])
    del admin_broker.image.brokers[2], admin_broker.image.brokers[3]
    (partition,) = (await ask(admin_broker, "t")).topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.NONE, NO_LEADER), "which is no error, as in Kafka"
    assert (partition.leader_epoch, partition.isr_nodes) == (4, [])
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([3, 2], [2])
    assert partition.offline_replicas == [2, 3]
