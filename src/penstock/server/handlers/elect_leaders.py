"""ElectLeaders: gives partitions their preferred leader, or any that lives if a person asks for it (KIP-460)."""

from __future__ import annotations

from penstock.cluster.leader_plans import Election
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from penstock.server.context import Call, Context


async def handle(context: Context, call: Call[ElectLeadersRequest]) -> ElectLeadersResponse:
    request = call.request
    if request.election_type not in set(Election):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    asked = _all(context)
    if request.topic_partitions is not None:
        asked = [(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions]
    failures = await context.administration.elect_leaders(Election(request.election_type), asked)
    topics = {topic.topic: ReplicaElectionResult(topic=topic.topic) for topic in request.topic_partitions or ()}
    for (name, index), failure in zip(asked, failures):
        if failure and failure.code is ErrorCode.ELECTION_NOT_NEEDED and request.topic_partitions is None:
            continue  # of all partitions, those are told of for which there was something to do
        topic = topics.setdefault(name, ReplicaElectionResult(topic=name))
        topic.partition_result.append(_result(index, failure))
    return ElectLeadersResponse(replica_election_results=list(topics.values()))


def _all(context: Context) -> list[tuple[str, int]]:
    topics = context.image.topics.values()
    return [(topic.name, index) for topic in topics for index in range(len(topic.partitions))]


def _result(index: int, failure: ApiError | None) -> PartitionResult:
    if failure is None:
        return PartitionResult(partition_id=index)
    return PartitionResult(partition_id=index, error_code=failure.code, error_message=failure.message)
