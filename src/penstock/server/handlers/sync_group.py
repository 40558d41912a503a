"""SyncGroup: brings the leader's assignment in, and everyone's own share out."""

from __future__ import annotations

from penstock.groups import commands
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.server.context import Call, Context
from penstock.server.deferred import Deferred
from penstock.server.group_calls import ask


def handle(context: Context, call: Call[SyncGroupRequest]) -> Deferred[SyncGroupResponse] | SyncGroupResponse:
    request = call.request
    if call.version >= 5 and (request.protocol_type is None or request.protocol_name is None):  # KIP-559
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return ask(context, call, request.group_id, lambda ticket: commands.Sync(ticket, request))
