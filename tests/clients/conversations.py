"""For every API a request that makes sense, with what must happen before it, in any of its versions."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.protocol.codec import encode_versioned
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages import alter_configs as altering
from penstock.protocol.messages import alter_partition_reassignments as reassigning
from penstock.protocol.messages import describe_topic_partitions as describing_topics
from penstock.protocol.messages import elect_leaders as electing
from penstock.protocol.messages import incremental_alter_configs as changing
from penstock.protocol.messages import offset_fetch as fetching_offsets
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from penstock.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest
from penstock.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.messages.describe_cluster import DescribeClusterRequest
from penstock.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest
from penstock.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from penstock.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.protocol.messages.list_config_resources import ListConfigResourcesRequest
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from penstock.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from penstock.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from penstock.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.clients import transaction_conversations
from tests.clients.wire import Wire, batch_of

TOPIC, BROKER = 2, 4
LATEST = -1


@dataclass(frozen=True)
class Place:
    """A topic with some messages in its only partition."""

    topic: str
    topic_id: bytes

    def fresh(self, prefix: str) -> str:
        return f"{prefix}-{uuid.uuid4().hex[:10]}"


Conversation = Callable[[Wire, int, Place], Any]


def produce(wire: Wire, version: int, place: Place) -> Any:
    data = [PartitionProduceData(index=0, records=memoryview(batch_of(b"one", b"two")))]
    topic = TopicProduceData(name=place.topic, topic_id=place.topic_id, partition_data=data)
    return wire.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic]), version)


def fetch(wire: Wire, version: int, place: Place) -> Any:
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic=place.topic, topic_id=place.topic_id, partitions=[asked])
    response = wire.ask(FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic]), version)
    assert len(response.responses[0].partitions[0].records) > 0
    return response


def list_offsets(wire: Wire, version: int, place: Place) -> Any:
    topic = ListOffsetsTopic(name=place.topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=LATEST)])
    response = wire.ask(ListOffsetsRequest(replica_id=-1, topics=[topic], timeout_ms=1000), version)
    assert response.topics[0].partitions[0].offset > 0
    return response


def metadata(wire: Wire, version: int, place: Place) -> Any:
    response = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=place.topic)]), version)
    assert response.topics[0].name == place.topic
    return response


# ---- groups


def member_of(wire: Wire, group: str, version: int = 9, instance: str | None = None, member_id: str = "") -> Any:
    """Joins; from version 4 on, a member without a name must come twice (KIP-394)."""
    subscription = encode_versioned(ConsumerProtocolSubscription(topics=["t"]), 0)
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
    )
    response = wire.ask(request, version)
    if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        request.member_id = response.member_id
        response = wire.ask(request, version)
    return response


def stable_member_of(wire: Wire, group: str, version: int = 5) -> tuple[int, str, Any]:
    """Generation, member id, and the answer to the SyncGroup that made the group stable."""
    joined = member_of(wire, group)
    assert joined.error_code == ErrorCode.NONE
    assignment = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")
    request = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[assignment],
    )
    synced = wire.ask(request, version)
    assert synced.assignment == b"mine"
    return joined.generation_id, joined.member_id, synced


def commit(wire: Wire, group: str, place: Place, version: int) -> Any:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topic = OffsetCommitRequestTopic(name=place.topic, topic_id=place.topic_id, partitions=[partition])
    return wire.ask(OffsetCommitRequest(group_id=group, topics=[topic]), version)


def offset_commit(wire: Wire, version: int, place: Place) -> Any:
    return commit(wire, place.fresh("group"), place, version)


def offset_fetch(wire: Wire, version: int, place: Place) -> Any:
    group = place.fresh("group")
    commit(wire, group, place, 8)
    asked = fetching_offsets.OffsetFetchRequestTopics(name=place.topic, topic_id=place.topic_id, partition_indexes=[0])
    request = fetching_offsets.OffsetFetchRequest(
        group_id=group,
        topics=[fetching_offsets.OffsetFetchRequestTopic(name=place.topic, partition_indexes=[0])],
        groups=[fetching_offsets.OffsetFetchRequestGroup(group_id=group, topics=[asked])],
    )
    response = wire.ask(request, version)
    found = (response.groups[0] if version >= 8 else response).topics[0].partitions[0]
    assert found.committed_offset == 1
    return response


def offset_delete(wire: Wire, version: int, place: Place) -> Any:
    group = place.fresh("group")
    commit(wire, group, place, 8)
    topic = OffsetDeleteRequestTopic(name=place.topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    return wire.ask(OffsetDeleteRequest(group_id=group, topics=[topic]), version)


def find_coordinator(wire: Wire, version: int, place: Place) -> Any:
    return wire.ask(FindCoordinatorRequest(key="group", key_type=0, coordinator_keys=["group"]), version)


def join_group(wire: Wire, version: int, place: Place) -> Any:
    return member_of(wire, place.fresh("group"), version)


def sync_group(wire: Wire, version: int, place: Place) -> Any:
    return stable_member_of(wire, place.fresh("group"), version)[2]


def heartbeat(wire: Wire, version: int, place: Place) -> Any:
    group = place.fresh("group")
    generation, member_id, _ = stable_member_of(wire, group)
    return wire.ask(HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id), version)


def leave_group(wire: Wire, version: int, place: Place) -> Any:
    group = place.fresh("group")
    _, member_id, _ = stable_member_of(wire, group)
    members = [MemberIdentity(member_id=member_id)]
    return wire.ask(LeaveGroupRequest(group_id=group, member_id=member_id, members=members), version)


def describe_groups(wire: Wire, version: int, place: Place) -> Any:
    group = place.fresh("group")
    stable_member_of(wire, group)
    response = wire.ask(DescribeGroupsRequest(groups=[group]), version)
    assert response.groups[0].group_state == "Stable"
    assert response.groups[0].members[0].member_assignment == b"mine"
    return response


def list_groups(wire: Wire, version: int, place: Place) -> Any:
    group = place.fresh("group")
    commit(wire, group, place, 8)
    response = wire.ask(ListGroupsRequest(), version)
    assert group in {listed.group_id for listed in response.groups}
    return response


def delete_groups(wire: Wire, version: int, place: Place) -> Any:
    group = place.fresh("group")
    commit(wire, group, place, 8)
    return wire.ask(DeleteGroupsRequest(groups_names=[group]), version)


# ---- topics


def create(wire: Wire, name: str, version: int = 7) -> Any:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), version)


def create_topics(wire: Wire, version: int, place: Place) -> Any:
    return create(wire, place.fresh("created"), version)


def delete_topics(wire: Wire, version: int, place: Place) -> Any:
    name = place.fresh("deleted")
    create(wire, name)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=10_000)
    return wire.ask(request, version)


def create_partitions(wire: Wire, version: int, place: Place) -> Any:
    name = place.fresh("grown")
    create(wire, name)
    topic = CreatePartitionsTopic(name=name, count=2, assignments=None)
    return wire.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=10_000), version)


def delete_records(wire: Wire, version: int, place: Place) -> Any:
    topic = DeleteRecordsTopic(name=place.topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])
    return wire.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), version)


def offset_for_leader_epoch(wire: Wire, version: int, place: Place) -> Any:
    partition = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topic = OffsetForLeaderTopic(topic=place.topic, partitions=[partition])
    response = wire.ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic]), version)
    assert response.topics[0].partitions[0].end_offset > 0
    return response


def describe_topic_partitions(wire: Wire, version: int, place: Place) -> Any:
    topics = [describing_topics.TopicRequest(name=place.topic)]
    return wire.ask(describing_topics.DescribeTopicPartitionsRequest(topics=topics), version)


def describe_producers(wire: Wire, version: int, place: Place) -> Any:
    return wire.ask(DescribeProducersRequest(topics=[TopicRequest(name=place.topic, partition_indexes=[0])]), version)


# ---- the rest


def api_versions(wire: Wire, version: int, place: Place) -> Any:
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    return wire.ask(request, version)


def init_producer_id(wire: Wire, version: int, place: Place) -> Any:
    response = wire.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), version)
    assert response.producer_id >= 0
    return response


def describe_configs(wire: Wire, version: int, place: Place) -> Any:
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in ((TOPIC, place.topic), (BROKER, "1"))
    ]
    return wire.ask(DescribeConfigsRequest(resources=resources, include_synonyms=True), version)


def alter_configs(wire: Wire, version: int, place: Place) -> Any:
    config = altering.AlterableConfig(name="retention.ms", value="-1")
    resource = altering.AlterConfigsResource(resource_type=TOPIC, resource_name=place.topic, configs=[config])
    return wire.ask(altering.AlterConfigsRequest(resources=[resource]), version)


def incremental_alter_configs(wire: Wire, version: int, place: Place) -> Any:
    config = changing.AlterableConfig(name="retention.ms", config_operation=0, value="-1")
    resource = changing.AlterConfigsResource(resource_type=TOPIC, resource_name=place.topic, configs=[config])
    return wire.ask(changing.IncrementalAlterConfigsRequest(resources=[resource]), version)


def list_config_resources(wire: Wire, version: int, place: Place) -> Any:
    return wire.ask(ListConfigResourcesRequest(resource_types=[TOPIC]), version)


def describe_log_dirs(wire: Wire, version: int, place: Place) -> Any:
    response = wire.ask(DescribeLogDirsRequest(topics=None), version)
    assert response.results
    return response


def update_features(wire: Wire, version: int, place: Place) -> Any:
    return wire.ask(
        UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature="group.version", max_version_level=1)]), version
    )


def describe_cluster(wire: Wire, version: int, place: Place) -> Any:
    return wire.ask(DescribeClusterRequest(), version)


def elect_leaders(wire: Wire, version: int, place: Place) -> Any:
    wanted = electing.TopicPartitions(topic=place.topic, partitions=[0])
    response = wire.ask(electing.ElectLeadersRequest(topic_partitions=[wanted], timeout_ms=5000), version)
    (topic,) = response.replica_election_results
    assert topic.partition_result[0].error_code == ErrorCode.ELECTION_NOT_NEEDED
    topic.partition_result[0].error_code = 0
    return response


def alter_partition_reassignments(wire: Wire, version: int, place: Place) -> Any:
    here = reassigning.ReassignablePartition(partition_index=0, replicas=[1])
    topic = reassigning.ReassignableTopic(name=place.topic, partitions=[here])
    return wire.ask(reassigning.AlterPartitionReassignmentsRequest(timeout_ms=5000, topics=[topic]), version)


def list_partition_reassignments(wire: Wire, version: int, place: Place) -> Any:
    return wire.ask(ListPartitionReassignmentsRequest(timeout_ms=5000, topics=None), version)


CONVERSATIONS: dict[int, Conversation] = {
    0: produce,
    1: fetch,
    2: list_offsets,
    3: metadata,
    8: offset_commit,
    9: offset_fetch,
    10: find_coordinator,
    11: join_group,
    12: heartbeat,
    13: leave_group,
    14: sync_group,
    15: describe_groups,
    16: list_groups,
    18: api_versions,
    19: create_topics,
    20: delete_topics,
    21: delete_records,
    22: init_producer_id,
    23: offset_for_leader_epoch,
    32: describe_configs,
    33: alter_configs,
    35: describe_log_dirs,
    37: create_partitions,
    42: delete_groups,
    43: elect_leaders,
    44: incremental_alter_configs,
    45: alter_partition_reassignments,
    46: list_partition_reassignments,
    47: offset_delete,
    57: update_features,
    60: describe_cluster,
    61: describe_producers,
    74: list_config_resources,
    75: describe_topic_partitions,
    **transaction_conversations.CONVERSATIONS,
}
