"""DescribeTransactions: where transactions stand."""

from __future__ import annotations

from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from penstock.server.context import Call, Context
from penstock.server.transaction_calls import ask
from penstock.transactions.commands import Describe


async def handle(context: Context, call: Call[DescribeTransactionsRequest]) -> DescribeTransactionsResponse:
    states = [await _describe(context, each) for each in call.request.transactional_ids]
    return DescribeTransactionsResponse(transaction_states=states)


async def _describe(context: Context, transactional_id: str) -> TransactionState:
    if not transactional_id:
        return TransactionState(transactional_id=transactional_id, error_code=ErrorCode.INVALID_REQUEST)
    try:
        states: list[TransactionState] = await ask(
            context, transactional_id, lambda ticket: Describe(ticket, (transactional_id,))
        )
    except ApiError as error:
        return TransactionState(transactional_id=transactional_id, error_code=error.code)
    (state,) = states
    state.topics = [topic for topic in state.topics if topic.topic in context.image.topics]
    return state
