"""ListConfigResources: what can be configured (KIP-1142). Version 0 asked for client metrics only; there are none."""

from __future__ import annotations

from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from penstock.server.config_resources import ResourceType
from penstock.server.context import Call, Context


def handle(context: Context, call: Call[ListConfigResourcesRequest]) -> ListConfigResourcesResponse:
    wanted = set(call.request.resource_types)
    if not wanted:
        wanted = set(ResourceType) if call.version >= 1 else {ResourceType.CLIENT_METRICS}
    if wanted - set(ResourceType):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in sorted(wanted)
            for name in _names(context, kind)
        ]
    )


def _names(context: Context, kind: int) -> list[str]:
    if kind == ResourceType.TOPIC:
        return sorted(context.image.topics)
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(node_id) for node_id in sorted(context.image.brokers)]
    if kind == ResourceType.GROUP:
        return sorted(context.image.group_configs)
    return []
