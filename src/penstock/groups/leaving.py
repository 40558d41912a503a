"""LeaveGroup: members go at once, rather than when their sessions end.

Since version 3 one request removes many, and an administrator may name a static member by its instance id alone.
"""

from __future__ import annotations

from penstock.groups.commands import Leave
from penstock.groups.consumer.classic_members import leave_consumer_group
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.group import Group
from penstock.groups.rebalancing import drop_member, drop_pending, rebalance_or_complete_join
from penstock.groups.states import State
from penstock.groups.turn import Turn
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse

MANY_MEMBERS_VERSION = 3


def leave(turn: Turn, command: Leave) -> None:
    request = command.request
    if not request.group_id:
        turn.reply(command.ticket, LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        return
    leaving = request.members
    if command.version < MANY_MEMBERS_VERSION:
        leaving = [MemberIdentity(member_id=request.member_id)]
    group = turn.groups.get(request.group_id)
    if isinstance(group, ConsumerGroup):
        turn.reply(command.ticket, _response(command.version, leaving, leave_consumer_group(turn, group, leaving)))
        return
    errors = [ErrorCode.UNKNOWN_MEMBER_ID if group is None else _leave(turn, group, who) for who in leaving]
    turn.reply(command.ticket, _response(command.version, leaving, errors))
    if group is not None and ErrorCode.NONE in errors and group.state is not State.EMPTY:
        rebalance_or_complete_join(turn, group)


def _leave(turn: Turn, group: Group, who: MemberIdentity) -> ErrorCode:
    member_id = who.member_id
    if not member_id:
        if who.group_instance_id is None or who.group_instance_id not in group.static_members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = group.static_members[who.group_instance_id]
    elif member_id in group.pending:
        drop_pending(turn, group, member_id)
        return ErrorCode.NONE
    elif error := group.member_error(member_id, who.group_instance_id):
        return error
    drop_member(turn, group, group.members[member_id])
    return ErrorCode.NONE


def _response(version: int, leaving: list[MemberIdentity], errors: list[ErrorCode]) -> LeaveGroupResponse:
    if version < MANY_MEMBERS_VERSION:
        return LeaveGroupResponse(error_code=errors[0])
    return LeaveGroupResponse(
        members=[
            MemberResponse(member_id=who.member_id, group_instance_id=who.group_instance_id, error_code=error)
            for who, error in zip(leaving, errors)
        ]
    )
