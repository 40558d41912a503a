"""ListPartitionReassignments: the partitions that are on their way to other replicas (KIP-455)."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.cluster.model import TopicState
from penstock.cluster.reassignments import in_progress
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from penstock.server.context import Call, Context


def handle(context: Context, call: Call[ListPartitionReassignmentsRequest]) -> ListPartitionReassignmentsResponse:
    known = context.image.topics
    if call.request.topics is None:
        asked: dict[str, Iterable[int]] = {name: range(len(topic.partitions)) for name, topic in known.items()}
    else:
        asked = {topic.name: dict.fromkeys(topic.partition_indexes) for topic in call.request.topics}
    ongoing = (_ongoing(known[name], indexes) for name, indexes in asked.items() if name in known)
    return ListPartitionReassignmentsResponse(topics=[topic for topic in ongoing if topic.partitions])


def _ongoing(topic: TopicState, indexes: Iterable[int]) -> OngoingTopicReassignment:
    answer = OngoingTopicReassignment(name=topic.name)
    for index in indexes:
        state = topic.partitions[index] if 0 <= index < len(topic.partitions) else None
        if state is not None and in_progress(state):
            answer.partitions.append(
                OngoingPartitionReassignment(
                    partition_index=index,
                    replicas=list(state.replicas),
                    adding_replicas=list(state.adding),
                    removing_replicas=list(state.removing),
                )
            )
    return answer
