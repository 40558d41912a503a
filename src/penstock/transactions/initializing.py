"""InitProducerId: whoever calls last owns the transactional id, and everyone before is fenced.

What is open then is aborted, unless it is to be kept (KIP-939): then the caller owns it, to say how it ends.
"""

from __future__ import annotations

from penstock.protocol.errors import ErrorCode
from penstock.transactions.commands import NEEDS_ID, Initialize, Kept
from penstock.transactions.states import State
from penstock.transactions.transaction import NEVER_MS, NO_EPOCH, NO_ID, Transaction, is_exhausted
from penstock.transactions.turn import Turn


def initialize(turn: Turn, command: Initialize) -> None:
    if error := _error(turn, command):
        turn.refuse(command.ticket, error)
        return
    transaction = turn.transactions.get(command.transactional_id)
    if transaction is None:
        _begin(turn, command, Transaction(command.transactional_id, NO_ID), rotate=True)
    elif transaction.was_promised(command.producer_id, command.producer_epoch):
        turn.wait(command.transactional_id, command)
    elif not _is_owner(transaction, command):
        turn.refuse(command.ticket, ErrorCode.PRODUCER_FENCED)
    elif transaction.state.is_prepared:
        turn.wait(command.transactional_id, command)
    elif transaction.state is State.ONGOING and command.keeps:
        _keep(turn, command, transaction)
    elif transaction.state is State.ONGOING:
        if turn.fence(transaction, by_its_owner=command.producer_id != NO_ID):
            turn.wait(command.transactional_id, command)
        else:
            turn.refuse(command.ticket, ErrorCode.CONCURRENT_TRANSACTIONS)
    else:
        _begin(turn, command, transaction, rotate=is_exhausted(transaction.producer_epoch))


def _error(turn: Turn, command: Initialize) -> ErrorCode:
    if command.two_phase and not turn.config.two_phase_commit:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if command.keeps and command.producer_id != NO_ID:
        return ErrorCode.INVALID_REQUEST  # who goes on need not take over
    is_timed = not command.two_phase
    if is_timed and not 0 < command.timeout_ms <= turn.config.max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def _timeout_ms(command: Initialize) -> int:
    return NEVER_MS if command.two_phase else min(command.timeout_ms, NEVER_MS - 1)


def _is_owner(transaction: Transaction, command: Initialize) -> bool:
    """A producer that names itself recovers from an error (KIP-360). It must be the one that was here last, or have
    lost the answer by which it became what it is: a zombie may not so much as end the transaction of another."""
    if command.producer_id == NO_ID or transaction.producer_epoch == NO_EPOCH:
        return True
    named = (command.producer_id, command.producer_epoch)
    return named == transaction.owner or _lost_the_answer(transaction, command)


def _lost_the_answer(transaction: Transaction, command: Initialize) -> bool:
    """Whether it names the id and epoch that it had before the present ones, and nobody else has come since."""
    if transaction.last_epoch == NO_EPOCH or command.producer_epoch != transaction.last_epoch:
        return False
    owner_id, epoch = transaction.owner
    has_rotated = transaction.last_epoch > epoch
    return command.producer_id == (transaction.previous_producer_id if has_rotated else owner_id)


def _keep(turn: Turn, command: Initialize, transaction: Transaction) -> None:
    """The transaction stays as it is, and gets another owner. Its timeout ends with who comes in two phases, and does
    not come back: it may be prepared by now."""
    previous_id, (producer_id, epoch) = transaction.previous_producer_id, transaction.owner
    if is_exhausted(epoch):
        if command.spare_id is None:
            turn.reply(command.ticket, NEEDS_ID)
            return
        previous_id, producer_id, epoch = producer_id, command.spare_id, 0
    else:
        epoch += 1
    kept = transaction.becoming(
        State.ONGOING, turn.now_ms, next_producer_id=producer_id, next_producer_epoch=epoch, last_epoch=NO_EPOCH,
        previous_producer_id=previous_id, timeout_ms=NEVER_MS if command.two_phase else transaction.timeout_ms,
    )  # fmt: skip
    if turn.store(kept):
        turn.reply(command.ticket, Kept(producer_id, epoch, transaction.producer_id, transaction.producer_epoch))
    else:
        turn.refuse(command.ticket, ErrorCode.CONCURRENT_TRANSACTIONS)


def _begin(turn: Turn, command: Initialize, transaction: Transaction, *, rotate: bool) -> None:
    """The next epoch, or epoch 0 of another id."""
    producer_id, previous_id = transaction.producer_id, transaction.previous_producer_id
    epoch, last_epoch = transaction.producer_epoch, transaction.last_epoch
    is_named = command.producer_id != NO_ID and epoch != NO_EPOCH
    is_current = (command.producer_id, command.producer_epoch) == (producer_id, epoch)
    if is_named and not is_current:
        pass  # it is told again what it is
    elif rotate:
        if command.spare_id is None:
            turn.reply(command.ticket, NEEDS_ID)
            return
        previous_id, producer_id = producer_id, command.spare_id
        last_epoch, epoch = epoch if is_named else NO_EPOCH, 0
    else:
        last_epoch, epoch = epoch if is_named else NO_EPOCH, epoch + 1
    begun = transaction.becoming(
        State.EMPTY, turn.now_ms, producer_id=producer_id, previous_producer_id=previous_id, next_producer_id=NO_ID,
        producer_epoch=epoch, last_epoch=last_epoch, timeout_ms=_timeout_ms(command), partitions=frozenset(),
        started_ms=-1,
    )  # fmt: skip
    if turn.store(begun):
        turn.reply(command.ticket, (producer_id, epoch))
    else:
        turn.refuse(command.ticket, ErrorCode.CONCURRENT_TRANSACTIONS)
