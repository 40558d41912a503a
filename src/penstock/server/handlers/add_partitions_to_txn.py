"""AddPartitionsToTxn: partitions that a transaction is about to write to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from penstock.cluster.topic_names import TRANSACTIONS_TOPIC
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from penstock.server.context import Call, Context
from penstock.server.transaction_calls import BUMPING, CLASSIC, ask
from penstock.transactions.commands import AddPartitions
from penstock.transactions.transaction import TopicPartition

FIRST_VERSION_WITH_FENCED = 2
FIRST_VERSION_OF_BROKERS = 4
FIRST_VERSION_ABORTABLE = 5

Codes = dict[TopicPartition, ErrorCode]


async def handle(context: Context, call: Call[AddPartitionsToTxnRequest]) -> AddPartitionsToTxnResponse:
    request = call.request
    if call.version >= FIRST_VERSION_OF_BROKERS:
        codes_of_each = await asyncio.gather(
            *(_add(context, call.version, each, BUMPING, waits=False) for each in request.transactions)
        )
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=each.transactional_id, topic_results=_results(each.topics, codes)
                )
                for each, codes in zip(request.transactions, codes_of_each)
            ]
        )
    asked = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    codes = await _add(context, call.version, asked, CLASSIC)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(asked.topics, codes))


async def _add(
    context: Context, version: int, asked: AddPartitionsToTxnTransaction, transactions: int, *, waits: bool = True
) -> Codes:
    """All of them or none."""
    partitions = frozenset((topic.name, index) for topic in asked.topics for index in topic.partitions)
    if not asked.transactional_id:
        return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
    unknown = {each for each in partitions if not _exists(context, each)}
    if unknown:
        return {
            each: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if each in unknown else ErrorCode.OPERATION_NOT_ATTEMPTED
            for each in partitions
        }
    codes: Codes
    try:
        codes = await ask(
            context,
            asked.transactional_id,
            lambda ticket: AddPartitions(
                ticket, asked.transactional_id, asked.producer_id, asked.producer_epoch, partitions, transactions,
                asked.verify_only, waits,
            ),
        )  # fmt: skip
    except ApiError as error:
        codes = dict.fromkeys(partitions, ErrorCode(error.code))
    return {each: _told(code, version) for each, code in codes.items()}


def _exists(context: Context, partition: TopicPartition) -> bool:
    """For a producer: what coordinates transactions is part of none."""
    name, index = partition
    topic = context.image.topics.get(name) if name != TRANSACTIONS_TOPIC else None
    return topic is not None and 0 <= index < len(topic.partitions)


def _told(code: ErrorCode, version: int) -> ErrorCode:
    if code == ErrorCode.PRODUCER_FENCED and version < FIRST_VERSION_WITH_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code == ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_VERSION_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return code


def _results(topics: Iterable[AddPartitionsToTxnTopic], codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=codes[topic.name, index])
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
