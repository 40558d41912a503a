"""IncrementalAlterConfigs: single settings set, removed, or as lists added to and taken from (KIP-339)."""

from __future__ import annotations

from enum import IntEnum

from penstock.cluster.config_changes import Append, Change, Changes, Subtract
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.server.config_alterations import alter_each
from penstock.server.config_resources import check_entries
from penstock.server.context import Call, Context


class ConfigOperation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def handle(context: Context, call: Call[IncrementalAlterConfigsRequest]) -> IncrementalAlterConfigsResponse:
    request = call.request
    answers = await alter_each(
        context,
        request.resources,
        _changes,
        AlterConfigsResourceResponse,
        replace=False,
        validate_only=request.validate_only,
    )
    return IncrementalAlterConfigsResponse(responses=answers)


def _changes(resource: AlterConfigsResource) -> Changes:
    deleted = [config.name for config in resource.configs if config.config_operation == ConfigOperation.DELETE]
    check_entries(resource.configs, deleted=deleted)
    return {config.name: _change_of(config) for config in resource.configs}


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
