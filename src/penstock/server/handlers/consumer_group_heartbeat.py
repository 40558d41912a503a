"""ConsumerGroupHeartbeat: a member comes, lives or goes, and learns what it is to read (KIP-848)."""

from __future__ import annotations

from penstock.groups import commands
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.server.context import Call, Context
from penstock.server.deferred import Deferred
from penstock.server.group_calls import ask
from penstock.server.group_protocols import check_consumer_protocol


def handle(context: Context, call: Call[ConsumerGroupHeartbeatRequest]) -> Deferred[ConsumerGroupHeartbeatResponse]:
    check_consumer_protocol(context)
    request, version = call.request, call.version
    client_id, client_host = call.client_id or "", f"/{call.client_host}"
    return ask(
        context,
        call,
        request.group_id,
        lambda ticket: commands.ConsumerHeartbeat(ticket, request, version, client_id, client_host),
    )
