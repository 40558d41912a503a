"""Answers to JoinGroup and SyncGroup, as each version wants them."""

from __future__ import annotations

from penstock.groups.group import Group
from penstock.groups.member import Member
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from penstock.protocol.messages.sync_group import SyncGroupResponse

NULLABLE_PROTOCOL_NAME_VERSION = 7


def join_response(
    group: Group, member: Member, *, leader: str | None = None, skip_assignment: bool = False
) -> JoinGroupResponse:
    """The current generation; its leader alone learns the members. `leader` names another than the true one."""
    told_leader = leader if leader is not None else group.leader_id
    assert told_leader is not None
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=told_leader,
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=_members(group) if told_leader == member.member_id else [],
    )


def _members(group: Group) -> list[JoinGroupResponseMember]:
    return [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            metadata=group.metadata_of(member),
        )
        for member in group.members.values()
    ]


def join_error(error: ErrorCode, member_id: str, version: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=error,
        protocol_name=None if version >= NULLABLE_PROTOCOL_NAME_VERSION else "",
        member_id=member_id,
    )


def sync_response(group: Group, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment
    )


def sync_error(error: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error)
