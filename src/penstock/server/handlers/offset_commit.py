"""OffsetCommit: where a group has come to, stored before it is acknowledged."""

from __future__ import annotations

from collections.abc import Callable

from penstock.coordinator.machine import Ticket
from penstock.groups import commands
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.server.context import Call, Context
from penstock.server.deferred import Deferred
from penstock.server.group_calls import ask

FIRST_VERSION_WITH_TOPIC_IDS = 10


def handle(context: Context, call: Call[OffsetCommitRequest]) -> Deferred[OffsetCommitResponse] | OffsetCommitResponse:
    """Topics that do not exist are refused here; the machine sees names only."""
    request = call.request
    with_ids = call.version >= FIRST_VERSION_WITH_TOPIC_IDS
    known: list[OffsetCommitRequestTopic] = []
    refused: list[OffsetCommitResponseTopic] = []
    for topic in request.topics:
        state = (context.image.topics_by_id if with_ids else context.image.topics).get(
            topic.topic_id if with_ids else topic.name  # type: ignore[arg-type]
        )
        count = len(state.partitions) if state is not None else 0
        valid = [p for p in topic.partitions if 0 <= p.partition_index < count]
        invalid = [p for p in topic.partitions if not 0 <= p.partition_index < count]
        if state is not None and valid:
            known.append(OffsetCommitRequestTopic(name=state.name, topic_id=state.topic_id, partitions=valid))
        if invalid:
            code = ErrorCode.UNKNOWN_TOPIC_ID if with_ids and state is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused.append(
                OffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
                        for p in invalid
                    ],
                )
            )
    if not known and request.topics:
        return OffsetCommitResponse(topics=refused)
    request.topics = known
    deferred = ask(context, call, request.group_id, _command(call))
    return _completed(context, deferred, refused) if refused or with_ids else deferred


def _command(call: Call[OffsetCommitRequest]) -> Callable[[Ticket], commands.CommitOffsets]:
    return lambda ticket: commands.CommitOffsets(ticket, call.request, call.version)


def _completed(
    context: Context, deferred: Deferred[OffsetCommitResponse], refused: list[OffsetCommitResponseTopic]
) -> Deferred[OffsetCommitResponse]:
    whole: Deferred[OffsetCommitResponse] = Deferred()

    def complete(response: OffsetCommitResponse) -> None:
        for topic in response.topics:
            state = context.image.topics.get(topic.name)
            topic.topic_id = state.topic_id if state is not None else topic.topic_id
        response.topics += refused
        whole.resolve(response)

    deferred.then(complete)
    return whole
