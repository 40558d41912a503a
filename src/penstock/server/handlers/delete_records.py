"""DeleteRecords: moves the beginning of partitions forward, durably, and frees whole segments below it.

Followers learn of it with their next fetch, and are not waited for.
"""

from __future__ import annotations

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


async def handle(context: Context, call: Call[DeleteRecordsRequest]) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse()
    for topic in call.request.topics:
        results = [await _delete(context, topic.name, asked) for asked in topic.partitions]
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    return response


async def _delete(context: Context, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
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
        result.low_watermark = partition.log.start_offset
    except ApiError as error:
        result.error_code = error.code
    return result
