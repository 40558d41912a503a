"""What the commands for transactions share."""

from __future__ import annotations

import time

from penstock.cli.connection import Connection
from penstock.cli.problem import Problem
from penstock.cli.raw import address_of, ask, coordinator_of
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)


def described(connection: Connection, transactional_id: str) -> TransactionState:
    """Raises a Problem if nobody knows the id."""
    coordinator = coordinator_of(any_broker(connection), transactional_id)
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    (state,) = ask(coordinator, request, 0, DescribeTransactionsResponse).transaction_states
    if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise Problem(
            f"there is no transactional id {transactional_id!r}.", "'penstock txn list' shows which there are."
        )
    if state.error_code:
        raise Problem(f"can't describe {transactional_id!r} ({ErrorCode(state.error_code).name}).")
    return state


def any_broker(connection: Connection) -> tuple[str, int]:
    return address_of(next(iter(connection.cluster.brokers.values())))


def age_s(state: TransactionState) -> float | None:
    """How long the transaction has been open; None if none is."""
    started_ms = state.transaction_start_time_ms
    return max(time.time() - started_ms / 1000, 0.0) if started_ms >= 0 else None


def spoken(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
