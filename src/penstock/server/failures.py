"""The one place where an error that ends a request becomes a response.

Where a response has an error of its own, that is set. Where it has not, every part that the request asked for gets the
error, because a client looks for its answer there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.protocol.apis import RESPONSE_OF
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_producers,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
)
from penstock.protocol.schema import Message

Builder = Callable[[Any, int, ApiError], Message | None]

UNKNOWN_OFFSET = -1


def error_response(request: Message, version: int, error: ApiError) -> Message | None:
    """None where the client waits for no answer."""
    build = _BUILDERS.get(type(request))
    if build is not None:
        return build(request, version, error)
    response = RESPONSE_OF[type(request)]
    fields: dict[str, Any] = {"error_code": error.code}
    if "error_message" in response.fields:
        fields["error_message"] = error.message
    return response(**fields)


def _produce(request: produce.ProduceRequest, version: int, error: ApiError) -> Message | None:
    if request.acks == 0:
        return None
    return produce.ProduceResponse(
        responses=[
            produce.TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    produce.PartitionProduceResponse(
                        index=data.index,
                        error_code=error.code,
                        base_offset=UNKNOWN_OFFSET,
                        error_message=error.message,
                    )
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _fetch(request: fetch.FetchRequest, version: int, error: ApiError) -> Message:
    response = fetch.FetchResponse(error_code=error.code, session_id=request.session_id)
    if version < 13:  # since then, every client reads the error of the whole response
        response.responses = [
            fetch.FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    fetch.PartitionData(
                        partition_index=partition.partition,
                        error_code=error.code,
                        high_watermark=UNKNOWN_OFFSET,
                        records=memoryview(b""),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    return response


def _list_offsets(request: list_offsets.ListOffsetsRequest, version: int, error: ApiError) -> Message:
    return list_offsets.ListOffsetsResponse(
        topics=[
            list_offsets.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    list_offsets.ListOffsetsPartitionResponse(partition_index=p.partition_index, error_code=error.code)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _metadata(request: metadata.MetadataRequest, version: int, error: ApiError) -> Message:
    return metadata.MetadataResponse(
        error_code=error.code,
        topics=[
            # Only version 12 allows a topic without a name.
            metadata.MetadataResponseTopic(error_code=error.code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics or ()
        ],
    )


def _offset_commit(request: offset_commit.OffsetCommitRequest, version: int, error: ApiError) -> Message:
    return offset_commit.OffsetCommitResponse(
        topics=[
            offset_commit.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    offset_commit.OffsetCommitResponsePartition(
                        partition_index=p.partition_index, error_code=error.code
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_fetch(request: offset_fetch.OffsetFetchRequest, version: int, error: ApiError) -> Message:
    if version >= 8:
        groups = [
            offset_fetch.OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
            for group in request.groups
        ]
        return offset_fetch.OffsetFetchResponse(groups=groups)
    response = offset_fetch.OffsetFetchResponse(error_code=error.code)
    if version < 2:
        response.topics = [
            offset_fetch.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    offset_fetch.OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=UNKNOWN_OFFSET, metadata="", error_code=error.code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    return response


def _find_coordinator(request: find_coordinator.FindCoordinatorRequest, version: int, error: ApiError) -> Message:
    if version < 4:
        return find_coordinator.FindCoordinatorResponse(
            error_code=error.code, error_message=error.message, node_id=-1, port=-1
        )
    return find_coordinator.FindCoordinatorResponse(
        coordinators=[
            find_coordinator.Coordinator(
                key=key, node_id=-1, port=-1, error_code=error.code, error_message=error.message
            )
            for key in request.coordinator_keys
        ]
    )


def _join_group(request: join_group.JoinGroupRequest, version: int, error: ApiError) -> Message:
    name = None if version >= 7 else ""
    return join_group.JoinGroupResponse(error_code=error.code, protocol_name=name, member_id=request.member_id)


def _describe_groups(request: describe_groups.DescribeGroupsRequest, version: int, error: ApiError) -> Message:
    return describe_groups.DescribeGroupsResponse(
        groups=[
            describe_groups.DescribedGroup(group_id=group, error_code=error.code, error_message=error.message)
            for group in request.groups
        ]
    )


def _api_versions(request: api_versions.ApiVersionsRequest, version: int, error: ApiError) -> Message:
    response = api_versions.ApiVersionsResponse(error_code=error.code)
    if error.code is ErrorCode.UNSUPPORTED_VERSION:  # so that the client can ask again (KIP-511)
        first, last = request.versions
        response.api_keys = [api_versions.ApiVersion(key=request.api_key, min_version=first, max_version=last)]
    return response


def _create_topics(request: create_topics.CreateTopicsRequest, version: int, error: ApiError) -> Message:
    return create_topics.CreateTopicsResponse(
        topics=[
            create_topics.CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)
            for name in dict.fromkeys(topic.name for topic in request.topics)
        ]
    )


def _delete_topics(request: delete_topics.DeleteTopicsRequest, version: int, error: ApiError) -> Message:
    asked = [*((name, bytes(16)) for name in request.topic_names), *((t.name, t.topic_id) for t in request.topics)]
    return delete_topics.DeleteTopicsResponse(
        responses=[
            delete_topics.DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=error.code, error_message=error.message
            )
            for name, topic_id in asked
        ]
    )


def _delete_records(request: delete_records.DeleteRecordsRequest, version: int, error: ApiError) -> Message:
    return delete_records.DeleteRecordsResponse(
        topics=[
            delete_records.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    delete_records.DeleteRecordsPartitionResult(
                        partition_index=p.partition_index, low_watermark=UNKNOWN_OFFSET, error_code=error.code
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _init_producer_id(request: init_producer_id.InitProducerIdRequest, version: int, error: ApiError) -> Message:
    return init_producer_id.InitProducerIdResponse(error_code=error.code, producer_epoch=-1)


def _offset_for_leader_epoch(
    request: offset_for_leader_epoch.OffsetForLeaderEpochRequest, version: int, error: ApiError
) -> Message:
    return offset_for_leader_epoch.OffsetForLeaderEpochResponse(
        topics=[
            offset_for_leader_epoch.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    offset_for_leader_epoch.EpochEndOffset(partition=p.partition, error_code=error.code)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _describe_configs(request: describe_configs.DescribeConfigsRequest, version: int, error: ApiError) -> Message:
    return describe_configs.DescribeConfigsResponse(
        results=[
            describe_configs.DescribeConfigsResult(
                error_code=error.code,
                error_message=error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _alter_configs(request: alter_configs.AlterConfigsRequest, version: int, error: ApiError) -> Message:
    return alter_configs.AlterConfigsResponse(
        responses=[
            alter_configs.AlterConfigsResourceResponse(
                error_code=error.code,
                error_message=error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _incremental_alter_configs(
    request: incremental_alter_configs.IncrementalAlterConfigsRequest, version: int, error: ApiError
) -> Message:
    return incremental_alter_configs.IncrementalAlterConfigsResponse(
        responses=[
            incremental_alter_configs.AlterConfigsResourceResponse(
                error_code=error.code,
                error_message=error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _create_partitions(request: create_partitions.CreatePartitionsRequest, version: int, error: ApiError) -> Message:
    return create_partitions.CreatePartitionsResponse(
        results=[
            create_partitions.CreatePartitionsTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message
            )
            for topic in request.topics
        ]
    )


def _delete_groups(request: delete_groups.DeleteGroupsRequest, version: int, error: ApiError) -> Message:
    return delete_groups.DeleteGroupsResponse(
        results=[
            delete_groups.DeletableGroupResult(group_id=group, error_code=error.code) for group in request.groups_names
        ]
    )


def _describe_producers(request: describe_producers.DescribeProducersRequest, version: int, error: ApiError) -> Message:
    return describe_producers.DescribeProducersResponse(
        topics=[
            describe_producers.TopicResponse(
                name=topic.name,
                partitions=[
                    describe_producers.PartitionResponse(
                        partition_index=index, error_code=error.code, error_message=error.message
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _describe_topic_partitions(
    request: describe_topic_partitions.DescribeTopicPartitionsRequest, version: int, error: ApiError
) -> Message:
    return describe_topic_partitions.DescribeTopicPartitionsResponse(
        topics=[
            describe_topic_partitions.DescribeTopicPartitionsResponseTopic(name=topic.name, error_code=error.code)
            for topic in request.topics
        ]
    )


# Responses that are not here have one error for the whole, and nothing else to say.
_BUILDERS: dict[type[Message], Builder] = {
    alter_configs.AlterConfigsRequest: _alter_configs,
    api_versions.ApiVersionsRequest: _api_versions,
    create_partitions.CreatePartitionsRequest: _create_partitions,
    create_topics.CreateTopicsRequest: _create_topics,
    delete_groups.DeleteGroupsRequest: _delete_groups,
    delete_records.DeleteRecordsRequest: _delete_records,
    delete_topics.DeleteTopicsRequest: _delete_topics,
    describe_configs.DescribeConfigsRequest: _describe_configs,
    describe_groups.DescribeGroupsRequest: _describe_groups,
    describe_producers.DescribeProducersRequest: _describe_producers,
    describe_topic_partitions.DescribeTopicPartitionsRequest: _describe_topic_partitions,
    fetch.FetchRequest: _fetch,
    find_coordinator.FindCoordinatorRequest: _find_coordinator,
    incremental_alter_configs.IncrementalAlterConfigsRequest: _incremental_alter_configs,
    init_producer_id.InitProducerIdRequest: _init_producer_id,
    join_group.JoinGroupRequest: _join_group,
    list_offsets.ListOffsetsRequest: _list_offsets,
    metadata.MetadataRequest: _metadata,
    offset_commit.OffsetCommitRequest: _offset_commit,
    offset_fetch.OffsetFetchRequest: _offset_fetch,
    offset_for_leader_epoch.OffsetForLeaderEpochRequest: _offset_for_leader_epoch,
    produce.ProduceRequest: _produce,
}

assert all("error_code" in RESPONSE_OF[request].fields for request in RESPONSE_OF.keys() - _BUILDERS.keys())
