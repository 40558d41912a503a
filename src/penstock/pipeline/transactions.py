"""Transactions as the sink's tasks and its driver use them: begun by a task, ended by the driver (KIP-939).

Whoever takes a transaction over owns it: nobody who owned it before can end it any more. How one has ended is told by
its coordinator, as long as its name is not used again, and after that by the log that it wrote to.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from penstock.pipeline.brokers import LATEST, TRANSACTION, Brokers, TopicPartition
from penstock.pipeline.connection import Unreachable
from penstock.pipeline.fetching import OffsetRange, RangeFetcher
from penstock.pipeline.problem import Expired, Fenced, HeldBack, PipelineError
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

TWO_PHASE_VERSION = 6  # of InitProducerId; brokers do not announce it, because clients at large would use it
PLAIN_VERSION = 4
END_VERSION = 5
NEVER_MS = 0x7FFFFFFF
MARKERS_S = 10.0  # for what ends a transaction to be in each of its partitions
PAUSE_S = 0.05
TAKEN_OVER_MAX = 20  # times in a row, by others that have the same decision to carry out
PROBE = "penstock-sink"  # a name under which nothing is ever begun
EMPTY, ONGOING = "Empty", "Ongoing"
COMMITTED = frozenset({"PrepareCommit", "CompleteCommit"})
ABORTED = frozenset({"PrepareAbort", "CompleteAbort"})
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
    """A transaction that waits for its decision, and where one of its batches begins."""

    transactional_id: str
    identity: Identity
    place: TopicPartition
    offset: int

    @property
    def key(self) -> tuple[str, Identity]:
        """A name may be used again, an identity never under the same name."""
        return self.transactional_id, self.identity


class Kept(NamedTuple):
    """A transaction that another began, and that we own."""

    transactional_id: str
    owner: Identity
    ongoing: Identity  # of who has written; nobody's if nothing is open

    @property
    def key(self) -> tuple[str, Identity]:
        return self.transactional_id, self.ongoing


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
    answer = _init(brokers, request, PLAIN_VERSION)
    return Identity(answer.producer_id, answer.producer_epoch)


def take_over(brokers: Brokers, transactional_id: str) -> Kept:
    """Whoever had the name before is fenced; what it left open stays open, and may be ended by us alone. If nothing is
    open, a transaction without a time-out may be begun."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=NEVER_MS, enable_2pc=True, keep_prepared_txn=True
    )
    answer = _init(brokers, request, TWO_PHASE_VERSION)
    return Kept(
        transactional_id,
        Identity(answer.producer_id, answer.producer_epoch),
        Identity(answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch),
    )


def _init(brokers: Brokers, request: InitProducerIdRequest, version: int) -> InitProducerIdResponse:
    name = request.transactional_id
    assert name is not None
    answer: InitProducerIdResponse = brokers.ask_coordinator(
        TRANSACTION, name, request, version, f"a producer id for {name}"
    )
    if answer.error_code:
        code = ErrorCode(answer.error_code)
        raise PipelineError(f"no producer id for {name}: {code.name}")
    return answer


def require_two_phase(brokers: Brokers) -> None:
    """Told before the job starts, by a request that changes nothing: it names a producer and wants to take over, and
    is refused for that where it is understood. A broker that has no such transactions closes the connection."""
    request = InitProducerIdRequest(
        transactional_id=PROBE,
        transaction_timeout_ms=NEVER_MS,
        producer_id=0,
        producer_epoch=0,
        enable_2pc=True,
        keep_prepared_txn=True,
    )
    code = ErrorCode.UNSUPPORTED_VERSION
    for _ in range(2):  # one that closes for another reason is there the second time, or not at all
        connection = brokers.until_answered(lambda: brokers.coordinator(TRANSACTION, PROBE), "a coordinator")
        try:
            code = ErrorCode(connection.ask(request, TWO_PHASE_VERSION).error_code)
            break
        except Unreachable:
            brokers.forget()
    if code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
        raise PipelineError(
            'delivery "exactly-once" needs a broker with two-phase transactions (Penstock, with '
            'transaction.two.phase.commit.enable=true). Use option delivery="at-least-once" here.'
        )


def end(brokers: Brokers, transactional_id: str, identity: Identity, *, commit: bool) -> Identity:
    """The identity to go on with. Raises Fenced if it is not this identity's to end any more, and Expired if it was
    ended otherwise meanwhile."""
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=commit,
    )
    answer: EndTxnResponse = brokers.ask_coordinator(
        TRANSACTION, transactional_id, request, END_VERSION, f"the end of transaction {transactional_id}"
    )
    code = ErrorCode(answer.error_code)
    if code in FENCED:
        raise Fenced(f"transaction {transactional_id} belongs to somebody else by now ({code.name})")
    if code is ErrorCode.INVALID_TXN_STATE:
        raise Expired(
            f"transaction {transactional_id} is not open any more: its time was up, or somebody has ended it "
            f"({code.name})"
        )
    if code is not ErrorCode.NONE:
        raise PipelineError(f"transaction {transactional_id} could not be ended: {code.name}")
    return Identity(answer.producer_id, answer.producer_epoch)


def roll_forward(
    brokers: Brokers, decided: Prepared, owner: Identity | None = None, *, wait_s: float | None = None
) -> bool:
    """Commits what is to be committed, however often this is asked for and whoever asks; whether it is committed.

    Raises HeldBack where that can't be told, after it has waited for what may pass."""
    name = decided.transactional_id
    wait_s = MARKERS_S if wait_s is None else wait_s
    for _ in range(TAKEN_OVER_MAX):
        try:
            if owner is not None:
                end(brokers, name, owner, commit=True)
                return True
        except Fenced:
            owner = None
        state = described(brokers, name)
        if state is not None and state.transaction_state in COMMITTED:
            return True
        if state is not None and state.transaction_state in ABORTED:
            # It may have been something else under the same name.
            return _is_seen(brokers, decided, wait_s, if_gone=False)
        if state is None or not _may_wait(state, decided):
            return _is_seen(brokers, decided, wait_s)
        kept = take_over(brokers, name)
        if kept.ongoing != decided.identity:
            return _is_seen(brokers, decided, wait_s)
        owner = kept.owner
    raise PipelineError(f"transaction {name} is taken over by others again and again")


def _may_wait(state: TransactionState, decided: Prepared) -> bool:
    """Who takes over the transaction of another, under the same name, would stop its task."""
    is_same = (state.producer_id, state.producer_epoch) == decided.identity
    return state.transaction_state == EMPTY or (state.transaction_state == ONGOING and is_same)


def has_expired(brokers: Brokers, transactional_id: str, identity: Identity) -> bool:
    """Whether what this identity had open was aborted, and nobody has the name since."""
    state = described(brokers, transactional_id)
    return (
        state is not None
        and state.transaction_state in ABORTED
        and (state.producer_id, state.producer_epoch) == (identity.producer_id, identity.epoch + 1)
    )


def described(brokers: Brokers, transactional_id: str) -> TransactionState | None:
    """None if the name is not known (any more: what has ended is forgotten after some days)."""

    def attempt() -> TransactionState | None:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        answer: DescribeTransactionsResponse = brokers.coordinator(TRANSACTION, transactional_id).ask(request, 0)
        (found,) = answer.transaction_states
        code = ErrorCode(found.error_code)
        if code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return None
        if code is not ErrorCode.NONE:
            raise ApiError(code, f"the state of {transactional_id}")
        return found

    return brokers.until_answered(attempt, f"the state of transaction {transactional_id}")


def _is_seen(brokers: Brokers, ended: Prepared, wait_s: float, *, if_gone: bool = True) -> bool:
    """By those who read what is committed. What is in the log no longer is missed by none of them."""

    def is_there(committed: bool) -> bool:
        batch = OffsetRange(ended.place, ended.offset, ended.offset + 1)
        return any(RangeFetcher(brokers, batch, committed=committed, fail_on_data_loss=False).batches())

    if not is_there(committed=False):
        return if_gone
    _expect_readable(brokers, ended, wait_s)
    return is_there(committed=True)


def _expect_readable(brokers: Brokers, ended: Prepared, wait_s: float) -> None:
    """What can't be read yet is not aborted. Markers that are under way come within moments, others do not."""
    deadline = time.monotonic() + wait_s
    while (reached := brokers.offsets({ended.place: LATEST}).get(ended.place, ended.offset + 1)) <= ended.offset:
        if time.monotonic() > deadline:
            raise HeldBack(
                f"whether transaction {ended.transactional_id} is committed can't be told yet: in {ended.place} "
                f"another one is open from offset {reached} on, before it ('penstock txn list' shows which are open). "
                "Once that one is ended, start the query again"
            )
        time.sleep(PAUSE_S)


def names_under(brokers: Brokers, prefix: str) -> dict[str, str]:
    """The names that begin like this and under which something is written, or may be, each with its state."""

    def attempt() -> dict[str, str]:
        found = {}
        for connection in brokers.all():
            request = ListTransactionsRequest(state_filters=[EMPTY, ONGOING], producer_id_filters=[])
            answer: ListTransactionsResponse = connection.ask(request, 0)
            if answer.error_code:
                raise ApiError(ErrorCode(answer.error_code), "open transactions")
            for each in answer.transaction_states:
                if each.transactional_id.startswith(prefix):
                    found[each.transactional_id] = each.transaction_state
        return dict(sorted(found.items()))

    return brokers.until_answered(attempt, "a list of transactions")
