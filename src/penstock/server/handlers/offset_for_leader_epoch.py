"""OffsetForLeaderEpoch: where a leader epoch ended, so that a client can tell whether the log was cut under it."""

from __future__ import annotations

from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from penstock.server.context import Call, Context
from penstock.server.handlers.fetch import check_leader_epoch


def handle(context: Context, call: Call[OffsetForLeaderEpochRequest]) -> OffsetForLeaderEpochResponse:
    response = OffsetForLeaderEpochResponse()
    for topic in call.request.topics:
        ends = [_end(context, topic.topic, asked) for asked in topic.partitions]
        response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=ends))
    return response


def _end(context: Context, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = EpochEndOffset(partition=asked.partition, error_code=0)
    try:
        partition = context.partitions.get(topic, asked.partition)
        if partition is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        check_leader_epoch(partition, asked.current_leader_epoch)
        store = partition.log
        if asked.leader_epoch == partition.leader_epoch:
            answer.leader_epoch, answer.end_offset = partition.leader_epoch, partition.high_watermark
        else:
            answer.leader_epoch, answer.end_offset = store.epochs.end_offset(asked.leader_epoch, store.end_offset)
    except ApiError as error:
        answer.error_code = error.code
    return answer
