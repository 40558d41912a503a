"""CreatePartitions: more partitions for topics that exist."""

from __future__ import annotations

from collections import Counter

from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from penstock.server.context import Call, Context


async def handle(context: Context, call: Call[CreatePartitionsRequest]) -> CreatePartitionsResponse:
    request = call.request
    times = Counter(topic.name for topic in request.topics)
    results = {}
    for topic in request.topics:
        result = results[topic.name] = CreatePartitionsTopicResult(name=topic.name)
        try:
            if times[topic.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            await _grow(context, topic, request.validate_only)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
    return CreatePartitionsResponse(results=list(results.values()))


async def _grow(context: Context, topic: CreatePartitionsTopic, validate_only: bool) -> None:
    assignments = None if topic.assignments is None else [each.broker_ids for each in topic.assignments]
    await context.administration.create_partitions(topic.name, topic.count, assignments, validate_only=validate_only)
