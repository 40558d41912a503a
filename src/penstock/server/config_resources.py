"""What can be configured: topics, brokers and groups; how the first two are changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol

from penstock.cluster.config_changes import Changes
from penstock.cluster.topic_names import check_topic_name
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.server.context import Context


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Resource(Protocol):
    resource_type: int
    resource_name: str


class Entry(Protocol):
    name: str
    value: str | None


def named_twice(resources: Sequence[Resource]) -> set[tuple[int, str]]:
    count = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    return {key for key, times in count.items() if times > 1}


def check_entries(entries: Sequence[Entry], *, deleted: Sequence[str] = ()) -> None:
    """Each name once, and a value for each that is not deleted."""
    if len({entry.name for entry in entries}) != len(entries):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if nulls := [entry.name for entry in entries if entry.value is None and entry.name not in deleted]:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")


def own_broker_id(context: Context, name: str) -> int:
    """A broker answers for its own settings only."""
    try:
        node_id = int(name)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}") from None
    if node_id != context.node_id:
        message = f"Unexpected broker id, expected {context.node_id}, but received {name}"
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    return node_id


async def alter(context: Context, resource: Resource, changes: Changes, *, replace: bool, validate_only: bool) -> None:
    name, administration = resource.resource_name, context.administration
    if resource.resource_type == ResourceType.TOPIC:
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        check_topic_name(name)
        await administration.alter_topic_config(name, changes, replace=replace, validate_only=validate_only)
    elif resource.resource_type == ResourceType.BROKER:
        node_id = own_broker_id(context, name) if name else None
        await administration.alter_broker_config(node_id, changes, replace=replace, validate_only=validate_only)
    elif resource.resource_type in set(ResourceType):
        kind = ResourceType(resource.resource_type).name
        raise ApiError(ErrorCode.INVALID_REQUEST, f"This broker does not support configs of type {kind}.")
    else:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
