"""AlterPartitionReassignments: moves partitions to other replicas, or takes that back (KIP-455)."""

from __future__ import annotations

from penstock.protocol.errors import ApiError
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from penstock.server.context import Call, Context


async def handle(
    context: Context, call: Call[AlterPartitionReassignmentsRequest]
) -> AlterPartitionReassignmentsResponse:
    request = call.request
    wanted = [
        ((topic.name, partition.partition_index), partition.replicas)
        for topic in request.topics
        for partition in topic.partitions
    ]
    factor_may_change = request.allow_replication_factor_change
    failures = await context.administration.reassign_partitions(wanted, factor_may_change=factor_may_change)
    topics = {topic.name: ReassignableTopicResponse(name=topic.name) for topic in request.topics}
    for ((name, index), _), failure in zip(wanted, failures):
        topics[name].partitions.append(_result(index, failure))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=factor_may_change, responses=list(topics.values())
    )


def _result(index: int, failure: ApiError | None) -> ReassignablePartitionResponse:
    if failure is None:
        return ReassignablePartitionResponse(partition_index=index)
    return ReassignablePartitionResponse(partition_index=index, error_code=failure.code, error_message=failure.message)
