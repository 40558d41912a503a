"""The records of `__transaction_state`, as Kafka writes them."""

from __future__ import annotations

from penstock.coordinator.machine import LogRecord
from penstock.protocol.codec import decode_versioned, encode_versioned
from penstock.protocol.messages.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from penstock.transactions.states import State
from penstock.transactions.transaction import Transaction

KEY_VERSION = 0
VALUE_VERSION = 1
_STORED = frozenset(State) - {State.DEAD, State.PREPARE_EPOCH_FENCE}


def transaction_record(transaction: Transaction) -> LogRecord:
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(transaction.partitions):
        by_topic.setdefault(topic, []).append(index)
    partitions = [PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in by_topic.items()]
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        next_producer_epoch=transaction.next_producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=int(transaction.state),
        transaction_partitions=None if transaction.state is State.EMPTY else partitions,
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=transaction.version,
    )
    return LogRecord(_key(transaction.transactional_id), encode_versioned(value, VALUE_VERSION))


def nothing() -> LogRecord:
    """Means nothing, to Kafka's tools neither: no producer has an empty id."""
    return tombstone("")


def tombstone(transactional_id: str) -> LogRecord:
    return LogRecord(_key(transactional_id), None)


def read_record(record: LogRecord) -> tuple[str, Transaction | None] | None:
    """The id, and None if it is gone. Nothing for a record of another kind, or of a state that is not known here: what
    belongs to the future must not keep the rest from being read (KIP-915)."""
    if len(record.key) < 2 or int.from_bytes(record.key[:2], "big") != KEY_VERSION:
        return None
    key = decode_versioned(TransactionLogKey, record.key)
    if record.value is None:
        return key.transactional_id, None
    value = decode_versioned(TransactionLogValue, record.value, newer_as_newest=True)
    if value.transaction_status not in _STORED:
        return None
    return key.transactional_id, _transaction(key.transactional_id, value)


def _transaction(transactional_id: str, value: TransactionLogValue) -> Transaction:
    """The last epoch is not stored: after a restart, a producer that has not heard of its new one is fenced."""
    return Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        next_producer_epoch=value.next_producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=State(value.transaction_status),
        partitions=frozenset(
            (topic.topic, index) for topic in value.transaction_partitions or [] for index in topic.partition_ids
        ),
        started_ms=value.transaction_start_timestamp_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        version=value.client_transaction_version,
    )


def _key(transactional_id: str) -> bytes:
    return encode_versioned(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)
