"""The records of __transaction_state, and the body of a control record.

A key and a value are each stored as an int16 version and then the body.
"""

from __future__ import annotations

from penstock.protocol.schema import INT8, INT16, INT32, INT64, STRING, Message, Struct, array, field


class TransactionLogKey(Message, versions="0", flexible=None):
    transactional_id: str = field(STRING)


class PartitionsSchema(Struct):
    topic: str = field(STRING)
    partition_ids: list[int] = field(array(INT32))


class TransactionLogValue(Message, versions="0-1", flexible="1+"):
    producer_id: int = field(INT64)
    previous_producer_id: int = field(INT64, "1+", tag=0, default=-1)
    next_producer_id: int = field(INT64, "1+", tag=1, default=-1)
    producer_epoch: int = field(INT16)
    next_producer_epoch: int = field(INT16, "1+", tag=3, default=-1)
    transaction_timeout_ms: int = field(INT32)
    transaction_status: int = field(INT8)
    transaction_partitions: list[PartitionsSchema] | None = field(array(PartitionsSchema), nullable="0+")
    transaction_last_update_timestamp_ms: int = field(INT64)
    transaction_start_timestamp_ms: int = field(INT64)
    client_transaction_version: int = field(INT16, "1+", tag=2, default=0)


class EndTxnMarker(Message, versions="0", flexible=None):
    coordinator_epoch: int = field(INT32)
