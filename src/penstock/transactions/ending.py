"""EndTxn, and what follows: markers, then the next transaction.

The answer is sent when the decision is committed; markers follow. With transactions of version 2 (KIP-890) the decision
also bumps the producer's epoch, and the markers carry the new one: whatever of the old transaction is still on the
network, a batch or another EndTxn, is of an epoch that has passed.

Who has kept a transaction that another began (KIP-939) ends it with an id and epoch of its own, which the decision
bumps as well: a repetition of it must not end what comes next.
"""

from __future__ import annotations

from penstock.protocol.errors import ErrorCode
from penstock.transactions.commands import NEEDS_ID, End, MarkersWritten
from penstock.transactions.states import State
from penstock.transactions.transaction import (
    BUMPING_VERSION,
    EPOCH_MAX,
    NO_EPOCH,
    NO_ID,
    Identity,
    Transaction,
    is_exhausted,
)
from penstock.transactions.turn import Turn


def end(turn: Turn, command: End) -> None:
    transaction = turn.transactions.get(command.transactional_id)
    if transaction is None:
        turn.refuse(command.ticket, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    elif transaction.was_promised(command.producer_id, command.producer_epoch):
        turn.wait(command.transactional_id, command)
    elif command.version >= BUMPING_VERSION:
        _end_bumping(turn, command, transaction)
    else:
        _end_classic(turn, command, transaction)


def _end_classic(turn: Turn, command: End, transaction: Transaction) -> None:
    """A call that is repeated is told what came of the first one, as long as no other transaction has begun."""
    state, owner = transaction.state, transaction.owner
    if command.producer_id not in (transaction.producer_id, owner[0]):
        turn.refuse(command.ticket, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    elif (command.producer_id, command.producer_epoch) != owner:
        turn.refuse(command.ticket, ErrorCode.PRODUCER_FENCED)
    elif state is State.ONGOING:
        _decide(turn, command, transaction)
    elif state is State.EMPTY or state.is_commit != command.commit:
        turn.refuse(command.ticket, ErrorCode.INVALID_TXN_STATE)
    elif state.is_prepared:
        turn.wait(command.transactional_id, command)
    else:
        _tell_again(turn, command, transaction)


def _end_bumping(turn: Turn, command: End, transaction: Transaction) -> None:
    """An epoch ends one transaction: the one before means that the call is repeated, any other is a zombie's. The one
    that was just handed out is its owner's, who waits for the markers: Kafka would call it fenced until they are
    written."""
    state, owner = transaction.state, transaction.owner
    is_current = (command.producer_id, command.producer_epoch) == owner
    is_repeated = (state.is_prepared or state.is_complete) and _was_bumped(transaction, command)
    if command.producer_id not in (transaction.producer_id, transaction.previous_producer_id, owner[0]):
        turn.refuse(command.ticket, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    elif not is_repeated and not is_current:
        turn.refuse(command.ticket, ErrorCode.PRODUCER_FENCED)
    elif state is State.ONGOING:
        _decide(turn, command, transaction)
    elif is_repeated and state.is_commit != command.commit:
        turn.refuse(command.ticket, ErrorCode.INVALID_TXN_STATE)
    elif state.is_prepared:
        turn.wait(command.transactional_id, command)
    elif is_repeated:
        _tell_again(turn, command, transaction)
    elif command.commit:
        turn.refuse(command.ticket, ErrorCode.INVALID_TXN_STATE)
    else:
        _decide(turn, command, transaction)  # nothing was begun, but batches may be on their way


def _tell_again(turn: Turn, command: End, transaction: Transaction) -> None:
    turn.reply(command.ticket, (transaction.producer_id, transaction.producer_epoch))
    turn.prove()


def _was_bumped(transaction: Transaction, command: End) -> bool:
    """Whether the call came with the epoch that its own decision has replaced."""
    if transaction.version < BUMPING_VERSION:
        return False
    owner_id, epoch = transaction.owner
    if command.producer_id == owner_id and command.producer_epoch + 1 == epoch:
        return True
    is_previous = command.producer_id == transaction.previous_producer_id
    return is_previous and is_exhausted(command.producer_epoch) and epoch == 0


def _decide(turn: Turn, command: End, transaction: Transaction) -> None:
    bumps, (following_id, epoch) = command.version >= BUMPING_VERSION, transaction.owner
    rotates = bumps and is_exhausted(epoch)
    if rotates:
        if command.spare_id is None:
            turn.reply(command.ticket, NEEDS_ID)
            return
        following_id = command.spare_id
    following = (following_id, 0 if rotates else epoch + 1 if bumps else epoch)
    is_open = transaction.state is State.ONGOING
    decided = transaction.becoming(
        State.PREPARE_COMMIT if command.commit else State.PREPARE_ABORT, turn.now_ms, version=command.version,
        last_epoch=epoch if bumps else transaction.last_epoch,
        partitions=transaction.partitions if is_open else frozenset(),
        started_ms=transaction.started_ms if is_open else turn.now_ms,
        **_identities(transaction, following, bumps=bumps, rotates=rotates),
    )  # fmt: skip
    if not turn.store(decided):
        turn.refuse(command.ticket, ErrorCode.CONCURRENT_TRANSACTIONS)
        return
    turn.reply(command.ticket, following)
    turn.write_markers(decided)


def _identities(transaction: Transaction, following: Identity, *, bumps: bool, rotates: bool) -> dict[str, int]:
    """The markers go out under the id that has written, and under its next epoch if that has passed: because the
    decision bumps it, or because it was fenced when another kept the transaction (KIP-939)."""
    next_id, next_epoch = following
    bumped_epoch = min(transaction.producer_epoch + 1, EPOCH_MAX)
    if not transaction.is_kept:
        return {
            "producer_epoch": bumped_epoch if bumps else transaction.producer_epoch,
            "next_producer_id": next_id if rotates else NO_ID,
        }
    owner_id, _ = transaction.owner
    return {
        "producer_epoch": bumped_epoch, "next_producer_id": next_id, "next_producer_epoch": next_epoch,
        "previous_producer_id": owner_id if rotates else transaction.previous_producer_id,
    }  # fmt: skip


def markers_written(turn: Turn, command: MarkersWritten) -> None:
    """The transaction is over, and whoever has waited for that may go on. What a machine before this one had set off
    does not count: its markers are written again, and until they are, no other transaction may begin."""
    turn.reply(command.ticket, None)
    transaction = turn.transactions.get(command.transactional_id)
    if (
        transaction is None
        or command.attempt != turn.attempt
        or not transaction.state.is_prepared
        or (transaction.producer_id, transaction.producer_epoch) != (command.producer_id, command.producer_epoch)
    ):
        return
    changes: dict[str, int] = {}
    if transaction.next_producer_id != NO_ID:
        producer_id, epoch = transaction.following
        previous_id = transaction.previous_producer_id if transaction.is_kept else transaction.producer_id
        changes = {
            "producer_id": producer_id, "producer_epoch": epoch, "previous_producer_id": previous_id,
            "next_producer_id": NO_ID, "next_producer_epoch": NO_EPOCH,
        }  # fmt: skip
    complete = State.COMPLETE_COMMIT if transaction.state.is_commit else State.COMPLETE_ABORT
    stored = turn.store(transaction.becoming(complete, turn.now_ms, partitions=frozenset(), **changes))
    assert stored, "a record without partitions fits"
    turn.outcome.again += [waiting for _, waiting in turn.waiting.pop(command.transactional_id, [])]
