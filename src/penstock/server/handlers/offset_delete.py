"""OffsetDelete: forgets committed offsets of topics that the group does not read."""

from __future__ import annotations

from penstock.groups import commands
from penstock.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from penstock.server.context import Call, Context
from penstock.server.deferred import Deferred
from penstock.server.group_calls import ask


def handle(context: Context, call: Call[OffsetDeleteRequest]) -> Deferred[OffsetDeleteResponse]:
    request = call.request
    return ask(context, call, request.group_id, lambda ticket: commands.DeleteOffsets(ticket, request))
