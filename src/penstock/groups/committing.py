"""OffsetCommit and OffsetFetch: how far a group has read."""

from __future__ import annotations

from penstock.coordinator.machine import LogRecord
from penstock.groups.commands import CommitOffsets, FetchOffsets
from penstock.groups.group import Group
from penstock.groups.offsets import NO_EXPIRE_TIMESTAMP, OffsetAndMetadata
from penstock.groups.records import offset_record
from penstock.groups.states import State
from penstock.groups.turn import Turn
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

GROUP_ID_NOT_FOUND_VERSION = 9
TIMESTAMP_MAX = 2**63 - 1
NO_RETENTION_TIME = -1
INVALID_OFFSET = -1


def commit_offsets(turn: Turn, command: CommitOffsets) -> None:
    """A group with no members takes offsets from anyone who claims no membership: a simple consumer, or an admin."""
    request = command.request
    group = turn.groups.get(request.group_id)
    error = _commit_error(group, request, command.version)
    if not error and group is not None and group.state in (State.STABLE, State.PREPARING_REBALANCE):
        turn.start_session(group.members[request.member_id])
    records, errors = ([], []) if error else _offset_records(turn, request)
    if not error and not turn.append(*records):
        error = ErrorCode.UNKNOWN_SERVER_ERROR
    turn.reply(command.ticket, _commit_response(request, error, errors))


def _commit_error(group: Group | None, request: OffsetCommitRequest, version: int) -> ErrorCode:
    generation_id = request.generation_id_or_member_epoch
    if group is None:
        if generation_id < 0:
            return ErrorCode.NONE
        return ErrorCode.GROUP_ID_NOT_FOUND if version >= GROUP_ID_NOT_FOUND_VERSION else ErrorCode.ILLEGAL_GENERATION
    if generation_id < 0 and group.state is State.EMPTY:
        return ErrorCode.NONE
    if generation_id < 0 and not request.member_id and request.group_instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if error := group.member_error(request.member_id, request.group_instance_id):
        return error
    if generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is State.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _offset_records(turn: Turn, request: OffsetCommitRequest) -> tuple[list[LogRecord], list[ErrorCode]]:
    """The records to write, and an error for each partition, in the order of the request."""
    records, errors = [], []
    expire_ms = NO_EXPIRE_TIMESTAMP
    if request.retention_time_ms != NO_RETENTION_TIME:
        expire_ms = min(turn.now_ms + request.retention_time_ms, TIMESTAMP_MAX)
    for topic in request.topics:
        for partition in topic.partitions:
            if len(partition.committed_metadata or "") > turn.config.offset_metadata_max_bytes:
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            errors.append(ErrorCode.NONE)
            offset = _offset(partition, turn.now_ms, expire_ms, topic.topic_id)
            records.append(offset_record(request.group_id, topic.name, partition.partition_index, offset))
    return records, errors


def _offset(partition: OffsetCommitRequestPartition, now_ms: int, expire_ms: int, topic_id: bytes) -> OffsetAndMetadata:
    return OffsetAndMetadata(
        committed_offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp_ms=now_ms,
        expire_timestamp_ms=expire_ms,
        topic_id=topic_id,
    )


def _commit_response(request: OffsetCommitRequest, error: ErrorCode, errors: list[ErrorCode]) -> OffsetCommitResponse:
    own_errors = iter(errors)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=error or next(own_errors),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def fetch_offsets(turn: Turn, command: FetchOffsets) -> None:
    """Who asks for a partition that has no offset, or a group that does not exist, gets -1; topics of null mean all."""
    request = command.request
    known = turn.offsets.of_group(request.group_id)
    if request.topics is None:
        topics = [
            OffsetFetchResponseTopics(name=name, partitions=[_fetched(p, o) for p, o in sorted(partitions.items())])
            for name, partitions in known.items()
        ]
    else:
        topics = []
        for topic in request.topics:
            partitions = known.get(topic.name, {})
            offsets = [(p, partitions.get(p)) for p in topic.partition_indexes]
            topics.append(
                OffsetFetchResponseTopics(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[_fetched(p, o if o and o.is_of_topic(topic.topic_id) else None) for p, o in offsets],
                )
            )
    turn.reply(command.ticket, OffsetFetchResponseGroup(group_id=request.group_id, topics=topics))


def _fetched(partition: int, offset: OffsetAndMetadata | None) -> OffsetFetchResponsePartitions:
    if offset is None:
        return OffsetFetchResponsePartitions(partition_index=partition, committed_offset=INVALID_OFFSET, metadata="")
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=offset.committed_offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
    )
