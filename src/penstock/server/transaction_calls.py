"""How a handler asks the machine that owns a transactional id, and lets a producer's batches into a partition."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from penstock.cluster.topic_names import TRANSACTIONS_TOPIC
from penstock.coordinator.machine import ProducerStamp, Ticket
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.replication.partition import Partition
from penstock.server.context import Context
from penstock.server.group_calls import coordinator_of, place
from penstock.server.producer_ids import producer_ids
from penstock.server.remote_transactions import Question
from penstock.transactions.commands import NEEDS_ID, AddPartitions
from penstock.transactions.transaction import TopicPartition

log = logging.getLogger(__name__)

CLASSIC, BUMPING = 1, 2  # versions of transactions

# A coordinator elsewhere does not wait for the markers of the transaction before, and may hear of a new topic after its
# leaders have: it is asked again for so long.
AGAIN_S_MAX = 1.0
AGAIN_S_FIRST = 0.005
AGAIN_S_REST = 0.05
_MARKERS_ON_THEIR_WAY = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS}
_TOPIC_NOT_HEARD_OF = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.OPERATION_NOT_ATTEMPTED,  # it knows this partition, and not another that it was asked about
}
_PASSING = _MARKERS_ON_THEIR_WAY | _TOPIC_NOT_HEARD_OF

COORDINATOR_AWAY = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


async def ask(context: Context, transactional_id: str, make: Callable[[Ticket], Any]) -> Any:
    """Raises what the machine refused it with, or that it is not here."""
    await ensure_coordinator(context, TRANSACTIONS_TOPIC)
    return await context.transactions.ask(place(context, context.transactions, transactional_id), make)


async def ensure_coordinator(context: Context, topic: str) -> None:
    """That the topic exists which its partitions are named after. Until it does, clients are to come again."""
    try:
        await context.administration.ensure_topic(topic)
    except ApiError as error:
        log.warning("no coordinator: %s", error, extra={"topic": topic})
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error


async def ask_with_id(context: Context, transactional_id: str, make: Callable[[Ticket, int | None], Any]) -> Any:
    """For commands that may need another producer id, which is seldom."""
    answer = await ask(context, transactional_id, lambda ticket: make(ticket, None))
    if answer is NEEDS_ID:
        spare_id = await new_producer_id(context)
        answer = await ask(context, transactional_id, lambda ticket: make(ticket, spare_id))
    return answer


async def new_producer_id(context: Context) -> int:
    try:
        return await producer_ids(context.administration).next()
    except ApiError as error:
        # The code on which every client tries again: the producer has lost nothing yet.
        log.warning("no producer id: %s", error)
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.message) from error


def fenced_as(error: ApiError, knows_fenced: bool) -> ApiError:
    """Older clients know only that their epoch is invalid."""
    if error.code == ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message)
    return error


async def admit(
    context: Context,
    transactional_id: str,
    producer: ProducerStamp,
    partitions: Iterable[Partition],
    *,
    adds: bool,
    abortable: bool,
) -> dict[TopicPartition, ErrorCode]:
    """Lets a producer begin its transaction in the partitions: adds them to it (version 2 of transactions), or asks
    whether they were added (KIP-890). The partitions where it may not begin, with the reason."""
    if not adds and not context.settings.get("transaction.partition.verification.enable"):
        for each in partitions:
            each.admission.verified(
                producer.producer_id, producer.producer_epoch, each.admission.begin(producer.producer_id)
            )
        return {}
    loop = asyncio.get_running_loop()
    deadline, rest_s = loop.time() + AGAIN_S_MAX, AGAIN_S_FIRST
    refused = await _admit(context, transactional_id, producer, list(partitions), adds=adds)
    while set(refused.values()) & _PASSING and loop.time() + rest_s < deadline:
        if coordinator_of(context, context.transactions, transactional_id) == context.node_id:
            break  # it has waited for the markers, and knows the topic
        await asyncio.sleep(rest_s)
        rest_s = min(2 * rest_s, AGAIN_S_REST)
        refused = await _admit(context, transactional_id, producer, list(refused), adds=adds)
    return {(each.topic, each.index): _told(code, adds, abortable) for each, code in refused.items()}


async def _admit(
    context: Context, transactional_id: str, producer: ProducerStamp, partitions: list[Partition], *, adds: bool
) -> dict[Partition, ErrorCode]:
    begun = [(each, each.admission.begin(producer.producer_id)) for each in partitions]
    names = frozenset((each.topic, each.index) for each, _ in begun)
    codes: dict[TopicPartition, ErrorCode]
    try:
        codes = await _coordinator_says(context, Question(transactional_id, producer, names, verify_only=not adds))
    except ApiError as error:
        codes = dict.fromkeys(names, ErrorCode(error.code))
    except BaseException:
        for partition, guard in begun:
            partition.admission.abandon(producer.producer_id, guard)
        raise
    refused = {}
    for partition, guard in begun:
        code = codes[partition.topic, partition.index]
        if code:
            partition.admission.abandon(producer.producer_id, guard)
            refused[partition] = code
        elif not partition.admission.verified(*producer, guard):
            refused[partition] = ErrorCode.NOT_ENOUGH_REPLICAS  # ended meanwhile: what is said next time is the truth
    return refused


async def _coordinator_says(context: Context, question: Question) -> dict[TopicPartition, ErrorCode]:
    transactional_id, producer, partitions, verify_only = question
    await ensure_coordinator(context, TRANSACTIONS_TOPIC)
    coordinator = coordinator_of(context, context.transactions, transactional_id)
    if coordinator != context.node_id:
        if coordinator not in context.image.brokers:
            return question.all(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return await context.remote_transactions.ask(coordinator, question)
    version = CLASSIC if verify_only else BUMPING
    codes: dict[TopicPartition, ErrorCode] = await ask(
        context,
        transactional_id,
        lambda ticket: AddPartitions(ticket, transactional_id, *producer, partitions, version, verify_only),
    )
    return codes


def _told(code: ErrorCode, adds: bool, abortable: bool) -> ErrorCode:
    """As a client understands it in an answer to Produce."""
    if code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code == ErrorCode.TRANSACTION_ABORTABLE and not abortable:
        return ErrorCode.INVALID_TXN_STATE
    if code in COORDINATOR_AWAY or (code == ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
        return ErrorCode.NOT_ENOUGH_REPLICAS  # whatever it is, the client shall send the batch again
    if code in _TOPIC_NOT_HEARD_OF:  # by the coordinator; this broker leads it, and must not deny that it exists
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return code
