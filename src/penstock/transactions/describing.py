"""DescribeTransactions and ListTransactions (KIP-664, KIP-994)."""

from __future__ import annotations

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages import describe_transactions, list_transactions
from penstock.protocol.messages.describe_transactions import TopicData
from penstock.transactions.commands import Describe, List
from penstock.transactions.states import State
from penstock.transactions.transaction import Transaction
from penstock.transactions.turn import Turn


def describe(turn: Turn, command: Describe) -> None:
    states = [_described(each, turn.transactions.get(each)) for each in command.transactional_ids]
    turn.reply(command.ticket, states)


def _described(transactional_id: str, transaction: Transaction | None) -> describe_transactions.TransactionState:
    if transaction is None:
        return describe_transactions.TransactionState(
            transactional_id=transactional_id, error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        )
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(transaction.partitions):
        by_topic.setdefault(topic, []).append(index)
    is_open = transaction.state is State.ONGOING or transaction.state.is_prepared
    return describe_transactions.TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.title,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms if is_open else -1,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[TopicData(topic=topic, partitions=indexes) for topic, indexes in by_topic.items()],
    )


def list_all(turn: Turn, command: List) -> None:
    found = [
        list_transactions.TransactionState(
            transactional_id=each.transactional_id, producer_id=each.producer_id, transaction_state=each.state.title
        )
        for each in turn.transactions.values()
        if (not command.states or each.state.title in command.states)
        and (not command.producer_ids or each.producer_id in command.producer_ids)
        and (command.older_than_ms < 0 or _age_ms(each, turn.now_ms) > command.older_than_ms)
    ]
    turn.reply(command.ticket, found)


def _age_ms(transaction: Transaction, now_ms: int) -> int:
    """How long it has been open; of what is not open, no age is long enough."""
    is_open = transaction.state is State.ONGOING or transaction.state.is_prepared
    return now_ms - transaction.started_ms if is_open and transaction.started_ms >= 0 else -1
