"""DeleteRecords: moves the beginning of partitions forward, durably, and frees whole segments below it.

It is answered when the other replicas that live have done the same: whoever leads next does not have the records again.
"""

from __future__ import annotations

import asyncio

from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from penstock.server.context import Call, Context
from penstock.server.leadership import led

TO_THE_END = -1
TIMEOUT_MS_MAX = 10 * 60 * 1000


async def handle(context: Context, call: Call[DeleteRecordsRequest]) -> DeleteRecordsResponse:
    timeout_s = min(max(call.request.timeout_ms, 0), TIMEOUT_MS_MAX) / 1000
    topics = call.request.topics
    results = await asyncio.gather(
        *(_delete(context, topic.name, asked, timeout_s) for topic in topics for asked in topic.partitions)
    )
    response, each = DeleteRecordsResponse(), iter(results)
    for topic in topics:
        answers = [next(each) for _ in topic.partitions]
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=answers))
    return response


async def _delete(
    context: Context, topic: str, asked: DeleteRecordsPartition, timeout_s: float
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1, error_code=0)
    try:
        partition = led(context, topic, asked.partition_index)
        if not partition.log.settings.delete:
            raise ApiError(ErrorCode.POLICY_VIOLATION)
        offset = partition.high_watermark if asked.offset == TO_THE_END else asked.offset
        if not 0 <= offset <= partition.high_watermark:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        try:
            await context.upkeep.advance_start(partition, offset)
        except OSError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from None
        result.low_watermark = await context.replicas.low_watermarks.wait(partition, offset, timeout_s)
        if not partition.leads:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if result.low_watermark < offset:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT)
    except ApiError as error:
        result.error_code = error.code
    return result
