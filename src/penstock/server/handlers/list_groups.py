"""ListGroups: every group that this broker coordinates."""

from __future__ import annotations

from penstock.groups import commands
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.server.context import Call, Context


async def handle(context: Context, call: Call[ListGroupsRequest]) -> ListGroupsResponse:
    topic = context.image.topics.get(context.groups.topic)
    if topic is None:
        return ListGroupsResponse()
    found = await context.groups.ask_all(
        len(topic.partitions), lambda ticket: commands.ListGroups(ticket, call.request)
    )
    return ListGroupsResponse(groups=[group for groups in found for group in groups])
