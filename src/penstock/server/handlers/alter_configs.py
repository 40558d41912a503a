"""AlterConfigs: the given settings, and no others. What is not named goes back to its default."""

from __future__ import annotations

from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from penstock.server.config_resources import alter, check_entries, named_twice
from penstock.server.context import Call, Context


async def handle(context: Context, call: Call[AlterConfigsRequest]) -> AlterConfigsResponse:
    request = call.request
    twice = named_twice(request.resources)
    response = AlterConfigsResponse()
    for resource in request.resources:
        answer = AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        response.responses.append(answer)
        try:
            if (resource.resource_type, resource.resource_name) in twice:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            await _replace(context, resource, request.validate_only)
        except ApiError as error:
            answer.error_code, answer.error_message = error.code, error.message
    return response


async def _replace(context: Context, resource: AlterConfigsResource, validate_only: bool) -> None:
    check_entries(resource.configs)
    changes = {config.name: config.value for config in resource.configs}
    await alter(context, resource, changes, replace=True, validate_only=validate_only)
