"""Transactions as the sink's tasks and its driver use them: begun by a task, ended by the driver (KIP-939)."""

from __future__ import annotations

from typing import NamedTuple

from penstock.pipeline.brokers import TRANSACTION, Brokers
from penstock.pipeline.connection import Unreachable
from penstock.pipeline.problem import Fenced, PipelineError
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

TWO_PHASE_VERSION = 6  # of InitProducerId; brokers do not announce it, because clients at large would use it
PLAIN_VERSION = 4
END_VERSION = 5
OPEN_STATES = ["Ongoing"]
FENCED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


class Identity(NamedTuple):
    """Under which a producer writes."""

    producer_id: int
    epoch: int


class Prepared(NamedTuple):
    """A transaction that waits for its decision."""

    transactional_id: str
    identity: Identity


NOBODY = Identity(-1, -1)


def init_idempotent(brokers: Brokers) -> Identity:
    def attempt() -> Identity:
        connection = brokers.any()
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        answer = connection.ask(request, connection.newest(InitProducerIdRequest, PLAIN_VERSION))
        if answer.error_code:
            raise ApiError(ErrorCode(answer.error_code))
        return Identity(answer.producer_id, answer.producer_epoch)

    return brokers.until_answered(attempt, "a producer id")


def init_transactional(brokers: Brokers, transactional_id: str, timeout_ms: int) -> Identity:
    """Whoever had the name before is fenced, and what it left open is aborted."""
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    return _init(brokers, request, PLAIN_VERSION)[0]


def init_two_phase(brokers: Brokers, transactional_id: str, *, keep_prepared: bool) -> tuple[Identity, Identity]:
    """The identity to go on with, and that of a transaction that was kept (or nobody's)."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=0x7FFFFFFF,
        enable_2pc=True,
        keep_prepared_txn=keep_prepared,
    )
    return _init(brokers, request, TWO_PHASE_VERSION)


def _init(brokers: Brokers, request: InitProducerIdRequest, version: int) -> tuple[Identity, Identity]:
    name = request.transactional_id
    assert name is not None
    answer: InitProducerIdResponse = brokers.ask_coordinator(
        TRANSACTION, name, request, version, f"a producer id for {name}"
    )
    if answer.error_code:
        code = ErrorCode(answer.error_code)
        raise PipelineError(f"no producer id for {name}: {code.name}")
    return (
        Identity(answer.producer_id, answer.producer_epoch),
        Identity(answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch),
    )


def require_two_phase(brokers: Brokers, transactional_id: str) -> None:
    """Told before the job starts: a broker that has no such transactions closes the connection."""
    try:
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=0x7FFFFFFF,
            enable_2pc=True,
            keep_prepared_txn=True,
        )
        brokers.until_answered(lambda: brokers.coordinator(TRANSACTION, transactional_id), "a coordinator")
        code = ErrorCode(brokers.coordinator(TRANSACTION, transactional_id).ask(request, TWO_PHASE_VERSION).error_code)
    except Unreachable:
        brokers.forget()
        code = ErrorCode.UNSUPPORTED_VERSION
    if code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
        raise PipelineError(
            'delivery "exactly-once" needs a broker with two-phase transactions (Penstock, with '
            'transaction.two.phase.commit.enable=true). Use option delivery="at-least-once" here.'
        )


def end(brokers: Brokers, transactional_id: str, identity: Identity, *, commit: bool) -> None:
    """Raises Fenced if it is not this identity's to end any more."""
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=commit,
    )
    answer = brokers.ask_coordinator(
        TRANSACTION, transactional_id, request, END_VERSION, f"the end of transaction {transactional_id}"
    )
    code = ErrorCode(answer.error_code)
    if code in FENCED:
        raise Fenced(f"transaction {transactional_id} belongs to somebody else by now ({code.name})")
    if code is not ErrorCode.NONE:
        raise PipelineError(f"transaction {transactional_id} could not be ended: {code.name}")


def roll_forward(brokers: Brokers, decided: Prepared) -> None:
    """Commits a transaction that is to be committed, however often this is asked for and whoever asks."""
    try:
        end(brokers, decided.transactional_id, decided.identity, commit=True)
    except Fenced:
        # Somebody took over its name meanwhile: either it was ended before that, or it is still there, kept.
        identity, ongoing = init_two_phase(brokers, decided.transactional_id, keep_prepared=True)
        if ongoing == decided.identity:
            end(brokers, decided.transactional_id, identity, commit=True)


def abandon(brokers: Brokers, transactional_id: str) -> None:
    """Aborts whatever is open under the name, and fences whoever writes under it."""
    init_two_phase(brokers, transactional_id, keep_prepared=False)


def open_under(brokers: Brokers, prefix: str) -> list[str]:
    """The names of transactions that are open, of all that begin like this."""

    def attempt() -> list[str]:
        found = set()
        for connection in brokers.all():
            request = ListTransactionsRequest(state_filters=OPEN_STATES, producer_id_filters=[])
            answer: ListTransactionsResponse = connection.ask(request, 0)
            if answer.error_code:
                raise ApiError(ErrorCode(answer.error_code), "open transactions")
            found |= {each.transactional_id for each in answer.transaction_states}
        return sorted(name for name in found if name.startswith(prefix))

    return brokers.until_answered(attempt, "a list of transactions")
