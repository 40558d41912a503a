"""OffsetCommit, TxnOffsetCommit and OffsetFetch: how far a group has read."""

from __future__ import annotations

from penstock.coordinator.machine import LogRecord, ProducerStamp
from penstock.groups.commands import CommitOffsets, CommitTransactionalOffsets, FetchOffsets, TransactionalOffset
from penstock.groups.config import is_too_long
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.group import Group
from penstock.groups.kinds import AnyGroup
from penstock.groups.offsets import NO_EXPIRE_TIMESTAMP, OffsetAndMetadata
from penstock.groups.pending import Place
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
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

GROUP_ID_NOT_FOUND_VERSION = 9
MEMBER_EPOCH_VERSION = 9
TIMESTAMP_MAX = 2**63 - 1
NO_RETENTION_TIME = -1
INVALID_OFFSET = -1
NO_GENERATION = -1


def commit_offsets(turn: Turn, command: CommitOffsets) -> None:
    """A group with no members takes offsets from anyone who claims no membership: a simple consumer, or an admin."""
    request = command.request
    group = turn.groups.get(request.group_id)
    error = _commit_error(group, request, command.version)
    if not error and isinstance(group, Group) and group.state in (State.STABLE, State.PREPARING_REBALANCE):
        turn.start_session(group.members[request.member_id])
    records, errors = ([], []) if error else _offset_records(turn, request)
    if not error and not turn.append(*records):
        error = ErrorCode.UNKNOWN_SERVER_ERROR
    turn.reply(command.ticket, _commit_response(request, error, errors))


def _commit_error(group: AnyGroup | None, request: OffsetCommitRequest, version: int) -> ErrorCode:
    generation_id = request.generation_id_or_member_epoch
    if is_too_long(request.group_id):
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        if generation_id < 0:
            return ErrorCode.NONE
        return ErrorCode.GROUP_ID_NOT_FOUND if version >= GROUP_ID_NOT_FOUND_VERSION else ErrorCode.ILLEGAL_GENERATION
    if generation_id < 0 and group.is_empty:
        return ErrorCode.NONE
    if isinstance(group, ConsumerGroup):
        return _member_epoch_error(group, request.member_id, generation_id, version)
    if generation_id < 0 and not request.member_id and request.group_instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if error := group.member_error(request.member_id, request.group_instance_id):
        return error
    if generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is State.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _member_epoch_error(group: ConsumerGroup, member_id: str, epoch: int, version: int | None = None) -> ErrorCode:
    """`version` is that of an OffsetCommit, whose older ones a member of the new protocol can't know."""
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.classic is None and version is not None and version < MEMBER_EPOCH_VERSION:
        return ErrorCode.UNSUPPORTED_VERSION
    if epoch == member.member_epoch:
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


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


# ---- in a transaction


def commit_transactional_offsets(turn: Turn, command: CommitTransactionalOffsets) -> None:
    """Whether they count is decided when the transaction ends: they are ordinary records, in the producer's name."""
    error = _transactional_error(turn.groups.get(command.group_id), command)
    records: list[LogRecord] = []
    answers = [
        (topic, [(each.partition, error or _add_record(turn, command, topic, each, records)) for each in partitions])
        for topic, partitions in command.topics
    ]
    if records and turn.append(*records):
        turn.outcome.producer = ProducerStamp(command.producer_id, command.producer_epoch)
    elif records:
        failed = ErrorCode.UNKNOWN_SERVER_ERROR
        answers = [(topic, [(partition, each or failed) for partition, each in errors]) for topic, errors in answers]
    turn.reply(command.ticket, answers)


def _transactional_error(group: AnyGroup | None, command: CommitTransactionalOffsets) -> ErrorCode:
    """Who is no member need not say so; who says that it is one must be (KIP-447)."""
    generation_id = command.generation_id_or_member_epoch
    if is_too_long(command.group_id):
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        return ErrorCode.NONE if generation_id < 0 else ErrorCode.ILLEGAL_GENERATION
    if generation_id < 0 and group.is_empty:
        return ErrorCode.NONE
    if generation_id == NO_GENERATION and not command.member_id and command.group_instance_id is None:
        return ErrorCode.NONE
    if isinstance(group, ConsumerGroup):
        error = _member_epoch_error(group, command.member_id, generation_id)
        return ErrorCode.ILLEGAL_GENERATION if error is ErrorCode.STALE_MEMBER_EPOCH else error
    if error := group.member_error(command.member_id, command.group_instance_id):
        return error
    return ErrorCode.NONE if generation_id == group.generation_id else ErrorCode.ILLEGAL_GENERATION


def _add_record(
    turn: Turn, command: CommitTransactionalOffsets, topic: str, each: TransactionalOffset, records: list[LogRecord]
) -> ErrorCode:
    if len(each.metadata or "") > turn.config.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    offset = OffsetAndMetadata(
        committed_offset=each.offset,
        leader_epoch=each.leader_epoch,
        metadata=each.metadata or "",
        commit_timestamp_ms=turn.now_ms,
    )
    records.append(offset_record(command.group_id, topic, each.partition, offset))
    return ErrorCode.NONE


# ---- reading them


def fetch_offsets(turn: Turn, command: FetchOffsets) -> None:
    """Who asks for a partition that has no offset, or a group that does not exist, gets -1; topics of null mean all."""
    request = command.request
    if error := _fetch_error(turn.groups.get(request.group_id), request):
        turn.reply(command.ticket, OffsetFetchResponseGroup(group_id=request.group_id, topics=[], error_code=error))
        return
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
    if command.require_stable and turn.pending.has_group(request.group_id):
        _hide_unstable(turn, request.group_id, topics)
    turn.reply(command.ticket, OffsetFetchResponseGroup(group_id=request.group_id, topics=topics))


def _fetch_error(group: AnyGroup | None, request: OffsetFetchRequestGroup) -> ErrorCode:
    """A member of a consumer group that was fenced must not go on from where the group stands now."""
    if not isinstance(group, ConsumerGroup) or (request.member_id is None and request.member_epoch < 0):
        return ErrorCode.NONE
    return _member_epoch_error(group, request.member_id or "", request.member_epoch)


def _hide_unstable(turn: Turn, group_id: str, topics: list[OffsetFetchResponseTopics]) -> None:
    for topic in topics:
        for partition in topic.partitions:
            if turn.pending.has(Place(group_id, topic.name, partition.partition_index)):
                partition.error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT
                partition.committed_offset = INVALID_OFFSET
                partition.committed_leader_epoch = -1
                partition.metadata = ""


def _fetched(partition: int, offset: OffsetAndMetadata | None) -> OffsetFetchResponsePartitions:
    if offset is None:
        return OffsetFetchResponsePartitions(partition_index=partition, committed_offset=INVALID_OFFSET, metadata="")
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=offset.committed_offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
    )
