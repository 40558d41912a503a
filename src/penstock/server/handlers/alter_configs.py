"""AlterConfigs: the given settings, and no others. What is not named goes back to its default."""

from __future__ import annotations

from penstock.cluster.config_changes import Changes
from penstock.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from penstock.server.config_alterations import alter_each
from penstock.server.config_resources import check_entries
from penstock.server.context import Call, Context


async def handle(context: Context, call: Call[AlterConfigsRequest]) -> AlterConfigsResponse:
    request = call.request
    answers = await alter_each(
        context,
        request.resources,
        _changes,
        AlterConfigsResourceResponse,
        replace=True,
        validate_only=request.validate_only,
    )
    return AlterConfigsResponse(responses=answers)


def _changes(resource: AlterConfigsResource) -> Changes:
    check_entries(resource.configs)
    return {config.name: config.value for config in resource.configs}
