"""DescribeProducers: the idempotent and transactional producers that a partition remembers (KIP-664).

Any replica answers, as in Kafka: whoever looks for transactions that hang asks one broker for all that it has.
"""

from __future__ import annotations

from penstock.cluster.topic_names import why_illegal
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from penstock.server.context import Call, Context


def handle(context: Context, call: Call[DescribeProducersRequest]) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_describe(context, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in call.request.topics
        ]
    )


def _describe(context: Context, name: str, index: int) -> PartitionResponse:
    if reason := why_illegal(name):
        message = f"Topic name is invalid: {reason}"
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
        return PartitionResponse(partition_index=index, error_code=code, error_message=message)
    topic = context.image.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return PartitionResponse(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = context.partitions.get(name, index)
    if partition is None:
        return PartitionResponse(partition_index=index, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp_ms,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.current_transaction_first_offset,
            )
            for entry in partition.log.producers.active()
        ],
    )
