from __future__ import annotations

from typing import Any

import pytest

from penstock.cluster.settings import ConfigSource
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.protocol.schema import ZERO_UUID
from penstock.server.handlers import create_topics
from tests.server.admin_broker import AdminBroker

EVERY_VERSION = range(CreateTopicsRequest.versions.first, CreateTopicsRequest.versions.last + 1)


def topic(name: str, partitions: int = -1, replicas: int = -1, **options: Any) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, **options)


async def ask(broker: AdminBroker, request: CreateTopicsRequest, version: int | None = None) -> CreateTopicsResponse:
    return await broker.ask(create_topics.handle, request, CreateTopicsResponse, version)


@pytest.mark.parametrize("version", EVERY_VERSION)
async def test_every_version_creates(admin_broker: AdminBroker, version: int) -> None:
    (result,) = (await ask(admin_broker, CreateTopicsRequest(topics=[topic("t", 3, 1)]), version)).topics
    assert (result.name, result.error_code, result.error_message) == ("t", ErrorCode.NONE, None)
    created = admin_broker.image.topics["t"]
    assert len(created.partitions) == 3
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
    if version >= 7:
        assert result.topic_id == created.topic_id


async def test_the_config_in_force_is_part_of_the_answer(admin_broker: AdminBroker) -> None:
    config = CreatableTopicConfig(name="retention.ms", value="5000")
    (result,) = (await ask(admin_broker, CreateTopicsRequest(topics=[topic("t", configs=[config])]))).topics
    shown = {entry.name: (entry.value, entry.config_source, entry.read_only) for entry in result.configs or ()}
    assert shown["retention.ms"] == ("5000", ConfigSource.TOPIC_CONFIG, False)
    assert shown["cleanup.policy"] == ("delete", ConfigSource.DEFAULT_CONFIG, False)
    assert "internal.segment.bytes" not in shown
    assert list(shown) == sorted(shown)


async def test_validation_alone_answers_as_if_it_had_been_done(admin_broker: AdminBroker) -> None:
    request = CreateTopicsRequest(topics=[topic("t", 4), topic("bad name")], validate_only=True)
    good, bad = (await ask(admin_broker, request)).topics
    assert (good.error_code, good.num_partitions, good.topic_id) == (ErrorCode.NONE, 4, ZERO_UUID)
    assert bad.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert admin_broker.image.topics == {}


async def test_a_topic_that_is_named_twice_is_not_created_at_all(admin_broker: AdminBroker) -> None:
    request = CreateTopicsRequest(topics=[topic("twice", 1), topic("once"), topic("twice", 2)])
    results = (await ask(admin_broker, request)).topics
    assert [(result.name, result.error_code, result.error_message) for result in results] == [
        ("twice", ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
        ("once", ErrorCode.NONE, None),
    ]
    assert list(admin_broker.image.topics) == ["once"]


@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        (topic("t"), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 't' already exists."),
        (topic("u", 0), ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid"),
        (topic("u", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR, "only 1 broker(s) are registered"),
        (
            topic("u", configs=[CreatableTopicConfig(name="retention.ms", value="foo")]),
            ErrorCode.INVALID_CONFIG,
            "Invalid value foo for configuration retention.ms: Not a number of type LONG",
        ),
        (
            topic("u", configs=[CreatableTopicConfig(name="x", value="1")]),
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: x",
        ),
        (
            topic("u", configs=[CreatableTopicConfig(name="retention.ms", value=None)]),
            ErrorCode.INVALID_CONFIG,
            "Null value not supported for topic configs: retention.ms",
        ),
        (
            topic("u", assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[9])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "includes broker 9, but no such broker is registered",
        ),
    ],
)
async def test_a_refusal_has_kafkas_code_and_says_why(
    admin_broker: AdminBroker, wanted: CreatableTopic, code: ErrorCode, message: str
) -> None:
    await admin_broker.administration.create_topic("t")
    (result,) = (await ask(admin_broker, CreateTopicsRequest(topics=[wanted]))).topics
    assert result.error_code == code
    assert message in (result.error_message or "")
    assert (result.num_partitions, result.configs) == (-1, [])


async def test_too_many_partitions_in_one_request_refuse_all_of_it(admin_broker: AdminBroker) -> None:
    request = CreateTopicsRequest(topics=[topic("a", 9_000), topic("b", 1_001)])
    results = (await ask(admin_broker, request)).topics
    assert [result.error_code for result in results] == [ErrorCode.POLICY_VIOLATION] * 2
    assert admin_broker.image.topics == {}
