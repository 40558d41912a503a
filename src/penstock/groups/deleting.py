"""OffsetDelete and DeleteGroups: what is asked to be forgotten."""

from __future__ import annotations

from penstock.coordinator.machine import LogRecord
from penstock.groups.commands import DeleteGroups, DeleteOffsets
from penstock.groups.group import Group
from penstock.groups.records import offset_record
from penstock.groups.states import State
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
    elif group.state is not State.EMPTY and not group.uses_consumer_protocol:
        error = ErrorCode.NON_EMPTY_GROUP
    elif turn.append(*_tombstones_asked_for(turn, group, request)):
        turn.reply(command.ticket, OffsetDeleteResponse(topics=_topics(group, request)))
        return
    else:
        error = ErrorCode.UNKNOWN_SERVER_ERROR
    turn.reply(command.ticket, OffsetDeleteResponse(error_code=error))


def _tombstones_asked_for(turn: Turn, group: Group, request: OffsetDeleteRequest) -> list[LogRecord]:
    return [
        offset_record(group.group_id, topic.name, partition.partition_index, None)
        for topic in request.topics
        if not group.is_subscribed_to(topic.name)
        for partition in topic.partitions
        if turn.offsets.get(group.group_id, topic.name, partition.partition_index) is not None
    ]


def _topics(group: Group, request: OffsetDeleteRequest) -> list[OffsetDeleteResponseTopic]:
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
    if group.state is not State.EMPTY:
        return ErrorCode.NON_EMPTY_GROUP
    tombstones = [
        offset_record(group_id, topic, partition, None)
        for topic, partitions in turn.offsets.of_group(group_id).items()
        for partition in partitions
    ]
    if turn.append(*tombstones) and turn.append_group(group, None):
        return ErrorCode.NONE
    return ErrorCode.UNKNOWN_SERVER_ERROR
