"""InitProducerId: an identity under which a producer's batches are written once, however often they are sent."""

from __future__ import annotations

import logging

from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.server.context import Call, Context
from penstock.server.producer_ids import producer_ids

log = logging.getLogger(__name__)

NONE = -1


async def handle(context: Context, call: Call[InitProducerIdRequest]) -> InitProducerIdResponse:
    request = call.request
    if request.transactional_id is not None:
        raise ApiError(ErrorCode.INVALID_REQUEST, "This broker does not serve transactions.")
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        raise ApiError(ErrorCode.INVALID_REQUEST, "A producer id and its epoch come together.")
    try:
        producer_id = await producer_ids(context.controller).next()
    except ApiError as error:
        # The code on which every client tries again: the producer has lost nothing yet.
        log.warning("no producer id: %s", error)
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.message) from error
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
