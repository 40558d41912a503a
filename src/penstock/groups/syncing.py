"""SyncGroup: the leader hands the assignment in, and every member collects its part.

The assignment is stored before anyone is told of it: the replies of the turn wait for its record.
"""

from __future__ import annotations

from penstock.groups.commands import Sync
from penstock.groups.consumer.classic_members import sync_as_classic
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.group import Group
from penstock.groups.member import Member
from penstock.groups.rebalancing import answer_syncs, prepare_rebalance
from penstock.groups.responses import sync_error, sync_response
from penstock.groups.states import State
from penstock.groups.turn import Turn
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.sync_group import SyncGroupRequest


def sync(turn: Turn, command: Sync) -> None:
    request = command.request
    if not request.group_id:
        turn.reply(command.ticket, sync_error(ErrorCode.INVALID_GROUP_ID))
        return
    group = turn.groups.get(request.group_id)
    if group is None:
        turn.reply(command.ticket, sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
        return
    if isinstance(group, ConsumerGroup):
        sync_as_classic(turn, command, group)
        return
    if error := _sync_error(group, request):
        turn.reply(command.ticket, sync_error(error))
        return
    member = group.members[request.member_id]
    _has_synced(turn, group, member)
    if group.state is State.STABLE:
        turn.reply(command.ticket, sync_response(group, member.assignment))
        return
    if member.parked_sync is not None:
        turn.reply(member.parked_sync, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
    member.parked_sync = command.ticket
    if group.leader_id == member.member_id:
        _store_assignment(turn, group, request)


def _sync_error(group: Group, request: SyncGroupRequest) -> ErrorCode:
    if error := group.member_error(request.member_id, request.group_instance_id):
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    # A member that took the protocol for another would read its assignment wrongly (KIP-559).
    if request.protocol_type is not None and request.protocol_type != group.protocol_type:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name is not None and group.protocol_name not in (None, request.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is State.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _has_synced(turn: Turn, group: Group, member: Member) -> None:
    group.pending_sync.discard(member.member_id)
    if not group.pending_sync:
        turn.timers.cancel(group.sync_timer)


def _store_assignment(turn: Turn, group: Group, request: SyncGroupRequest) -> None:
    assignments = {assigned.member_id: assigned.assignment for assigned in request.assignments}
    too_large = sum(map(len, assignments.values())) > turn.config.append_max_bytes  # not worth building the record for
    if too_large or not turn.append_group(group, group.stable_record(assignments, turn.now_ms)):
        answer_syncs(turn, group, ErrorCode.UNKNOWN_SERVER_ERROR)
        prepare_rebalance(turn, group)
        return
    for member in group.members.values():
        if member.parked_sync is not None:
            turn.reply(member.parked_sync, sync_response(group, assignments.get(member.member_id, b"")))
            member.parked_sync = None
            # While it waited, its session may have run out unheeded.
            turn.start_session(member)
