"""What the commands for transactions share."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.cli.connection import Connection
from penstock.cli.problem import Problem
from penstock.cli.raw import Address, address_of, ask, check, coordinator_of
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NEVER_MS = 2**31 - 1  # the timeout of what two phases commit
KEEPING_VERSION = 6  # of InitProducerId (KIP-939)
BUMPING_VERSION = 5  # of EndTxn (KIP-890)
IDS_PER_REQUEST = 1_000


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


def described_at(coordinator: Address, transactional_ids: list[str]) -> dict[str, TransactionState]:
    """Those that a broker coordinates; what is gone meanwhile is left out."""
    found: dict[str, TransactionState] = {}
    for start in range(0, len(transactional_ids), IDS_PER_REQUEST):
        request = DescribeTransactionsRequest(transactional_ids=transactional_ids[start : start + IDS_PER_REQUEST])
        for state in ask(coordinator, request, 0, DescribeTransactionsResponse).transaction_states:
            if not state.error_code:
                found[state.transactional_id] = state
    return found


def end_prepared(
    connection: Connection, state: TransactionState, *, commit: bool, check_taken: Callable[[], None] | None = None
) -> None:
    """Takes the transaction over, which fences its producer, and ends it. If this fails, it may be tried again. It need
    not be allowed to begin one in two phases: the timeout that it names counts for nothing that is open.

    `check_taken` may refuse, when nobody else can end it any more: then it stays open."""
    name = state.transactional_id
    doing = f"can't {'commit' if commit else 'abort'} {name!r}"
    coordinator = coordinator_of(any_broker(connection), name)
    taking = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1, keep_prepared_txn=True)
    kept = ask(coordinator, taking, KEEPING_VERSION, InitProducerIdResponse)
    check(kept.error_code, doing)
    seen = (state.producer_id, state.producer_epoch)
    if (kept.ongoing_txn_producer_id, kept.ongoing_txn_producer_epoch) != seen:
        raise Problem(
            f"{doing}: that transaction is over. Its producer was fenced, and nothing ended.",
            f"'penstock txn describe {name}' shows what became of it.",
        )
    if check_taken is not None:
        check_taken()
    ending = EndTxnRequest(
        transactional_id=name, producer_id=kept.producer_id, producer_epoch=kept.producer_epoch, committed=commit
    )
    check(ask(coordinator, ending, BUMPING_VERSION, EndTxnResponse).error_code, doing)


def any_broker(connection: Connection) -> tuple[str, int]:
    return address_of(next(iter(connection.cluster.brokers.values())))


def age_s(state: TransactionState) -> float | None:
    """How long the transaction has been open; None if none is."""
    started_ms = state.transaction_start_time_ms
    return max(time.time() - started_ms / 1000, 0.0) if started_ms >= 0 else None


def is_two_phase(state: TransactionState) -> bool:
    return state.transaction_timeout_ms == NEVER_MS


def spoken_timeout(state: TransactionState) -> str:
    return "never" if is_two_phase(state) else spoken(state.transaction_timeout_ms / 1000)


def spoken(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
