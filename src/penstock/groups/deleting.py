"""OffsetDelete and DeleteGroups: what is asked to be forgotten."""

from __future__ import annotations

from penstock.coordinator.machine import LogRecord
from penstock.groups.commands import DeleteGroups, DeleteOffsets
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.migrating import empty_group_records
from penstock.groups.kinds import AnyGroup
from penstock.groups.pending import Place
from penstock.groups.records import offset_record
from penstock.groups.turn import Turn
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.delete_groups import DeletableGroupResult
from penstock.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def delete_offsets(turn: Turn, command: DeleteOffsets) -> None:
    """Only consumers say what they subscribe to, so that another group at work can't be helped (KIP-496)."""
    request = command.request
    group = turn.groups.get(request.group_id)
    if not request.group_id:
        error = ErrorCode.INVALID_GROUP_ID
    elif group is None:
        error = ErrorCode.GROUP_ID_NOT_FOUND
    elif not group.is_empty and not group.uses_consumer_protocol:
        error = ErrorCode.NON_EMPTY_GROUP
    elif turn.append(*_tombstones_asked_for(turn, group, request)):
        turn.reply(command.ticket, OffsetDeleteResponse(topics=_topics(group, request)))
        return
    else:
        error = ErrorCode.UNKNOWN_SERVER_ERROR
    turn.reply(command.ticket, OffsetDeleteResponse(error_code=error))


def _tombstones_asked_for(turn: Turn, group: AnyGroup, request: OffsetDeleteRequest) -> list[LogRecord]:
    return [
        offset_record(group.group_id, topic.name, partition.partition_index, None)
        for topic in request.topics
        if not group.is_subscribed_to(topic.name)
        for partition in topic.partitions
        if turn.offsets.get(group.group_id, topic.name, partition.partition_index) is not None
        or turn.pending.has(Place(group.group_id, topic.name, partition.partition_index))
    ]


def _topics(group: AnyGroup, request: OffsetDeleteRequest) -> list[OffsetDeleteResponseTopic]:
    answered = []
    for topic in request.topics:
        subscribed = group.is_subscribed_to(topic.name)
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
        partitions = [
            OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=error)
            for partition in topic.partitions
        ]
        answered.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
    return answered


def delete_groups(turn: Turn, command: DeleteGroups) -> None:
    turn.reply(
        command.ticket,
        [
            DeletableGroupResult(group_id=group_id, error_code=_delete_group(turn, group_id))
            for group_id in command.group_ids
        ],
    )


def _delete_group(turn: Turn, group_id: str) -> ErrorCode:
    group = turn.groups.get(group_id)
    if group is None or group.has_unapplied_record:  # the latter: the request names it twice
        return ErrorCode.GROUP_ID_NOT_FOUND
    if not group.is_empty:
        return ErrorCode.NON_EMPTY_GROUP
    tombstones = _offset_tombstones(turn, group_id)
    if turn.append(*tombstones) and append_group_tombstones(turn, group):
        return ErrorCode.NONE
    return ErrorCode.UNKNOWN_SERVER_ERROR


def _offset_tombstones(turn: Turn, group_id: str) -> list[LogRecord]:
    """For what is committed, and for what would be when open transactions are."""
    committed = {
        Place(group_id, topic, partition)
        for topic, partitions in turn.offsets.of_group(group_id).items()
        for partition in partitions
    }
    return [offset_record(*place, None) for place in sorted(committed.union(turn.pending.of_group(group_id)))]


def append_group_tombstones(turn: Turn, group: AnyGroup) -> bool:
    if isinstance(group, ConsumerGroup):
        return turn.append_consumer(group, empty_group_records(group))
    return turn.append_group(group, None)
