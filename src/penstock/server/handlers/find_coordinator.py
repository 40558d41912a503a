"""FindCoordinator: which broker leads the partition that a group's or a transactional id's state lives in."""

from __future__ import annotations

from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from penstock.server.cluster_view import nodes_on
from penstock.server.context import Call, Context
from penstock.server.group_calls import coordinator_of
from penstock.server.transaction_calls import ensure_coordinator

GROUP, TRANSACTION = 0, 1  # types of keys


async def handle(context: Context, call: Call[FindCoordinatorRequest]) -> FindCoordinatorResponse:
    request = call.request
    keys = request.coordinator_keys if call.version >= 4 else [request.key]
    coordinators = [await _find(context, call, key) for key in keys]
    if call.version >= 4:
        return FindCoordinatorResponse(coordinators=coordinators)
    found = coordinators[0]
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _find(context: Context, call: Call[FindCoordinatorRequest], key: str) -> Coordinator:
    runtime = {GROUP: context.groups, TRANSACTION: context.transactions}.get(call.request.key_type)
    if runtime is None:
        return _none(key, ErrorCode.INVALID_REQUEST, f"Nobody coordinates keys of type {call.request.key_type}.")
    try:
        await ensure_coordinator(context, runtime.topic)
        leader = coordinator_of(context, runtime, key)
        for node in nodes_on(context.image, call.listener):
            if node.node_id == leader:
                return Coordinator(key=key, node_id=node.node_id, host=node.host, port=node.port)
    except ApiError as error:
        return _none(key, ErrorCode(error.code), error.message)
    return _none(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _none(key: str, code: ErrorCode, problem: str | None = None) -> Coordinator:
    return Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=problem)
