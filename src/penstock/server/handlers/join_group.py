"""JoinGroup: enters a group, and waits until its members are known."""

from __future__ import annotations

from penstock.groups import commands
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.server.context import Call, Context
from penstock.server.deferred import Deferred
from penstock.server.group_calls import ask


def handle(context: Context, call: Call[JoinGroupRequest]) -> Deferred[JoinGroupResponse]:
    request = call.request
    return ask(
        context,
        call,
        request.group_id,
        lambda ticket: commands.Join(ticket, request, call.version, call.client_id or "", f"/{call.client_host}"),
    )
