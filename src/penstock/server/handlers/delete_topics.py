"""DeleteTopics: by name, or from version 6 by id as well, in as few durable writes as they fit in."""

from __future__ import annotations

from collections import Counter

from penstock.cluster.model import TopicState
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from penstock.protocol.schema import ZERO_UUID
from penstock.server.context import Call, Context

Key = str | bytes  # a name or an id


async def handle(context: Context, call: Call[DeleteTopicsRequest]) -> DeleteTopicsResponse:
    if not context.settings.get("delete.topic.enable"):
        if call.version < 3:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Topic deletion is disabled.")
        raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED)
    asked = [*map(_by_name, call.request.topic_names), *call.request.topics]
    refused = {id(topic): reason for topic in asked if (reason := _refusal(topic))}
    results = [_failure(topic, refused[id(topic)]) for topic in asked if id(topic) in refused]
    keys = [topic.name if topic.name is not None else topic.topic_id for topic in asked if id(topic) not in refused]
    return DeleteTopicsResponse(responses=results + await _delete(context, keys))


def _by_name(name: str) -> DeleteTopicState:
    return DeleteTopicState(name=name)


def _refusal(topic: DeleteTopicState) -> str | None:
    if topic.name is None:
        return "Neither topic name nor id were specified." if topic.topic_id == ZERO_UUID else None
    return "You may not specify both topic name and topic id." if topic.topic_id != ZERO_UUID else None


def _failure(topic: DeleteTopicState, message: str) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=topic.name, topic_id=topic.topic_id, error_code=ErrorCode.INVALID_REQUEST, error_message=message
    )


async def _delete(context: Context, keys: list[Key]) -> list[DeletableTopicResult]:
    await context.administration.learn(keys)
    times = Counter(keys)
    found = {key: _find(context, key) for key in times}
    meant = Counter(topic.name for topic in found.values() if topic)
    results: dict[Key, DeletableTopicResult] = {}
    for key, topic in found.items():
        name = key if isinstance(key, str) else topic.name if topic else None
        topic_id = key if isinstance(key, bytes) else topic.topic_id if topic else ZERO_UUID
        result = results[key] = DeletableTopicResult(name=name, topic_id=topic_id)
        if times[key] > 1:
            what = "name" if isinstance(key, str) else "id"
            _fail(result, ApiError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {what}."))
        elif topic and meant[topic.name] > 1:
            message = "The provided topic name maps to an ID that was already supplied."
            _fail(result, ApiError(ErrorCode.INVALID_REQUEST, message))
    wanted = [key for key, result in results.items() if not result.error_code]
    for key, failure in zip(wanted, await context.administration.delete_topics(wanted)):
        if failure is not None:
            _fail(results[key], failure)
    return list(results.values())


def _find(context: Context, key: Key) -> TopicState | None:
    return context.image.topics.get(key) if isinstance(key, str) else context.image.topics_by_id.get(key)


def _fail(result: DeletableTopicResult, error: ApiError) -> None:
    result.error_code, result.error_message = error.code, error.message
