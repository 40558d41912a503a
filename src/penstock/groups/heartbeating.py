"""Heartbeat: a member is alive, and learns whether a rebalance waits for it. It costs the same in any group."""

from __future__ import annotations

from penstock.groups.commands import Heartbeat
from penstock.groups.consumer.classic_members import heartbeat_as_classic
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.states import State
from penstock.groups.turn import Turn
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.heartbeat import HeartbeatResponse


def heartbeat(turn: Turn, command: Heartbeat) -> None:
    turn.reply(command.ticket, HeartbeatResponse(error_code=_heartbeat(turn, command)))


def _heartbeat(turn: Turn, command: Heartbeat) -> ErrorCode:
    request = command.request
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    group = turn.groups.get(request.group_id)
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if isinstance(group, ConsumerGroup):
        return heartbeat_as_classic(turn, command, group)
    if error := group.member_error(request.member_id, request.group_instance_id):
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    turn.start_session(group.members[request.member_id])
    # In CompletingRebalance a member has its generation already, and may beat while it waits for the assignment.
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.PREPARING_REBALANCE else ErrorCode.NONE
