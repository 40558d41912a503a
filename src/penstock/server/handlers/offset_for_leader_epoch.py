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
from penstock.replication.partition import Partition
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
        answer.leader_epoch, answer.end_offset = _end_offset(partition, asked.leader_epoch)
    except ApiError as error:
        answer.error_code = error.code
    return answer


def _end_offset(partition: Partition, epoch: int) -> tuple[int, int]:
    """As Kafka finds it; -1 for an epoch that never was."""
    if epoch == partition.leader_epoch:
        return epoch, partition.high_watermark
    if not 0 <= epoch < partition.leader_epoch:
        return -1, -1
    epochs = partition.log.epochs
    if epochs.starts and epoch < epochs.epochs[0]:
        return epoch, epochs.starts[0]  # all of it is deleted: whoever has read so far has lost nothing
    return epochs.end_offset(epoch, partition.log.end_offset)
