"""EndTxn: commits or aborts. From version 5 on the producer goes on with another epoch (KIP-890)."""

from __future__ import annotations

from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.server.context import Call, Context
from penstock.server.transaction_calls import BUMPING, CLASSIC, ask_with_id, fenced_as
from penstock.transactions.commands import End

FIRST_VERSION_WITH_FENCED = 2
FIRST_VERSION_THAT_BUMPS = 5


async def handle(context: Context, call: Call[EndTxnRequest]) -> EndTxnResponse:
    request = call.request
    if not request.transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    version = BUMPING if call.version >= FIRST_VERSION_THAT_BUMPS else CLASSIC
    try:
        producer_id, producer_epoch = await ask_with_id(
            context,
            request.transactional_id,
            lambda ticket, spare_id: End(
                ticket, request.transactional_id, request.producer_id, request.producer_epoch, request.committed,
                version, spare_id,
            ),
        )  # fmt: skip
    except ApiError as error:
        raise fenced_as(error, call.version >= FIRST_VERSION_WITH_FENCED) from error
    return EndTxnResponse(producer_id=producer_id, producer_epoch=producer_epoch)
