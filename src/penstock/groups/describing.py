"""DescribeGroups and ListGroups: what there is to see from outside."""

from __future__ import annotations

from penstock.groups.commands import DescribeGroups, ListGroups
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.group import Group
from penstock.groups.kinds import AnyGroup
from penstock.groups.states import State
from penstock.groups.turn import Turn
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from penstock.protocol.messages.list_groups import ListedGroup

GROUP_ID_NOT_FOUND_VERSION = 6
CLASSIC_TYPE = "classic"
CONSUMER_TYPE = "consumer"


def describe_groups(turn: Turn, command: DescribeGroups) -> None:
    turn.reply(command.ticket, [_describe(turn, group_id, command.version) for group_id in command.group_ids])


def _describe(turn: Turn, group_id: str, version: int) -> DescribedGroup:
    """Consumer groups have a request of their own (KIP-848)."""
    group = turn.groups.get(group_id)
    if isinstance(group, Group):
        return _described(group)
    return _not_found(group_id, "not found" if group is None else "is not a classic group", version)


def _described(group: Group) -> DescribedGroup:
    """What members want and were given is shown once it is settled."""
    stable = group.state is State.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=group.protocol_name or "" if stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=group.metadata_of(member) if stable else b"",
                member_assignment=member.assignment if stable else b"",
            )
            for member in group.members.values()
        ],
    )


def _not_found(group_id: str, why: str, version: int) -> DescribedGroup:
    """A group that does not exist was said to be Dead, and nothing more, until version 6 (KIP-1043)."""
    described = DescribedGroup(group_id=group_id, group_state=State.DEAD.value)
    if version >= GROUP_ID_NOT_FOUND_VERSION:
        described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        described.error_message = f"Group {group_id} {why}."
    return described


def list_groups(turn: Turn, command: ListGroups) -> None:
    """A filter that is empty lets everything through; one of unknown names, nothing (KIP-518, KIP-848)."""
    states = {name.strip().lower() for name in command.request.states_filter}
    types = {name.lower() for name in command.request.types_filter}
    listed = [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state.value,
            group_type=_type(group),
        )
        for group in turn.groups.values()
        if (not types or _type(group) in types) and (not states or group.state.value.lower() in states)
    ]
    turn.reply(command.ticket, listed)


def _type(group: AnyGroup) -> str:
    return CONSUMER_TYPE if isinstance(group, ConsumerGroup) else CLASSIC_TYPE
