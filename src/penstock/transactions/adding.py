"""AddPartitionsToTxn, AddOffsetsToTxn, and what they are with transactions of version 2: the first batch of a producer.

Nothing may be written to a partition in a transaction before the coordinator knows of it, or nobody would end it there.
"""

from __future__ import annotations

from penstock.protocol.errors import ErrorCode
from penstock.transactions.commands import AddPartitions
from penstock.transactions.states import State
from penstock.transactions.transaction import Transaction
from penstock.transactions.turn import IDENTITIES_BYTES, Turn


def add_partitions(turn: Turn, command: AddPartitions) -> None:
    transaction = turn.transactions.get(command.transactional_id)
    if transaction is not None and transaction.was_promised(command.producer_id, command.producer_epoch):
        _wait(turn, command)
        return
    error = _error(transaction, command)
    if error or transaction is None:
        turn.reply(command.ticket, dict.fromkeys(command.partitions, error))
        turn.prove()
    elif transaction.state.is_prepared:
        _wait(turn, command)
    elif command.verify_only:
        _verify(turn, command, transaction)
    elif transaction.state is State.ONGOING and command.partitions <= transaction.partitions:
        turn.reply(command.ticket, dict.fromkeys(command.partitions, ErrorCode.NONE))
        turn.prove()
    else:
        _add(turn, command, transaction)


def _wait(turn: Turn, command: AddPartitions) -> None:
    if command.waits:
        turn.wait(command.transactional_id, command)
    else:
        turn.reply(command.ticket, dict.fromkeys(command.partitions, ErrorCode.CONCURRENT_TRANSACTIONS))


def _error(transaction: Transaction | None, command: AddPartitions) -> ErrorCode:
    if transaction is None or command.producer_id not in (transaction.producer_id, transaction.owner[0]):
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if (command.producer_id, command.producer_epoch) != transaction.owner:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.INVALID_TXN_STATE if transaction.is_kept else ErrorCode.NONE  # nobody adds to what is kept


def _verify(turn: Turn, command: AddPartitions, transaction: Transaction) -> None:
    known = transaction.partitions if transaction.state is State.ONGOING else frozenset()
    codes = {
        partition: ErrorCode.NONE if partition in known else ErrorCode.TRANSACTION_ABORTABLE
        for partition in command.partitions
    }
    turn.reply(command.ticket, codes)
    if any(codes.values()):
        turn.prove()


def _add(turn: Turn, command: AddPartitions, transaction: Transaction) -> None:
    is_open = transaction.state is State.ONGOING
    partitions = (transaction.partitions if is_open else frozenset()) | command.partitions
    added = transaction.becoming(
        State.ONGOING, turn.now_ms, partitions=partitions, version=command.version,
        started_ms=transaction.started_ms if is_open else turn.now_ms,
    )  # fmt: skip
    error = ErrorCode.NONE
    if len(partitions) > turn.config.partitions_max or not turn.store(added, room_bytes=IDENTITIES_BYTES):
        error = ErrorCode.POLICY_VIOLATION
    turn.reply(command.ticket, dict.fromkeys(command.partitions, error))
