"""Several writes as one transaction of ZooKeeper: what goes into it, and what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kazoo.exceptions import RolledBackError, RuntimeInconsistency

from penstock.cluster.coordination import (
    DATA_BYTES_MAX,
    Check,
    Create,
    DataTooLarge,
    Delete,
    NotEmpty,
    Operation,
    Result,
    Set,
    check_path,
)
from penstock.cluster.zookeeper_errors import Unexpected, translated

REQUEST_BYTES_MAX = 1024 * 1024 - 1  # jute.maxbuffer, beyond which ZooKeeper closes the connection
OPERATION_BYTES = 64  # at most, besides path and data
BYSTANDERS = (RolledBackError, RuntimeInconsistency)  # the answers of those before and behind the one that failed


def full_path(root: str, path: str) -> str:
    return root + path if path != "/" else root or "/"


def check(root: str, operations: Sequence[Operation]) -> None:
    """Refuses what ZooKeeper would answer by closing the connection, or should not be asked."""
    size = OPERATION_BYTES
    for operation in operations:
        check_path(operation.path)
        if isinstance(operation, Delete) and operation.path == "/":
            raise NotEmpty("/")  # it is ours even where ZooKeeper would let it go
        data_size = len(operation.data) if isinstance(operation, (Create, Set)) else 0
        size += OPERATION_BYTES + len(full_path(root, operation.path).encode()) + data_size
        if data_size > DATA_BYTES_MAX or size > REQUEST_BYTES_MAX:
            raise DataTooLarge(operation.path)


def fill(transaction: Any, root: str, operations: Sequence[Operation]) -> None:
    for operation in operations:
        path = full_path(root, operation.path)
        if isinstance(operation, Create):
            transaction.create(path, operation.data, None, operation.ephemeral, operation.sequence)
        elif isinstance(operation, Set):
            transaction.set_data(path, operation.data, operation.version)
        elif isinstance(operation, Delete):
            transaction.delete(path, operation.version)
        else:
            assert isinstance(operation, Check)
            transaction.check(path, operation.version)


def results(root: str, operations: Sequence[Operation], answers: Sequence[Any]) -> list[Result]:
    """Raises what the one that failed was answered with."""
    for operation, answer in zip(operations, answers):
        if isinstance(answer, Exception) and not isinstance(answer, BYSTANDERS):
            raise translated(answer, operation.path)
    if len(answers) != len(operations) or any(isinstance(answer, Exception) for answer in answers):
        raise Unexpected(f"{len(operations)} operations were answered with {answers!r:.200}")
    return [_result(root, operation, answer) for operation, answer in zip(operations, answers)]


def _result(root: str, operation: Operation, answer: Any) -> Result:
    if isinstance(operation, Create):
        return str(answer)[len(root) :]
    return int(answer.version) if isinstance(operation, Set) else None
