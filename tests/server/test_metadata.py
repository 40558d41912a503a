from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from penstock.cluster import model
from penstock.cluster.model import NO_LEADER
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.server.handlers import metadata
from tests.cluster.controlled_cluster import NODE_ID
from tests.server.admin_broker import AdminBroker

EVERY_VERSION = range(MetadataRequest.versions.last + 1)


def asking(*names: str, create: bool = True) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create)


async def ask(broker: AdminBroker, request: MetadataRequest, version: int | None = None) -> MetadataResponse:
    return await broker.ask(metadata.handle, request, MetadataResponse, version)


@pytest.mark.parametrize("version", EVERY_VERSION)
async def test_every_version_tells_brokers_and_leaders(admin_broker: AdminBroker, version: int) -> None:
    topic = await admin_broker.administration.create_topic("t", 2)
    response = await ask(admin_broker, asking("t"), version)
    assert [(broker.node_id, broker.host, broker.port) for broker in response.brokers] == [(NODE_ID, "host1", 9092)]
    (described,) = response.topics
    assert (described.name, described.error_code) == ("t", ErrorCode.NONE)
    assert [(p.partition_index, p.leader_id, p.isr_nodes) for p in described.partitions] == [
        (0, NODE_ID, [NODE_ID]),
        (1, NODE_ID, [NODE_ID]),
    ]
    if version >= 1:
        assert response.controller_id == NODE_ID
    if version >= 2:
        assert response.cluster_id == admin_broker.image.cluster_id
    if version >= 7:
        assert described.partitions[0].leader_epoch == 0
    if version >= 10:
        assert described.topic_id == topic.topic_id


async def test_an_empty_list_was_all_topics_in_version_0_and_is_none_since(admin_broker: AdminBroker) -> None:
    await admin_broker.administration.create_topic("t")
    assert [topic.name for topic in (await ask(admin_broker, asking(), 0)).topics] == ["t"]
    assert (await ask(admin_broker, asking(), 1)).topics == []
    assert [topic.name for topic in (await ask(admin_broker, MetadataRequest(topics=None), 1)).topics] == ["t"]


async def test_asking_for_a_topic_makes_it(admin_broker_with: Callable[..., Awaitable[AdminBroker]]) -> None:
    broker = await admin_broker_with(num_partitions="3")
    response = await ask(broker, asking("new", "bad name"))
    assert [(topic.name, topic.error_code, len(topic.partitions)) for topic in response.topics] == [
        ("new", ErrorCode.NONE, 3),
        ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION, 0),
    ]
    assert list(broker.image.topics) == ["new"]


async def test_who_asks_for_a_topic_that_was_deleted_is_told_so_once_and_then_has_a_new_one(
    admin_broker: AdminBroker,
) -> None:
    await admin_broker.administration.create_topic("t")
    await admin_broker.administration.delete_topic("t")
    (gone, other) = (await ask(admin_broker, asking("t", "new"))).topics
    assert (gone.error_code, gone.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    assert other.error_code == ErrorCode.NONE
    (again,) = (await ask(admin_broker, asking("t"))).topics
    assert (again.error_code, len(again.partitions)) == (ErrorCode.NONE, 1)


async def test_only_so_many_deleted_names_are_remembered(
    admin_broker: AdminBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "DELETED_NAMES_MAX", 2)
    for name in ("a", "b", "c"):
        await admin_broker.administration.create_topic(name)
        await admin_broker.administration.delete_topic(name)
    assert list(admin_broker.image.deleted_names) == ["b", "c"]


async def test_asking_for_the_offsets_topic_makes_it_as_it_has_to_be(admin_broker: AdminBroker) -> None:
    (topic,) = (await ask(admin_broker, asking("__consumer_offsets"))).topics
    assert topic.is_internal
    assert len(topic.partitions) == 50


async def test_a_client_may_ask_without_making_topics(admin_broker: AdminBroker) -> None:
    response = await ask(admin_broker, asking("new", "bad name", create=False))
    assert [topic.error_code for topic in response.topics] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert admin_broker.image.topics == {}


async def test_a_broker_may_be_told_not_to_make_topics(
    admin_broker_with: Callable[..., Awaitable[AdminBroker]],
) -> None:
    broker = await admin_broker_with(auto_create_topics_enable="false")
    (topic,) = (await ask(broker, asking("new"))).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_that_can_not_be_made_says_why(
    admin_broker_with: Callable[..., Awaitable[AdminBroker]],
) -> None:
    broker = await admin_broker_with()
    broker.image.brokers.clear()
    (topic,) = (await ask(broker, asking("new"))).topics
    assert topic.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


async def test_topics_are_found_by_id(admin_broker: AdminBroker) -> None:
    topic = await admin_broker.administration.create_topic("t")
    request = MetadataRequest(
        topics=[
            MetadataRequestTopic(name=None, topic_id=topic.topic_id),
            MetadataRequestTopic(name=None, topic_id=b"x" * 16),
        ]
    )
    response = await ask(admin_broker, request, 12)
    assert [(found.name, found.topic_id, found.error_code) for found in response.topics] == [
        ("t", topic.topic_id, ErrorCode.NONE),
        (None, b"x" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


async def test_ids_are_not_for_versions_before_12(admin_broker: AdminBroker) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t", topic_id=b"x" * 16)])
    (topic,) = (await ask(admin_broker, request, 10)).topics
    assert topic.error_code == ErrorCode.INVALID_REQUEST


async def test_a_topic_is_described_once_however_often_it_is_named(admin_broker: AdminBroker) -> None:
    assert len((await ask(admin_broker, asking("t", "t"))).topics) == 1


async def test_authorized_operations_are_told_when_asked_for(admin_broker: AdminBroker) -> None:
    await admin_broker.administration.create_topic("t")
    silent = await ask(admin_broker, asking("t"), 8)
    assert silent.cluster_authorized_operations == -(2**31)
    assert silent.topics[0].topic_authorized_operations == -(2**31)
    request = asking("t")
    request.include_cluster_authorized_operations = request.include_topic_authorized_operations = True
    asked = await ask(admin_broker, request, 8)
    assert asked.cluster_authorized_operations == 0b1111110100000  # create, alter, describe, cluster action, …
    assert asked.topics[0].topic_authorized_operations == 0b110111111000


@pytest.mark.parametrize(
    ("version", "listener", "error"),
    [
        (5, "INTERNAL", ErrorCode.LEADER_NOT_AVAILABLE),
        (6, "INTERNAL", ErrorCode.LISTENER_NOT_FOUND),
        (6, None, ErrorCode.LEADER_NOT_AVAILABLE),
    ],
)
async def test_a_leader_that_the_client_can_not_reach_is_an_error(
    admin_broker: AdminBroker, version: int, listener: str | None, error: ErrorCode
) -> None:
    admin_broker.add_broker(2)
    await admin_broker.administration.create_topic("t", assignments=[(0, [2, NODE_ID])])
    del admin_broker.image.brokers[2]
    if listener:
        admin_broker.add_broker(2, listener)
    response = await ask(admin_broker, asking("t"), version)
    (partition,) = response.topics[0].partitions
    assert (partition.error_code, partition.leader_id, partition.offline_replicas) == (error, -1, [2])
    assert [broker.node_id for broker in response.brokers] == [NODE_ID]


async def test_version_0_leaves_out_replicas_that_are_gone(admin_broker: AdminBroker) -> None:
    admin_broker.add_broker(2)
    await admin_broker.administration.create_topic("t", assignments=[(0, [NODE_ID, 2])])
    del admin_broker.image.brokers[2]
    (partition,) = (await ask(admin_broker, asking("t"), 0)).topics[0].partitions
    assert partition.error_code == ErrorCode.REPLICA_NOT_AVAILABLE
    assert partition.replica_nodes == [NODE_ID]


@pytest.mark.parametrize("controller", [NO_LEADER, 7, 2])
async def test_while_no_controller_can_be_reached_any_broker_does_its_work(
    admin_broker: AdminBroker, controller: int
) -> None:
    admin_broker.add_broker(2, "INTERNAL")
    admin_broker.image.controller_id = controller
    assert (await ask(admin_broker, asking())).controller_id == NODE_ID
    admin_broker.add_broker(2)
    assert (await ask(admin_broker, asking())).controller_id == (2 if controller == 2 else NODE_ID)


async def test_a_broker_that_stops_is_there_still_and_leaders_may_be_missing(admin_broker: AdminBroker) -> None:
    admin_broker.add_broker(2)
    topic = await admin_broker.administration.create_topic("t", assignments=[(0, [2, NODE_ID])])
    admin_broker.image.brokers[2] = replace(admin_broker.image.brokers[2], stopping=True)
    state = replace(topic.partitions[0], leader=NO_LEADER, leader_epoch=1)
    await admin_broker.cluster.catalog.write_topics([replace(topic, partitions=(state,))])
    response = await ask(admin_broker, asking("t"))
    assert [broker.node_id for broker in response.brokers] == [NODE_ID, 2]
    (partition,) = response.topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER)
    assert (partition.leader_epoch, partition.offline_replicas) == (1, [])


async def test_a_broker_that_has_just_gone_is_told_of_but_leads_nothing(admin_broker: AdminBroker) -> None:
    await admin_broker.administration.create_topic("t")
    image = admin_broker.image
    gone = replace(image.brokers[NODE_ID], node_id=9)
    image.departed[9] = gone
    topic = image.topics["t"]
    image.put_topic(replace(topic, partitions=(replace(topic.partitions[0], leader=9, replicas=(9, NODE_ID)),)))
    response = await ask(admin_broker, asking("t"))
    assert sorted(broker.node_id for broker in response.brokers) == [NODE_ID, 9]
    (partition,) = response.topics[0].partitions
    assert (partition.leader_id, partition.error_code) == (NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE)
    assert partition.offline_replicas == [9]
    image.brokers[9] = gone
    assert sorted(broker.node_id for broker in (await ask(admin_broker, asking())).brokers) == [NODE_ID, 9]
