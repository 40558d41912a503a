"""InitProducerId: an identity under which a producer's batches are written once, however often they are sent."""

from __future__ import annotations

from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.server.context import Call, Context
from penstock.server.transaction_calls import ask_with_id, fenced_as, new_producer_id
from penstock.transactions.commands import Initialize, Kept

NONE = -1
FIRST_VERSION_WITH_FENCED = 4


async def handle(context: Context, call: Call[InitProducerIdRequest]) -> InitProducerIdResponse:
    request = call.request
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        raise ApiError(ErrorCode.INVALID_REQUEST, "A producer id and its epoch come together.")
    if request.transactional_id is None:
        return InitProducerIdResponse(producer_id=await new_producer_id(context), producer_epoch=0)
    if not request.transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "A transactional id may not be empty.")
    transactional_id = request.transactional_id
    try:
        answer = await ask_with_id(
            context,
            transactional_id,
            lambda ticket, spare_id: Initialize(
                ticket, transactional_id, request.transaction_timeout_ms, request.producer_id, request.producer_epoch,
                spare_id, request.enable_2pc, request.keep_prepared_txn,
            ),
        )  # fmt: skip
    except ApiError as error:
        raise fenced_as(error, call.version >= FIRST_VERSION_WITH_FENCED) from error
    if isinstance(answer, Kept):
        return InitProducerIdResponse(
            producer_id=answer.producer_id, producer_epoch=answer.producer_epoch,
            ongoing_txn_producer_id=answer.ongoing_producer_id,
            ongoing_txn_producer_epoch=answer.ongoing_producer_epoch,
        )  # fmt: skip
    producer_id, producer_epoch = answer
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=producer_epoch)
