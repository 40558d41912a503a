"""FindCoordinator: which broker leads the partition that a group's or a transactional id's state lives in."""

from __future__ import annotations

from penstock.cluster.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from penstock.server.cluster_view import nodes_on
from penstock.server.context import Call, Context

_TOPICS = {0: OFFSETS_TOPIC, 1: TRANSACTIONS_TOPIC}  # by key type: a group, a transactional id


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
    topic = _TOPICS.get(call.request.key_type)
    if topic is None:
        problem = f"Nobody coordinates keys of type {call.request.key_type}."
        return Coordinator(key=key, node_id=-1, port=-1, error_code=ErrorCode.INVALID_REQUEST, error_message=problem)
    await context.controller.ensure_topic(topic)
    for node in nodes_on(context.image, call.listener):
        if node.node_id == context.node_id:
            return Coordinator(key=key, node_id=node.node_id, host=node.host, port=node.port)
    return Coordinator(key=key, node_id=-1, port=-1, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
