"""What AlterConfigs and IncrementalAlterConfigs share: resource by resource, each with an outcome of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock.cluster.config_changes import Changes
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.server.config_resources import Resource, ResourceType, alter, named_twice
from penstock.server.context import Context

GROUP_NAME_MAX = 1000

R = TypeVar("R", bound=Resource)
A = TypeVar("A")


async def alter_each(
    context: Context,
    resources: Sequence[R],
    changes_of: Callable[[R], Changes],
    answer: Callable[..., A],
    *,
    replace: bool,
    validate_only: bool,
) -> list[A]:
    """`changes_of` says what a resource asks for, or raises what is wrong with it; `answer` makes its response."""
    twice = named_twice(resources)
    answers = []
    for resource in resources:
        kind, name = resource.resource_type, resource.resource_name
        code, message = ErrorCode.NONE, None
        try:
            if (kind, name) in twice:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            changes = changes_of(resource)
            if kind == ResourceType.GROUP:
                await _alter_group(context, name, changes, replace, validate_only)
            else:
                await alter(context, resource, changes, replace=replace, validate_only=validate_only)
        except ApiError as error:
            code, message = error.code, error.message
        answers.append(answer(error_code=code, error_message=message, resource_type=kind, resource_name=name))
    return answers


async def _alter_group(context: Context, name: str, changes: Changes, replace: bool, validate_only: bool) -> None:
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    if len(name) > GROUP_NAME_MAX:
        message = f"A group with settings of its own has a name of {GROUP_NAME_MAX} characters at most."
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    await context.administration.alter_group_config(name, changes, replace=replace, validate_only=validate_only)
