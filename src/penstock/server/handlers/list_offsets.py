"""ListOffsets: the offset at a point in time, or at one of the named places."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.replication.partition import Partition
from penstock.server.context import Call, Context
from penstock.server.deferred import Deferred
from penstock.server.handlers.fetch import READ_COMMITTED, check_leader_epoch
from penstock.server.leadership import led

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
FIRST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
NOT_AVAILABLE_SINCE = 5  # before, clients knew of no offset that is not available yet (KIP-207)


def handle(context: Context, call: Call[ListOffsetsRequest]) -> ListOffsetsResponse | Deferred[ListOffsetsResponse]:
    """A client that was answered for acks=1 expects to find its message: a sync that is under way is waited for. Other
    replicas are not: they may be away for long."""
    behind = [
        partition
        for partition in _partitions(context, call)
        if partition.in_sync is None and partition.log.next_offset > partition.high_watermark
    ]
    if not behind:
        return _response(context, call)
    deferred: Deferred[ListOffsetsResponse] = Deferred()
    left = len(behind)

    def committed() -> None:
        nonlocal left
        left -= 1
        if not left:
            deferred.resolve(_response(context, call))

    for partition in behind:
        partition.when_committed(partition.log.next_offset, committed)
    return deferred


def _partitions(context: Context, call: Call[ListOffsetsRequest]) -> Iterator[Partition]:
    for topic in call.request.topics:
        for asked in topic.partitions:
            partition = context.partitions.get(topic.name, asked.partition_index)
            if partition is not None and partition.leads:
                yield partition


def _response(context: Context, call: Call[ListOffsetsRequest]) -> ListOffsetsResponse:
    response = ListOffsetsResponse()
    for topic in call.request.topics:
        answers = [_list(context, call, topic.name, asked) for asked in topic.partitions]
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return response


def _list(
    context: Context, call: Call[ListOffsetsRequest], topic: str, asked: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=0)
    try:
        partition = led(context, topic, asked.partition_index)
        check_leader_epoch(partition, asked.current_leader_epoch)
        if call.version < FIRST_VERSION.get(asked.timestamp, 0) or asked.timestamp < LATEST_TIERED:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        end = partition.last_stable_offset if call.request.isolation_level == READ_COMMITTED else None
        answer.offset, answer.timestamp, answer.leader_epoch = _offset(partition, asked.timestamp, end)
    except ApiError as error:
        answer.error_code = error.code
        if error.code is ErrorCode.OFFSET_NOT_AVAILABLE and call.version < NOT_AVAILABLE_SINCE:
            answer.error_code = ErrorCode.LEADER_NOT_AVAILABLE
    return answer


def _offset(partition: Partition, timestamp: int, stable: int | None) -> tuple[int, int, int]:
    """Offset, its timestamp and its leader epoch; -1 for what there is none of. Nothing behind what is stable, if it is
    given."""
    store = partition.log
    end = partition.high_watermark if stable is None else stable
    if timestamp == LATEST:
        _check_available(partition)
        return end, -1, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return store.start_offset, -1, store.epochs.epoch_of(store.start_offset)
    if timestamp == LATEST_TIERED:
        return -1, -1, -1
    found = store.max_timestamp() if timestamp == MAX_TIMESTAMP else store.offset_for_timestamp(timestamp)
    if found is None or found[0] >= end:
        _check_available(partition)
        return -1, -1, -1
    return found


def _check_available(partition: Partition) -> None:
    """A new leader does not know yet how much of what it began with is committed: a client that was shown more by the
    leader before would believe that the log has become shorter (KIP-207)."""
    in_sync = partition.in_sync
    if in_sync is not None and partition.high_watermark < in_sync.epoch_start:
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
