"""Members of groups, as welcome or not as a test likes."""

from __future__ import annotations

from typing import Any

from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.hostile.clients import RawClient

VERSION = 3  # the last in which a member need not come twice
SESSION_MS = 30_000


def join(client: RawClient, group: str, metadata: bytes = b"", **options: Any) -> JoinGroupResponse | None:
    options = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": SESSION_MS, **options}
    protocols = [JoinGroupRequestProtocol(name="range", metadata=metadata)]
    request = JoinGroupRequest(group_id=group, protocol_type="consumer", protocols=protocols, **options)
    response: JoinGroupResponse | None = client.ask(request, VERSION)
    return response


def sync(client: RawClient, group: str, joined: JoinGroupResponse, assignment: bytes) -> Any:
    given = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)]
    member = {"generation_id": joined.generation_id, "member_id": joined.member_id}
    return client.ask(SyncGroupRequest(group_id=group, assignments=given, **member), VERSION)
