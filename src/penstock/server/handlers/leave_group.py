"""LeaveGroup: members go, at once and not by time-out."""

from __future__ import annotations

from penstock.groups import commands
from penstock.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from penstock.server.context import Call, Context
from penstock.server.deferred import Deferred
from penstock.server.group_calls import ask


def handle(context: Context, call: Call[LeaveGroupRequest]) -> Deferred[LeaveGroupResponse]:
    request = call.request
    return ask(context, call, request.group_id, lambda ticket: commands.Leave(ticket, request, call.version))
