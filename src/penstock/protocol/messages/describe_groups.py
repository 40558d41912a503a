"""DescribeGroups (15): the state and the members of groups."""

from __future__ import annotations

from penstock.protocol.schema import BOOL, BYTES, INT16, INT32, STRING, Message, Struct, array, field


class DescribeGroupsRequest(Message, api_key=15, versions="0-6", flexible="5+", elements_max=20_000):
    groups: list[str] = field(array(STRING))
    include_authorized_operations: bool = field(BOOL, "3+")


class DescribedGroupMember(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "4+", nullable="4+", default=None)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    member_metadata: bytes = field(BYTES)
    member_assignment: bytes = field(BYTES)


class DescribedGroup(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, "6+", nullable="6+", default=None)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    protocol_type: str = field(STRING)
    protocol_data: str = field(STRING)
    members: list[DescribedGroupMember] = field(array(DescribedGroupMember))
    authorized_operations: int = field(INT32, "3+", default=-0x80000000)


class DescribeGroupsResponse(Message, api_key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: int = field(INT32, "1+")
    groups: list[DescribedGroup] = field(array(DescribedGroup))
