"""SyncGroup: brings the leader's assignment in, and everyone's own share out."""

from __future__ import annotations

from penstock.groups import commands
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.server.context import Call, Context
from penstock.server.deferred import Deferred
from penstock.server.group_calls import ask


def handle(context: Context, call: Call[SyncGroupRequest]) -> Deferred[SyncGroupResponse]:
    request = call.request
    return ask(context, call, request.group_id, lambda ticket: commands.Sync(ticket, request))
