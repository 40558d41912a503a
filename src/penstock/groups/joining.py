"""JoinGroup: how somebody becomes a member, and how a member joins a rebalance.

a new dynamic member    gets an id and must come again with it (KIP-394; from version 4), then is added
a new static member     is added, or takes the place of its former self (KIP-345)
a known member          joins the rebalance, starts one if it has changed, or is told what it missed
"""

from __future__ import annotations

from penstock.groups.commands import Join
from penstock.groups.config import is_too_long
from penstock.groups.consumer.classic_members import join_as_classic
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.migrating import empty_group_records
from penstock.groups.group import Group
from penstock.groups.member import Member, ParkedJoin
from penstock.groups.rebalancing import (
    complete_join_if_all_joined,
    drop_member,
    drop_pending,
    rebalance_or_complete_join,
    release_member,
)
from penstock.groups.responses import join_error, join_response
from penstock.groups.states import State
from penstock.groups.subscription import subscribed_topics
from penstock.groups.timers import Kind, Timer
from penstock.groups.turn import Turn
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.join_group import JoinGroupResponse

MEMBER_ID_REQUIRED_VERSION = 4
SKIP_ASSIGNMENT_VERSION = 9


def join(turn: Turn, command: Join) -> None:
    request = command.request
    config = turn.config
    if not request.group_id or is_too_long(request.group_id):
        _refuse(turn, command, ErrorCode.INVALID_GROUP_ID)
    elif not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
        _refuse(turn, command, ErrorCode.INVALID_SESSION_TIMEOUT)
    elif _has_too_much_to_say(turn, command):
        _refuse(turn, command, ErrorCode.INVALID_REQUEST)
    elif isinstance(group := turn.groups.get(request.group_id), ConsumerGroup):
        _join_consumer_group(turn, command, group)
    elif group is not None:
        _join_group(turn, command, group)
    elif request.member_id:
        _refuse(turn, command, ErrorCode.UNKNOWN_MEMBER_ID)
    else:
        _join_group(turn, command, Group(request.group_id))


def _has_too_much_to_say(turn: Turn, command: Join) -> bool:
    request = command.request
    names = (protocol.name for protocol in request.protocols)
    if is_too_long(request.member_id, request.group_instance_id, request.protocol_type, *names):
        return True
    return sum(len(protocol.metadata) for protocol in request.protocols) > turn.config.member_metadata_max_bytes


def _join_consumer_group(turn: Turn, command: Join, group: ConsumerGroup) -> None:
    """An empty one becomes a classic group again; in any other, classic members are welcome (KIP-848)."""
    if not group.is_empty:
        join_as_classic(turn, command, group)
    elif command.request.member_id:
        _refuse(turn, command, ErrorCode.UNKNOWN_MEMBER_ID)
    elif not turn.append(*empty_group_records(group)):
        _refuse(turn, command, ErrorCode.UNKNOWN_SERVER_ERROR)
    else:
        turn.timers.cancel(group.assignment_timer)
        classic = turn.groups[group.group_id] = Group(group.group_id)
        _join_group(turn, command, classic)


def _join_group(turn: Turn, command: Join, group: Group) -> None:
    request = command.request
    if not _has_room(turn, command, group):
        _turn_away(turn, command, group)
    elif not group.supports(request.protocol_type, (protocol.name for protocol in request.protocols)):
        _refuse(turn, command, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    elif not request.member_id:
        _join_as_new(turn, command, group)
    elif request.member_id in group.pending:
        if request.group_instance_id is not None:
            # Ids are given out to dynamic members alone, so this is two clients in one.
            _refuse(turn, command, ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            _add_member(turn, command, group, request.member_id)
    elif error := group.member_error(request.member_id, request.group_instance_id):
        _refuse(turn, command, error)
    else:
        _rejoin(turn, command, group, group.members[request.member_id])


def _has_room(turn: Turn, command: Join, group: Group) -> bool:
    """Members stay; others may come up to the limit.

    While a rebalance is prepared, those who have joined are counted: if the limit was lowered, the last to join are
    the ones to go.
    """
    member_id, instance_id = command.request.member_id, command.request.group_instance_id
    if instance_id is not None:
        member_id = group.static_members.get(instance_id, member_id)
    member = group.members.get(member_id)
    if group.state is State.EMPTY:
        return True
    if group.state is State.PREPARING_REBALANCE:
        has_joined = member is not None and member.parked_join is not None
        return has_joined or group.awaiting_join_count < turn.config.group_max_size
    return member is not None or len(group.members) < turn.config.group_max_size


def _turn_away(turn: Turn, command: Join, group: Group) -> None:
    member_id = command.request.member_id
    if member_id in group.members:
        drop_member(turn, group, group.members[member_id])
    elif member_id in group.pending:
        drop_pending(turn, group, member_id)
    turn.reply(command.ticket, join_error(ErrorCode.GROUP_MAX_SIZE_REACHED, "", command.version))
    complete_join_if_all_joined(turn, group)


def _refuse(turn: Turn, command: Join, error: ErrorCode) -> None:
    turn.reply(command.ticket, join_error(error, command.request.member_id, command.version))


# ---- somebody new


def _join_as_new(turn: Turn, command: Join, group: Group) -> None:
    instance_id = command.request.group_instance_id
    if instance_id is not None:
        new_id = turn.new_member_id(instance_id)
        if (old_id := group.static_members.get(instance_id)) is not None:
            _replace_static_member(turn, command, group, group.members[old_id], new_id)
        else:
            _add_member(turn, command, group, new_id)
    elif command.version < MEMBER_ID_REQUIRED_VERSION:
        _add_member(turn, command, group, turn.new_member_id(command.client_id))
    elif len(group.pending) >= turn.config.pending_members_max:
        turn.reply(command.ticket, join_error(ErrorCode.GROUP_MAX_SIZE_REACHED, "", command.version))
    else:
        _require_member_id(turn, command, group, turn.new_member_id(command.client_id))


def _require_member_id(turn: Turn, command: Join, group: Group, new_id: str) -> None:
    """A client that never hears of its id would leave a member behind with every retry; a pending one costs little."""
    turn.groups[group.group_id] = group
    group.pending[new_id] = timer = Timer(Kind.SESSION, group.group_id, new_id)
    turn.timers.start(timer, turn.now_ms + command.request.session_timeout_ms)
    turn.reply(command.ticket, join_error(ErrorCode.MEMBER_ID_REQUIRED, new_id, command.version))


def _add_member(turn: Turn, command: Join, group: Group, member_id: str) -> None:
    turn.groups[group.group_id] = group
    if member_id in group.pending:
        drop_pending(turn, group, member_id)
    member = _member(command, member_id)
    member.is_new = True
    group.add(member, command.request.protocol_type)
    group.park_join(member, ParkedJoin(command.ticket, command.version))
    if group.initial_delay is not None:
        group.new_member_added = True
    turn.timers.start(member.session, turn.now_ms + turn.config.new_member_join_timeout_ms)
    rebalance_or_complete_join(turn, group)


def _member(command: Join, member_id: str) -> Member:
    request = command.request
    return Member(
        member_id=member_id,
        group_instance_id=request.group_instance_id,
        client_id=command.client_id,
        client_host=command.client_host,
        rebalance_timeout_ms=_rebalance_timeout_ms(command),
        session_timeout_ms=request.session_timeout_ms,
        protocols=_protocols(command),
        session=Timer(Kind.SESSION, request.group_id, member_id),
    )


def _protocols(command: Join) -> dict[str, bytes]:
    return {protocol.name: protocol.metadata for protocol in command.request.protocols}


def _rebalance_timeout_ms(command: Join) -> int:
    """Version 0 has no rebalance timeout of its own (KIP-62)."""
    request = command.request
    return max(request.rebalance_timeout_ms, 0) if command.version >= 1 else request.session_timeout_ms


# ---- a static member that was away


def _replace_static_member(turn: Turn, command: Join, group: Group, old: Member, new_id: str) -> None:
    """The former self is fenced. Where nothing changes for the others, they do not hear of it (KIP-345)."""
    leader_before = group.leader_id
    release_member(turn, group, old, ErrorCode.FENCED_INSTANCE_ID)
    member = _member(command, new_id)
    group.replace(old, member)
    turn.start_session(member)
    if group.state is State.STABLE and _takes_over(group, old, member):
        kept = {m.member_id: m.assignment for m in group.members.values()}
        if turn.append_group(group, group.stable_record(kept, turn.now_ms)):
            turn.reply(command.ticket, _taken_over(command, group, member, leader_before))
            return
    group.park_join(member, ParkedJoin(command.ticket, command.version))
    # In CompletingRebalance the leader may be assigning to the old id, so that only a new generation will do.
    rebalance_or_complete_join(turn, group)


def _takes_over(group: Group, old: Member, new: Member) -> bool:
    """Whether the assignment still fits: the same protocol is selected, for the same topics."""
    assert group.protocol_name is not None
    if group.select_protocol() != group.protocol_name:
        return False
    if not group.uses_consumer_protocol:
        return True
    before = subscribed_topics(old.protocols[group.protocol_name])
    return before is None or before == subscribed_topics(group.metadata_of(new))


def _taken_over(command: Join, group: Group, member: Member, leader_before: str | None) -> JoinGroupResponse:
    """A leader that came back must not assign again: a stable group would take no notice.

    Since version 9 it can be told to skip that (KIP-814). Before, it is told its own former id as the leader's, and
    takes itself for a follower.
    """
    if command.version < SKIP_ASSIGNMENT_VERSION:
        return join_response(group, member, leader=leader_before)
    return join_response(group, member, skip_assignment=group.leader_id == member.member_id)


# ---- a known member


def _rejoin(turn: Turn, command: Join, group: Group, member: Member) -> None:
    is_same = member.offers_same(_protocols(command))
    if group.state is State.COMPLETING_REBALANCE and is_same:
        # It may have missed the answer to its last JoinGroup.
        turn.reply(command.ticket, join_response(group, member))
    elif group.state is State.STABLE and is_same and group.leader_id != member.member_id:
        turn.reply(command.ticket, join_response(group, member))
    else:
        # A leader may rejoin for a reason that its metadata does not show, such as new partitions.
        _update_member(turn, command, group, member)


def _update_member(turn: Turn, command: Join, group: Group, member: Member) -> None:
    group.change_protocols(member, _protocols(command))
    member.rebalance_timeout_ms = _rebalance_timeout_ms(command)
    member.session_timeout_ms = command.request.session_timeout_ms
    superseded = group.park_join(member, ParkedJoin(command.ticket, command.version))
    if superseded is not None:
        error = join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id, superseded.version)
        turn.reply(superseded.ticket, error)
    rebalance_or_complete_join(turn, group)
