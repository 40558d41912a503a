"""Heartbeat: says that a member lives, and learns of a rebalance."""

from __future__ import annotations

from penstock.groups import commands
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.server.context import Call, Context
from penstock.server.deferred import Deferred
from penstock.server.group_calls import ask


def handle(context: Context, call: Call[HeartbeatRequest]) -> Deferred[HeartbeatResponse]:
    request = call.request
    return ask(context, call, request.group_id, lambda ticket: commands.Heartbeat(ticket, request))
