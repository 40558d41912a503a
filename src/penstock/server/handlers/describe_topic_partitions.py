"""DescribeTopicPartitions: topics in the order of their names, so many partitions at a time (KIP-966)."""

from __future__ import annotations

from penstock.cluster.model import NO_LEADER, PartitionState, TopicState
from penstock.cluster.topic_names import INTERNAL_TOPICS, missing_topic_error
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from penstock.server.authorized_operations import ON_TOPIC
from penstock.server.cluster_view import leadership, nodes_on
from penstock.server.context import Call, Context


def handle(context: Context, call: Call[DescribeTopicPartitionsRequest]) -> DescribeTopicPartitionsResponse:
    request, cursor = call.request, call.request.cursor
    names = _names(context, request)
    limit = min(context.settings.get("max.request.partition.size.limit"), request.response_partition_limit)
    remaining = max(limit, 1)
    reachable = {node.node_id for node in nodes_on(context.image, call.listener)}
    response = DescribeTopicPartitionsResponse()
    for name in names:
        if remaining == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = context.image.topics.get(name)
        if topic is None:
            response.topics.append(_missing(name))
            continue
        first = cursor.partition_index if cursor and cursor.topic_name == name else 0
        stop = min(first + remaining, len(topic.partitions))
        response.topics.append(_described(context, topic, range(first, stop), reachable))
        if stop < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=stop)
            break
        remaining -= max(stop - first, 0)
    return response


def _names(context: Context, request: DescribeTopicPartitionsRequest) -> list[str]:
    cursor = request.cursor
    asked = {topic.name for topic in request.topics} or context.image.topics.keys()
    if cursor is not None:
        if request.topics and cursor.topic_name not in asked:
            message = f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {cursor.topic_name}"
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        if cursor.partition_index < 0:
            message = f"DescribeTopicPartitionsRequest cursor partition must be valid: {cursor.partition_index}"
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
    return sorted(name for name in asked if cursor is None or name >= cursor.topic_name)


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=missing_topic_error(name),
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=ON_TOPIC,
    )


def _described(
    context: Context, topic: TopicState, indexes: range, reachable: set[int]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[_partition(context, index, topic.partitions[index], reachable) for index in indexes],
        topic_authorized_operations=ON_TOPIC,
    )


def _partition(
    context: Context, index: int, partition: PartitionState, reachable: set[int]
) -> DescribeTopicPartitionsResponsePartition:
    led = leadership(context.image, partition, reachable)
    return DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=led.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.eligible),
        last_known_elr=[] if partition.last_leader == NO_LEADER else [partition.last_leader],
        offline_replicas=led.offline,
    )
