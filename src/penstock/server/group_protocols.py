"""Which protocols groups may use here, and what a client may do with a group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from penstock.protocol.errors import ApiError, ErrorCode
from penstock.server.authorized_operations import Operation
from penstock.server.context import Context

CONSUMER = "consumer"
ON_GROUP = sum(
    1 << operation
    for operation in (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    )
)


class Described(Protocol):
    error_code: int
    authorized_operations: int


def check_consumer_protocol(context: Context) -> None:
    if CONSUMER not in context.settings.get("group.coordinator.rebalance.protocols"):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "The consumer group protocol is disabled.")


def show_operations(groups: Iterable[Described]) -> None:
    """Of groups that were found: there is nothing that one could do with the others."""
    for group in groups:
        if group.error_code == ErrorCode.NONE:
            group.authorized_operations = ON_GROUP
