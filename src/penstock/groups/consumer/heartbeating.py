"""ConsumerGroupHeartbeat: the one request of the protocol.

member epoch  0    somebody joins, or begins again
             > 0   a member lives, says what has changed with it, and learns what has changed for it
              -1   it leaves
              -2   a static member leaves, and will be back

A heartbeat that changes nothing writes nothing, and costs the same in any group.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.groups.commands import ConsumerHeartbeat
from penstock.groups.consumer.advancing import advance, reborn
from penstock.groups.consumer.draft import Draft
from penstock.groups.consumer.fencing import leave_group, leave_static
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.member import ConsumerMember
from penstock.groups.consumer.migrating import Joined, group_to_join
from penstock.groups.consumer.partitions import Partitions, from_list, holds_all
from penstock.groups.consumer.states import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from penstock.groups.consumer.targeting import give_up_target
from penstock.groups.consumer.validating import UNCHANGED_MS, validate_heartbeat
from penstock.groups.turn import Turn
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)


def consumer_heartbeat(turn: Turn, command: ConsumerHeartbeat) -> None:
    try:
        response = _heartbeat(turn, command)
    except ApiError as error:
        response = ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
    turn.reply(command.ticket, response)


def _heartbeat(turn: Turn, command: ConsumerHeartbeat) -> ConsumerGroupHeartbeatResponse:
    request = command.request
    validate_heartbeat(request, command.version, turn.config)
    if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
        return _leave(turn, request)
    if request.member_epoch == JOIN_EPOCH:
        return _join(turn, command)
    group = turn.groups.get(request.group_id)
    if not isinstance(group, ConsumerGroup):
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found.")
    _refuse_if_full(turn, group, request.member_id)
    member = _known_member(group, request)
    owned = None if request.topic_partitions is None else from_list(request.topic_partitions)
    _refuse_epoch(member, request.member_epoch, owned)
    return _advance(turn, command, Joined(group), member, None, owned)


def _known_member(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
    if error := group.member_error(request.member_id, request.instance_id):
        raise _not_a_member(group, request, error)
    return group.members[request.member_id]


def _not_a_member(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, error: ErrorCode) -> ApiError:
    if error is ErrorCode.FENCED_INSTANCE_ID:
        return ApiError(error, f"Instance id {request.instance_id} belongs to another member now.")
    if request.instance_id is not None:
        return ApiError(error, f"Instance id {request.instance_id} is unknown.")
    return ApiError(error, f"Member {request.member_id} is not a member of group {group.group_id}.")


def _refuse_if_full(turn: Turn, group: ConsumerGroup, member_id: str) -> None:
    limit = turn.config.consumer_max_size
    if len(group.members) >= limit and member_id not in group.members:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED, f"The consumer group has reached its maximum capacity of {limit} members."
        )


def _refuse_epoch(member: ConsumerMember, epoch: int, owned: Partitions | None) -> None:
    """The previous epoch is good if the answer with the new one may have been lost: the member has gained nothing."""
    if epoch == member.member_epoch:
        return
    may_have_missed_it = epoch == member.previous_member_epoch and owned is not None
    if epoch > member.member_epoch or not may_have_missed_it or not holds_all(member.assigned, owned or {}):
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has the epoch {epoch}, and {member.member_epoch} is known of it. "
            "The member must abandon all its partitions and rejoin.",
        )


# ---- joining


def _join(turn: Turn, command: ConsumerHeartbeat) -> ConsumerGroupHeartbeatResponse:
    request = command.request
    joined = group_to_join(turn, request.group_id)
    group = joined.group
    _refuse_if_full(turn, group, request.member_id)
    member_id = request.member_id or turn.new_member_id(command.client_id)
    replaces = None if request.instance_id is None else group.static_member(request.instance_id)
    if replaces is None:
        member = group.members.get(member_id) or ConsumerMember(member_id)
        return _advance(turn, command, joined, member, None, {})
    # Who speaks the classic protocol never says that it will be back.
    if replaces.classic is None and replaces.member_epoch != LEAVE_STATIC_EPOCH and replaces.member_id != member_id:
        raise ApiError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {request.instance_id} cannot join the group because the "
            f"instance id is owned by {replaces.member_id} member.",
        )
    if replaces.member_id == member_id:
        return _advance(turn, command, joined, replaces, None, {})
    return _advance(turn, command, joined, reborn(replaces, member_id), replaces, {})


def _advance(
    turn: Turn,
    command: ConsumerHeartbeat,
    joined: Joined,
    before: ConsumerMember,
    replaces: ConsumerMember | None,
    owned: Partitions | None,
) -> ConsumerGroupHeartbeatResponse:
    request, group = command.request, joined.group
    draft = advance(turn, group, before, _updated(before, command), owned=owned, replaces=replaces)
    member = draft.member
    assert member is not None
    records = [*joined.records, *draft.records]
    if records and not turn.append_consumer(group, records):
        give_up_target(turn, group)
        group.look_again()
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "The change of the group is too large to be stored.")
    joined.take_over(turn)
    turn.start_consumer_session(group, member)
    response = ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        heartbeat_interval_ms=_interval_ms(turn, draft, member),
    )
    if _is_full(request) or before.assigned != member.assigned:
        response.assignment = _assignment(member.assigned)
    return response


def _interval_ms(turn: Turn, draft: Draft, member: ConsumerMember) -> int:
    """Members learn only by their heartbeats what to let go of, and that others have. So while a group settles they are
    asked for them more often; with the usual interval, each step would take as long as that."""
    config, group = turn.config, draft.group
    usual_ms = config.consumer_heartbeat_ms(turn.group_settings(group.group_id))
    is_settled = (
        draft.group_epoch == group.group_epoch == draft.assignment_epoch
        and member.is_reconciled_to(draft.assignment_epoch)
        and (group.changed_ms is None or turn.now_ms - group.changed_ms >= config.consumer_settling_ms)
    )
    return usual_ms if is_settled else min(usual_ms, config.consumer_settling_heartbeat_ms)


def _updated(member: ConsumerMember, command: ConsumerHeartbeat) -> ConsumerMember:
    """What a request leaves out is as it was."""
    request = command.request
    names = member.topic_names
    if request.subscribed_topic_names is not None:
        names = tuple(sorted(set(request.subscribed_topic_names)))
    updated = replace(
        member,
        instance_id=request.instance_id if request.instance_id is not None else member.instance_id,
        rack_id=request.rack_id if request.rack_id is not None else member.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        rebalance_timeout_ms=(
            request.rebalance_timeout_ms
            if request.rebalance_timeout_ms != UNCHANGED_MS
            else member.rebalance_timeout_ms
        ),
        topic_names=names,
        topic_regex=(
            request.subscribed_topic_regex if request.subscribed_topic_regex is not None else member.topic_regex
        ),
        server_assignor=request.server_assignor if request.server_assignor is not None else member.server_assignor,
        classic=None,
    )
    return member if updated == member else updated


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """A member that begins, or that is not sure what it missed, says everything and is told everything."""
    if request.member_epoch == JOIN_EPOCH:
        return True
    says_what_it_wants = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != UNCHANGED_MS and says_what_it_wants and request.topic_partitions is not None


def _assignment(partitions: Partitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(each)) for topic_id, each in partitions.items()
        ]
    )


# ---- leaving


def _leave(turn: Turn, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    group = turn.groups.get(request.group_id)
    if not isinstance(group, ConsumerGroup):
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
    member = _known_member(group, request)
    if request.instance_id is not None and request.member_epoch == LEAVE_STATIC_EPOCH:
        leave_static(turn, group, member)
    else:
        leave_group(turn, group, [member])
    return ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)
