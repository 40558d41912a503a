"""DescribeGroups: state, members and assignments of classic groups."""

from __future__ import annotations

from penstock.groups import commands
from penstock.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from penstock.server.context import Call, Context
from penstock.server.group_calls import ask_each
from penstock.server.group_protocols import show_operations


async def handle(context: Context, call: Call[DescribeGroupsRequest]) -> DescribeGroupsResponse:
    groups: list[DescribedGroup] = await ask_each(
        context,
        call.request.groups,
        lambda ticket, owned: commands.DescribeGroups(ticket, owned, call.version),
        lambda group_id, code: DescribedGroup(group_id=group_id, error_code=code),
    )
    if call.request.include_authorized_operations:
        show_operations(groups)
    return DescribeGroupsResponse(groups=groups)
