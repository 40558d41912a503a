"""DescribeTransactions (65): where transactions stand (KIP-664)."""

from __future__ import annotations

from penstock.protocol.schema import INT16, INT32, INT64, STRING, Message, Struct, array, field


class DescribeTransactionsRequest(Message, api_key=65, versions="0", flexible="0+", elements_max=20_000):
    transactional_ids: list[str] = field(array(STRING))


class TopicData(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class TransactionState(Struct):
    error_code: int = field(INT16)
    transactional_id: str = field(STRING)
    transaction_state: str = field(STRING)
    transaction_timeout_ms: int = field(INT32)
    transaction_start_time_ms: int = field(INT64)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    topics: list[TopicData] = field(array(TopicData))


class DescribeTransactionsResponse(Message, api_key=65, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32)
    transaction_states: list[TransactionState] = field(array(TransactionState))
