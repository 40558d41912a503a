"""IncrementalAlterConfigs: single settings set, removed, or as lists added to and taken from (KIP-339)."""

from __future__ import annotations

from enum import IntEnum

from penstock.cluster.config_changes import Append, Change, Subtract
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.server.config_resources import alter, check_entries, named_twice
from penstock.server.context import Call, Context


class ConfigOperation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def handle(context: Context, call: Call[IncrementalAlterConfigsRequest]) -> IncrementalAlterConfigsResponse:
    request = call.request
    twice = named_twice(request.resources)
    response = IncrementalAlterConfigsResponse()
    for resource in request.resources:
        answer = AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        response.responses.append(answer)
        try:
            if (resource.resource_type, resource.resource_name) in twice:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            await _change(context, resource, request.validate_only)
        except ApiError as error:
            answer.error_code, answer.error_message = error.code, error.message
    return response


async def _change(context: Context, resource: AlterConfigsResource, validate_only: bool) -> None:
    deleted = [config.name for config in resource.configs if config.config_operation == ConfigOperation.DELETE]
    check_entries(resource.configs, deleted=deleted)
    changes = {config.name: _change_of(config) for config in resource.configs}
    await alter(context, resource, changes, replace=False, validate_only=validate_only)


def _change_of(config: AlterableConfig) -> Change:
    if config.config_operation == ConfigOperation.DELETE:
        return None
    assert config.value is not None, "only a setting that is removed comes without a value"
    if config.config_operation == ConfigOperation.SET:
        return config.value
    if config.config_operation == ConfigOperation.APPEND:
        return Append(config.value)
    if config.config_operation == ConfigOperation.SUBTRACT:
        return Subtract(config.value)
    raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {config.config_operation}")
