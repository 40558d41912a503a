"""OffsetForLeaderEpoch: where a leader epoch ended, so that clients and followers can tell where their log and this one
part."""

from __future__ import annotations

from penstock.protocol.errors import ApiError
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
from penstock.server.leadership import led


def handle(context: Context, call: Call[OffsetForLeaderEpochRequest]) -> OffsetForLeaderEpochResponse:
    response = OffsetForLeaderEpochResponse()
    for topic in call.request.topics:
        ends = [_end(context, call.request, topic.topic, asked) for asked in topic.partitions]
        response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=ends))
    return response


def _end(
    context: Context, request: OffsetForLeaderEpochRequest, topic: str, asked: OffsetForLeaderPartition
) -> EpochEndOffset:
    answer = EpochEndOffset(partition=asked.partition, error_code=0)
    try:
        partition = led(context, topic, asked.partition)
        check_leader_epoch(partition, asked.current_leader_epoch)
        by_follower = request.replica_id >= 0
        answer.leader_epoch, answer.end_offset = _end_offset(partition, asked.leader_epoch, by_follower)
    except ApiError as error:
        answer.error_code = error.code
    return answer


def _end_offset(partition: Partition, epoch: int, by_follower: bool) -> tuple[int, int]:
    """As Kafka finds it; -1 for an epoch that never was, except to a follower: it is to keep what both have.

    The end of the log counts, and not the high watermark: that of a new leader may be behind what was shown to clients
    already, and a follower has what is not committed yet.
    """
    epochs, end = partition.log.epochs, partition.log.end_offset
    if epoch < 0 or (epoch > partition.leader_epoch and not by_follower):
        return -1, -1
    if not epochs.epochs or epoch == partition.leader_epoch:
        return epoch, end
    if epoch < epochs.epochs[0]:
        return epoch, epochs.starts[0]  # all of it is deleted: whoever has read so far has lost nothing
    return epochs.end_offset(epoch, end)
