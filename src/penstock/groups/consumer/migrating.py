"""From one kind of group to the other (KIP-848), online, with the members in it.

A classic group of consumers becomes a consumer group when somebody joins it with the new protocol, and a classic group
again when the last one that speaks the new protocol has gone. An empty group becomes whatever the first to join speaks.
Group ids, offsets and epochs go on: the generation becomes the group epoch, and the group epoch the generation.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from penstock.coordinator.machine import LogRecord
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.member import ClassicSide, ConsumerMember
from penstock.groups.consumer.partitions import Partitions, from_list, together
from penstock.groups.consumer.records import (
    assignment_epoch_record,
    current_record,
    group_epoch_record,
    member_record,
    member_tombstones,
    pattern_record,
    target_record,
)
from penstock.groups.group import Group
from penstock.groups.member import Member
from penstock.groups.rebalancing import answer_syncs, drop_pending
from penstock.groups.records import group_record
from penstock.groups.responses import join_error
from penstock.groups.states import State
from penstock.groups.subscription import CONSUMER_PROTOCOL_TYPE, read_assignment, read_subscription, write_assignment
from penstock.groups.timers import Kind, Timer
from penstock.groups.turn import Turn
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from penstock.protocol.messages.group_records import TopicPartitions


@dataclass(slots=True)
class Joined:
    """The consumer group that somebody joins, the records that make it one, and the classic group that it was."""

    group: ConsumerGroup
    records: list[LogRecord] = field(default_factory=list)
    was: Group | None = None

    def take_over(self, turn: Turn) -> None:
        """The records are on their way: the group is a consumer group from here on."""
        if self.was is not None:
            _retire_classic(turn, self.was)
            for member in self.group.members.values():
                turn.start_consumer_session(self.group, member)
        turn.groups[self.group.group_id] = self.group


def group_to_join(turn: Turn, group_id: str) -> Joined:
    group = turn.groups.get(group_id)
    if group is None:
        return Joined(ConsumerGroup(group_id))
    if isinstance(group, ConsumerGroup):
        return Joined(group)
    if group.is_empty:
        return Joined(ConsumerGroup(group_id), [group_record(group_id, None)], group)
    return _upgraded(turn, group)


# ---- from classic to consumer


def _upgraded(turn: Turn, classic: Group) -> Joined:
    if not turn.config.consumer_migration_policy.allows_upgrade:
        raise _can_not_upgrade(classic, "online upgrade is disabled.")
    if not classic.uses_consumer_protocol:
        raise _can_not_upgrade(classic, "the group does not use the consumer embedded protocol.")
    if len(classic.members) > turn.config.consumer_max_size:
        raise _can_not_upgrade(classic, "the group size exceeds the consumer group maximum size.")
    group = ConsumerGroup(classic.group_id)
    group.group_epoch = group.assignment_epoch = classic.generation_id
    read = [(member, *_read(classic, member)) for member in classic.members.values()]
    for member, subscription, assignment in read:
        group.put(_upgraded_member(classic, member, subscription))
        group.targets[member.member_id] = _claim(turn, group, member.member_id, assignment.assigned_partitions)
    for member, subscription, _ in read:
        # What it had when it last joined, and may not have let go of yet, though the assignment left it out.
        _claim(turn, group, member.member_id, subscription.owned_partitions)
    return Joined(group, [group_record(classic.group_id, None), *_records_of(group)], classic)


def _can_not_upgrade(classic: Group, why: str) -> ApiError:
    return ApiError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {why}",
    )


def _read(classic: Group, member: Member) -> tuple[ConsumerProtocolSubscription, ConsumerProtocolAssignment]:
    metadata = member.protocols.get(classic.protocol_name or "", next(iter(member.protocols.values())))
    subscription = read_subscription(metadata)
    assignment = read_assignment(member.assignment)
    if subscription is None or assignment is None:
        raise _can_not_upgrade(classic, "the embedded consumer protocol is malformed.")
    return subscription, assignment


def _upgraded_member(classic: Group, member: Member, subscription: ConsumerProtocolSubscription) -> ConsumerMember:
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topic_names=tuple(sorted(set(subscription.topics))),
        classic=ClassicSide(member.session_timeout_ms, tuple(member.protocols.items())),
        member_epoch=classic.generation_id,
        previous_member_epoch=classic.generation_id,
    )


def _claim(turn: Turn, group: ConsumerGroup, member_id: str, named: list[TopicPartition]) -> Partitions:
    """What of these is nobody's yet is the member's. A leader may have given one to two: that must not go on."""
    free = {
        topic_id: unowned
        for topic_id, partitions in partitions_of(turn, named).items()
        if (unowned := frozenset(p for p in partitions if group.is_free(topic_id, p, member_id)))
    }
    member = group.members[member_id]
    group.put(replace(member, assigned=together(member.assigned, free)))
    return free


def partitions_of(turn: Turn, named: list[TopicPartition]) -> Partitions:
    """By topic id, of the topics that exist."""
    known = ((turn.topics.shape(each.topic), each.partitions) for each in named)
    return from_list(
        TopicPartitions(topic_id=shape.topic_id, partitions=partitions)
        for shape, partitions in known
        if shape is not None
    )


def _records_of(group: ConsumerGroup) -> list[LogRecord]:
    group_id, members = group.group_id, group.members.values()
    return [
        *(member_record(group_id, member) for member in members),
        group_epoch_record(group_id, group.group_epoch),
        *(target_record(group_id, member.member_id, group.target_of(member.member_id)) for member in members),
        assignment_epoch_record(group_id, group.assignment_epoch),
        *(current_record(group_id, member) for member in members),
    ]


def _retire_classic(turn: Turn, classic: Group) -> None:
    """Who waits for a rebalance is told that there is another one: the consumer group's."""
    for member in classic.members.values():
        parked = classic.park_join(member, None)
        if parked is not None:
            error = join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id, parked.version)
            turn.reply(parked.ticket, error)
    answer_syncs(turn, classic, ErrorCode.REBALANCE_IN_PROGRESS)
    for member in classic.members.values():
        turn.timers.cancel(member.session)
    for member_id in list(classic.pending):
        drop_pending(turn, classic, member_id)
    turn.timers.cancel(classic.join_timer)
    turn.timers.cancel(classic.sync_timer)


# ---- from consumer to classic


def empty_group_records(group: ConsumerGroup) -> list[LogRecord]:
    """What must be said for the group to be no consumer group any more."""
    group_id = group.group_id
    records = [record for member_id in group.members for record in member_tombstones(group_id, member_id)]
    records += [pattern_record(group_id, regex, None) for regex in group.resolved]
    return [*records, assignment_epoch_record(group_id, None), group_epoch_record(group_id, None)]


def can_downgrade(turn: Turn, group: ConsumerGroup, gone: frozenset[str]) -> bool:
    """Whether all who are left speak the classic protocol, and somebody is, and it is allowed."""
    leaving_classic = sum(group.members[member_id].classic is not None for member_id in gone)
    left = len(group.members) - len(gone)
    has_lost_the_last = leaving_classic < len(gone) and group.classic_count - leaving_classic == left
    is_allowed = turn.config.consumer_migration_policy.allows_downgrade and left <= turn.config.group_max_size
    return has_lost_the_last and left > 0 and is_allowed


def downgrade(turn: Turn, group: ConsumerGroup, gone: frozenset[str], joining: ConsumerMember | None = None) -> bool:
    """False if that is too much for one append. Each keeps what it holds until the rebalance that follows.

    None need follow if a static member only came back with the other protocol, and everyone had all of its target.
    Otherwise the record has no leader, which tells a new coordinator to see to the rebalance.
    """
    members = [member for member_id, member in group.members.items() if member_id not in gone]
    members += [joining] if joining is not None else []
    classic = _downgraded(group, members)
    assignments = {member.member_id: _classic_assignment(turn, member) for member in members}
    value = classic.stable_record(assignments, turn.now_ms)
    is_settled = joining is not None and all(_is_settled(group, member) for member in members)
    if not is_settled:
        value.leader = None
    if not turn.append(*empty_group_records(group), group_record(group.group_id, value)):
        return False
    for watch in group.watches.values():
        for timer in watch.timers:
            turn.timers.cancel(timer)
    turn.timers.cancel(group.assignment_timer)
    classic.has_unapplied_record = True
    turn.groups[group.group_id] = classic
    for member in classic.members.values():
        turn.start_session(member)
    if not is_settled:
        turn.timers.start(Timer(Kind.DOWNGRADED, group.group_id), turn.now_ms)
    return True


def _downgraded(group: ConsumerGroup, members: list[ConsumerMember]) -> Group:
    classic = Group(group.group_id)
    for member in members:
        assert member.classic is not None
        classic.add(
            Member(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.classic.session_timeout_ms,
                protocols=dict(member.classic.protocols),
                session=Timer(Kind.SESSION, group.group_id, member.member_id),
            ),
            CONSUMER_PROTOCOL_TYPE,
        )
    classic.state = State.STABLE
    classic.generation_id = group.group_epoch
    classic.protocol_name = classic.select_protocol()
    return classic


def _is_settled(group: ConsumerGroup, member: ConsumerMember) -> bool:
    return member.is_reconciled_to(group.group_epoch)


def _classic_assignment(turn: Turn, member: ConsumerMember) -> bytes:
    assert member.classic is not None
    return classic_assignment(turn, member.assigned, member.classic)


def classic_assignment(turn: Turn, partitions: Partitions, classic: ClassicSide) -> bytes:
    """As the member itself would have read it from its group's leader."""
    named = []
    for topic_id, each in partitions.items():
        shape = turn.topics.by_id(topic_id)
        if shape is not None:
            named.append(TopicPartition(topic=shape.name, partitions=sorted(each)))
    return write_assignment(named, like=classic.protocols[0][1])
