"""ConsumerGroupDescribe: what there is to see of a consumer group from outside."""

from __future__ import annotations

from penstock.groups.commands import DescribeConsumerGroups
from penstock.groups.consumer.draft import Draft
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.member import ConsumerMember
from penstock.groups.consumer.partitions import Partitions
from penstock.groups.turn import Turn
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


def describe_consumer_groups(turn: Turn, command: DescribeConsumerGroups) -> None:
    turn.reply(command.ticket, [_describe(turn, group_id) for group_id in command.group_ids])


def _describe(turn: Turn, group_id: str) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
    group = turn.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return _described(turn, group)
    why = "not found" if group is None else "is not a consumer group"
    return DescribedGroup(
        group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=f"Group {group_id} {why}."
    )


def _described(turn: Turn, group: ConsumerGroup) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=Draft(group, frozenset(), None).assignor(turn.config.consumer_assignors[0]),
        members=[_member(turn, group, member) for member in group.members.values()],
    )


def _member(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        subscribed_topic_regex=member.topic_regex or None,
        assignment=_assignment(turn, member.assigned),
        target_assignment=_assignment(turn, group.target_of(member.member_id)),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(turn: Turn, partitions: Partitions) -> Assignment:
    """Topics that were deleted have no name any more, and are left out."""
    named = ((turn.topics.by_id(topic_id), topic_id, each) for topic_id, each in partitions.items())
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=shape.name, partitions=sorted(each))
            for shape, topic_id, each in named
            if shape is not None
        ]
    )
