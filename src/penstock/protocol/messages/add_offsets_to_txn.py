"""AddOffsetsToTxn (25): that a transaction will commit offsets of a group."""

from __future__ import annotations

from penstock.protocol.schema import INT16, INT32, INT64, STRING, Message, field


class AddOffsetsToTxnRequest(Message, api_key=25, versions="0-4", flexible="3+"):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    group_id: str = field(STRING)


class AddOffsetsToTxnResponse(Message, api_key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
