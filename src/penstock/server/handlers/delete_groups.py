"""DeleteGroups: groups without members, and all they committed."""

from __future__ import annotations

from penstock.groups import commands
from penstock.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from penstock.server.context import Call, Context
from penstock.server.group_calls import ask_each


async def handle(context: Context, call: Call[DeleteGroupsRequest]) -> DeleteGroupsResponse:
    results = await ask_each(
        context,
        call.request.groups_names,
        commands.DeleteGroups,
        lambda group_id, code: DeletableGroupResult(group_id=group_id, error_code=code),
    )
    return DeleteGroupsResponse(results=results)
