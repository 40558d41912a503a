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


async def handle(context: Context, call: Call[DescribeGroupsRequest]) -> DescribeGroupsResponse:
    groups = await ask_each(
        context,
        call.request.groups,
        lambda ticket, owned: commands.DescribeGroups(ticket, owned, call.version),
        lambda group_id, code: DescribedGroup(group_id=group_id, error_code=code),
    )
    return DescribeGroupsResponse(groups=groups)
