"""CreateTopics: all topics of a request that can be created are, in as few durable writes as they fit in."""

from __future__ import annotations

from collections import Counter

from penstock.cluster.administration import NewTopic
from penstock.cluster.model import TopicState
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.protocol.schema import ZERO_UUID
from penstock.server.config_entries import topic_entries
from penstock.server.context import Call, Context


async def handle(context: Context, call: Call[CreateTopicsRequest]) -> CreateTopicsResponse:
    request = call.request
    times = Counter(topic.name for topic in request.topics)
    new = [_new_topic(topic) for topic in request.topics if times[topic.name] == 1]
    outcomes = await context.administration.create_topics(new, validate_only=request.validate_only)
    results = {
        topic.name: _result(context, topic.name, outcome, validate_only=request.validate_only)
        for topic, outcome in zip(new, outcomes)
    }
    twice = ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    return CreateTopicsResponse(topics=[results.get(name) or _failure(name, twice) for name in times])


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
        {config.name: config.value for config in topic.configs},
    )


def _result(
    context: Context, name: str, outcome: TopicState | ApiError, *, validate_only: bool
) -> CreatableTopicResult:
    if isinstance(outcome, ApiError):
        return _failure(name, outcome)
    return CreatableTopicResult(
        name=name,
        topic_id=ZERO_UUID if validate_only else outcome.topic_id,
        num_partitions=len(outcome.partitions),
        replication_factor=len(outcome.partitions[0].replicas),
        configs=[
            CreatableTopicConfigs(
                name=entry.setting.name, value=entry.value, read_only=entry.read_only, config_source=entry.source
            )
            for entry in topic_entries(outcome.config, context.settings)
        ],
    )


def _failure(name: str, error: ApiError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)
