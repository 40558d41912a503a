"""How a handler asks the machine that owns a transactional id, and lets a producer's batches into a partition."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from penstock.cluster.topic_names import TRANSACTIONS_TOPIC
from penstock.coordinator.machine import ProducerStamp, Ticket
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.replication.partition import Partition
from penstock.server.context import Context
from penstock.server.group_calls import place
from penstock.server.producer_ids import producer_ids
from penstock.transactions.commands import NEEDS_ID, AddPartitions
from penstock.transactions.transaction import TopicPartition

log = logging.getLogger(__name__)

CLASSIC, BUMPING = 1, 2  # versions of transactions

_COORDINATOR_AWAY = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


async def ask(context: Context, transactional_id: str, make: Callable[[Ticket], Any]) -> Any:
    """Raises what the machine refused it with."""
    await context.controller.ensure_topic(TRANSACTIONS_TOPIC)
    return await context.transactions.ask(place(context, context.transactions, transactional_id), make)


async def ask_with_id(context: Context, transactional_id: str, make: Callable[[Ticket, int | None], Any]) -> Any:
    """For commands that may need another producer id, which is seldom."""
    answer = await ask(context, transactional_id, lambda ticket: make(ticket, None))
    if answer is NEEDS_ID:
        spare_id = await new_producer_id(context)
        answer = await ask(context, transactional_id, lambda ticket: make(ticket, spare_id))
    return answer


async def new_producer_id(context: Context) -> int:
    try:
        return await producer_ids(context.controller).next()
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
            each.verified(producer.producer_id, producer.producer_epoch, each.begin_verification(producer.producer_id))
        return {}
    begun = [(each, each.begin_verification(producer.producer_id)) for each in partitions]
    names = frozenset((each.topic, each.index) for each, _ in begun)
    version = BUMPING if adds else CLASSIC
    codes: dict[TopicPartition, ErrorCode]
    try:
        codes = await ask(
            context,
            transactional_id,
            lambda ticket: AddPartitions(ticket, transactional_id, *producer, names, version, verify_only=not adds),
        )
    except ApiError as error:
        codes = dict.fromkeys(names, error.code)
    except BaseException:
        for partition, guard in begun:
            partition.abandon_verification(producer.producer_id, guard)
        raise
    refused = {}
    for partition, guard in begun:
        name = (partition.topic, partition.index)
        code = _told(codes[name], adds, abortable)
        if code:
            partition.abandon_verification(producer.producer_id, guard)
            refused[name] = code
        elif not partition.verified(*producer, guard):
            refused[name] = ErrorCode.NOT_ENOUGH_REPLICAS  # ended meanwhile: what it is told next time is the truth
    return refused


def _told(code: ErrorCode, adds: bool, abortable: bool) -> ErrorCode:
    """As a client understands it in an answer to Produce."""
    if code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code == ErrorCode.TRANSACTION_ABORTABLE and not abortable:
        return ErrorCode.INVALID_TXN_STATE
    if code in _COORDINATOR_AWAY or (code == ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
        return ErrorCode.NOT_ENOUGH_REPLICAS  # whatever it is, the client shall send the batch again
    return code
