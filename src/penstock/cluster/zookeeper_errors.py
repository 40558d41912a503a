"""ZooKeeper's errors, as kazoo raises them, in the words of the coordination interface."""

from __future__ import annotations

from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RequestTimeoutError,
    SessionExpiredError,
    SessionMovedError,
    ThrottledOpError,
)

from penstock.cluster.coordination import (
    BadVersion,
    CoordinationError,
    Disconnected,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
)

ERRORS: dict[type[Exception], type[CoordinationError]] = {
    NoNodeError: NoNode,
    NodeExistsError: NodeExists,
    BadVersionError: BadVersion,
    NotEmptyError: NotEmpty,
    NoChildrenForEphemeralsError: NoChildrenForEphemerals,
}
UNREACHABLE = (
    ConnectionLoss,
    SessionExpiredError,
    SessionMovedError,
    OperationTimeoutError,
    RequestTimeoutError,
    ThrottledOpError,
)


class Unexpected(CoordinationError):
    """ZooKeeper, or kazoo, failed in a way that no rule of ours allows for."""


def translated(error: Exception, path: str) -> CoordinationError:
    for kind, ours in ERRORS.items():
        if isinstance(error, kind):
            return ours(path)
    if isinstance(error, UNREACHABLE):
        return Disconnected(f"{path}: {error!r}")
    return Unexpected(f"{path}: {error!r}")
