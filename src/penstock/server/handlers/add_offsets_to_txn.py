"""AddOffsetsToTxn: the partition of `__consumer_offsets` that a group lives in, as part of a transaction."""

from __future__ import annotations

from penstock.cluster.topic_names import OFFSETS_TOPIC
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from penstock.server.context import Call, Context
from penstock.server.group_calls import partition_of
from penstock.server.transaction_calls import CLASSIC, ask, ensure_coordinator, fenced_as
from penstock.transactions.commands import AddPartitions

FIRST_VERSION_WITH_FENCED = 2


async def handle(context: Context, call: Call[AddOffsetsToTxnRequest]) -> AddOffsetsToTxnResponse:
    request = call.request
    if not request.transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    await ensure_coordinator(context, OFFSETS_TOPIC)
    where = (OFFSETS_TOPIC, partition_of(context, request.group_id))
    codes = await ask(
        context,
        request.transactional_id,
        lambda ticket: AddPartitions(
            ticket, request.transactional_id, request.producer_id, request.producer_epoch, frozenset({where}), CLASSIC
        ),
    )
    if codes[where]:
        raise fenced_as(ApiError(codes[where]), call.version >= FIRST_VERSION_WITH_FENCED)
    return AddOffsetsToTxnResponse()
