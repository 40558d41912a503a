"""ListTransactions: what this broker coordinates, by state, producer, age (KIP-994) and pattern of name (KIP-1152)."""

from __future__ import annotations

from penstock.cluster.topic_names import TRANSACTIONS_TOPIC
from penstock.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from penstock.server.context import Call, Context
from penstock.transactions.commands import List
from penstock.transactions.states import State

_TITLES = frozenset(state.title for state in State)


async def handle(context: Context, call: Call[ListTransactionsRequest]) -> ListTransactionsResponse:
    request = call.request
    states = frozenset(request.state_filters)
    unknown = sorted(states - _TITLES)
    if states and not states & _TITLES:
        return ListTransactionsResponse(unknown_state_filters=unknown)
    found = await _list(context, request, states & _TITLES)
    if request.transactional_id_pattern:
        from penstock.groups.patterns import compile_pattern

        pattern = compile_pattern(request.transactional_id_pattern)
        found = [each for each in found if pattern.matches(each.transactional_id)]
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=found)


async def _list(context: Context, request: ListTransactionsRequest, states: frozenset[str]) -> list[TransactionState]:
    topic = context.image.topics.get(TRANSACTIONS_TOPIC)
    if topic is None:
        return []
    producer_ids = frozenset(request.producer_id_filters)
    found: list[list[TransactionState]] = await context.transactions.ask_all(
        len(topic.partitions), lambda ticket: List(ticket, states, producer_ids, request.duration_filter)
    )
    return [each for some in found for each in some]
