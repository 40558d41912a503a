"""EndTxn, and what follows: markers, then the next transaction.

The answer is sent when the decision is committed; markers follow. With transactions of version 2 (KIP-890) the decision
also bumps the producer's epoch, and the markers carry the new one: whatever of the old transaction is still on the
network, a batch or another EndTxn, is of an epoch that has passed.
"""

from __future__ import annotations

from penstock.protocol.errors import ErrorCode
from penstock.transactions.commands import NEEDS_ID, End, MarkersWritten
from penstock.transactions.states import State
from penstock.transactions.transaction import BUMPING_VERSION, EPOCH_MAX, NO_ID, Transaction, is_exhausted
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
    state = transaction.state
    if command.producer_id != transaction.producer_id:
        turn.refuse(command.ticket, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    elif command.producer_epoch != transaction.producer_epoch:
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
    """An epoch ends one transaction: the one before means that the call is repeated, any other is a zombie's."""
    state = transaction.state
    is_current = (command.producer_id, command.producer_epoch) == (transaction.producer_id, transaction.producer_epoch)
    is_repeated = (state.is_prepared or state.is_complete) and _was_bumped(transaction, command)
    if command.producer_id not in (transaction.producer_id, transaction.previous_producer_id):
        turn.refuse(command.ticket, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    elif not is_repeated and (not is_current or state.is_prepared):
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
    if command.producer_id == transaction.producer_id and command.producer_epoch + 1 == transaction.producer_epoch:
        return True
    return (
        command.producer_id == transaction.previous_producer_id
        and is_exhausted(command.producer_epoch)
        and transaction.producer_epoch == 0
    )


def _decide(turn: Turn, command: End, transaction: Transaction) -> None:
    epoch, last_epoch, next_id = transaction.producer_epoch, transaction.last_epoch, NO_ID
    if command.version >= BUMPING_VERSION:
        if is_exhausted(epoch):
            if command.spare_id is None:
                turn.reply(command.ticket, NEEDS_ID)
                return
            next_id = command.spare_id
        epoch, last_epoch = min(epoch + 1, EPOCH_MAX), epoch
    is_open = transaction.state is State.ONGOING
    decided = transaction.becoming(
        State.PREPARE_COMMIT if command.commit else State.PREPARE_ABORT, turn.now_ms, producer_epoch=epoch,
        last_epoch=last_epoch, next_producer_id=next_id, version=command.version,
        partitions=transaction.partitions if is_open else frozenset(),
        started_ms=transaction.started_ms if is_open else turn.now_ms,
    )  # fmt: skip
    if not turn.store(decided):
        turn.refuse(command.ticket, ErrorCode.CONCURRENT_TRANSACTIONS)
        return
    turn.reply(command.ticket, (next_id, 0) if next_id != NO_ID else (decided.producer_id, epoch))
    turn.write_markers(decided)


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
        changes = {
            "producer_id": transaction.next_producer_id, "producer_epoch": 0, "next_producer_id": NO_ID,
            "previous_producer_id": transaction.producer_id,
        }  # fmt: skip
    complete = State.COMPLETE_COMMIT if transaction.state.is_commit else State.COMPLETE_ABORT
    stored = turn.store(transaction.becoming(complete, turn.now_ms, partitions=frozenset(), **changes))
    assert stored, "a record without partitions fits"
    turn.outcome.again += [waiting for _, waiting in turn.waiting.pop(command.transactional_id, [])]
