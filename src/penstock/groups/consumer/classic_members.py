"""Members of a consumer group that speak the classic protocol, as they do while a group migrates (KIP-848).

JoinGroup is their heartbeat with something to say, and is answered at once; SyncGroup gives them what they hold;
Heartbeat tells them to join again when there is more to learn. Their generation is their member epoch. Nobody leads.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.groups.commands import Heartbeat, Join, Sync
from penstock.groups.consumer.advancing import advance, reborn
from penstock.groups.consumer.fencing import fence_members
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.member import ClassicSide, ConsumerMember
from penstock.groups.consumer.migrating import can_downgrade, classic_assignment, downgrade, partitions_of
from penstock.groups.consumer.states import MemberState
from penstock.groups.consumer.targeting import give_up_target
from penstock.groups.responses import join_error, sync_error
from penstock.groups.subscription import CONSUMER_PROTOCOL_TYPE, read_subscription
from penstock.groups.turn import Turn
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.join_group import JoinGroupResponse
from penstock.protocol.messages.leave_group import MemberIdentity
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

MEMBER_ID_REQUIRED_VERSION = 4


# ---- JoinGroup


def join_as_classic(turn: Turn, command: Join, group: ConsumerGroup) -> None:
    request = command.request
    limit = turn.config.consumer_max_size
    if len(group.members) >= limit and request.member_id not in group.members:
        _refuse(turn, command, ErrorCode.GROUP_MAX_SIZE_REACHED)
    elif not group.supports(request.protocol_type, (protocol.name for protocol in request.protocols)):
        _refuse(turn, command, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    elif request.member_id or request.group_instance_id is not None or command.version < MEMBER_ID_REQUIRED_VERSION:
        _join(turn, command, group)
    else:
        member_id = turn.new_member_id(command.client_id)
        turn.reply(command.ticket, join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id, command.version))


def _refuse(turn: Turn, command: Join, error: ErrorCode) -> None:
    turn.reply(command.ticket, join_error(error, command.request.member_id, command.version))


def _join(turn: Turn, command: Join, group: ConsumerGroup) -> None:
    request = command.request
    member_id = request.member_id or turn.new_member_id(request.group_instance_id or command.client_id)
    known = None if request.group_instance_id is None else group.static_member(request.group_instance_id)
    is_known_static = request.group_instance_id is not None and bool(request.member_id)
    if is_known_static and (error := group.member_error(member_id, request.group_instance_id)):
        _refuse(turn, command, error)
        return
    replaces = known if known is not None and known.member_id != member_id else None
    before = reborn(replaces, member_id) if replaces is not None else group.members.get(member_id)
    _advance(turn, command, group, before or ConsumerMember(member_id), replaces)


def _advance(
    turn: Turn, command: Join, group: ConsumerGroup, before: ConsumerMember, replaces: ConsumerMember | None
) -> None:
    request = command.request
    subscription = read_subscription(request.protocols[0].metadata)
    if subscription is None:
        _refuse(turn, command, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return
    classic = ClassicSide(request.session_timeout_ms, tuple((each.name, each.metadata) for each in request.protocols))
    rebalance_timeout_ms = request.rebalance_timeout_ms if command.version >= 1 else request.session_timeout_ms
    updated = replace(
        before,
        instance_id=request.group_instance_id if request.group_instance_id is not None else before.instance_id,
        rack_id=subscription.rack_id if subscription.rack_id is not None else before.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        rebalance_timeout_ms=max(rebalance_timeout_ms, 0),
        topic_names=tuple(sorted(set(subscription.topics))),
        topic_regex=None,
        server_assignor=None,
        classic=classic,
    )
    member = before if updated == before else updated
    owned = partitions_of(turn, subscription.owned_partitions)
    draft = advance(turn, group, before, member, owned=owned, replaces=replaces)
    assert draft.member is not None
    gone = frozenset() if replaces is None else frozenset({replaces.member_id})
    if replaces is not None and can_downgrade(turn, group, gone) and downgrade(turn, group, gone, draft.member):
        pass
    elif draft.records and not turn.append_consumer(group, draft.records):
        give_up_target(turn, group)
        group.look_again()
        _refuse(turn, command, ErrorCode.UNKNOWN_SERVER_ERROR)
        return
    else:
        _restart_clocks(turn, group, draft.member)
    turn.reply(command.ticket, _joined(draft.member, classic))


def _restart_clocks(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> None:
    """It has joined, and has a rebalance's time to collect what it was given."""
    watch = group.watch(member.member_id)
    turn.timers.cancel(watch.join)
    turn.timers.start(watch.sync, turn.now_ms + member.rebalance_timeout_ms)
    turn.start_consumer_session(group, member)


def _joined(member: ConsumerMember, classic: ClassicSide) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=member.member_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=classic.protocols[0][0],
        leader="",
        member_id=member.member_id,
    )


# ---- SyncGroup


def sync_as_classic(turn: Turn, command: Sync, group: ConsumerGroup) -> None:
    request = command.request
    error = _member_error(group, request.member_id, request.group_instance_id, request.generation_id)
    error = error or _protocol_error(group.members[request.member_id], request)
    if error:
        turn.reply(command.ticket, sync_error(error))
        return
    member = group.members[request.member_id]
    assert member.classic is not None
    if group.group_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        # Another rebalance has begun since it joined. Who has to let go of something does that first.
        _expect_join(turn, group, member)
        turn.reply(command.ticket, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
        return
    turn.timers.cancel(group.watch(member.member_id).sync)
    turn.start_consumer_session(group, member)
    turn.reply(
        command.ticket,
        SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=classic_assignment(turn, member.assigned, member.classic),
        ),
    )


def _protocol_error(member: ConsumerMember, request: SyncGroupRequest) -> ErrorCode:
    assert member.classic is not None
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name not in (None, member.classic.protocols[0][0]):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def _member_error(group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
    if error := group.member_error(member_id, instance_id):
        return error
    member = group.members[member_id]
    if member.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if generation_id == member.member_epoch else ErrorCode.ILLEGAL_GENERATION


# ---- Heartbeat


def heartbeat_as_classic(turn: Turn, command: Heartbeat, group: ConsumerGroup) -> ErrorCode:
    request = command.request
    error = _member_error(group, request.member_id, request.group_instance_id, request.generation_id)
    if error:
        return error
    member = group.members[request.member_id]
    turn.start_consumer_session(group, member)
    if not _should_join(group, member):
        return ErrorCode.NONE
    _expect_join(turn, group, member)
    return ErrorCode.REBALANCE_IN_PROGRESS


def _should_join(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether there is something to learn: another epoch, what to let go of, or that others have let go."""
    if member.member_epoch < group.group_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member)


def _expect_join(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> None:
    timer = group.watch(member.member_id).join
    if timer.deadline_ms is None:
        turn.timers.start(timer, turn.now_ms + member.rebalance_timeout_ms)


# ---- LeaveGroup


def leave_consumer_group(turn: Turn, group: ConsumerGroup, who: list[MemberIdentity]) -> list[ErrorCode]:
    """An error for each. Members of either protocol may be named, as an administrator does."""
    errors: list[ErrorCode] = []
    leaving: dict[str, ConsumerMember] = {}
    for identity in who:
        member_id = identity.member_id
        if not member_id and identity.group_instance_id is not None:
            member_id = group.static_members.get(identity.group_instance_id, "")
        error = group.member_error(member_id, identity.group_instance_id)
        if not error:
            leaving[member_id] = group.members[member_id]
        errors.append(error)
    if fence_members(turn, group, list(leaving.values())):
        return errors
    return [error or ErrorCode.UNKNOWN_SERVER_ERROR for error in errors]
