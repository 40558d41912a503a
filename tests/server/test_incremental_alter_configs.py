from __future__ import annotations

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.server.config_resources import ResourceType
from penstock.server.handlers import incremental_alter_configs
from penstock.server.handlers.incremental_alter_configs import ConfigOperation
from tests.cluster.controlled_cluster import NODE_ID
from tests.server.admin_broker import AdminBroker

SET, DELETE, APPEND, SUBTRACT = ConfigOperation


def resource(kind: int, name: str, *configs: tuple[str, int, str | None]) -> AlterConfigsResource:
    entries = [AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in configs]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)


def of_topic(*configs: tuple[str, int, str | None]) -> AlterConfigsResource:
    return resource(ResourceType.TOPIC, "t", *configs)


async def alter(
    broker: AdminBroker, *resources: AlterConfigsResource, validate_only: bool = False, version: int = 1
) -> list[tuple[int, str | None]]:
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    handle = incremental_alter_configs.handle
    response = await broker.ask(handle, request, IncrementalAlterConfigsResponse, version)
    return [(answer.error_code, answer.error_message) for answer in response.responses]


@pytest.mark.parametrize("version", range(2))
async def test_settings_are_set_and_removed_and_the_others_stay(admin_broker: AdminBroker, version: int) -> None:
    await admin_broker.administration.create_topic("t", config={"retention.ms": "5", "flush": "os"})
    wanted = of_topic(("segment.ms", SET, "9"), ("retention.ms", DELETE, None))
    assert await alter(admin_broker, wanted, version=version) == [(ErrorCode.NONE, None)]
    assert admin_broker.image.topics["t"].config == {"flush": "os", "segment.ms": "9"}


async def test_lists_are_added_to_and_taken_from(admin_broker: AdminBroker) -> None:
    await admin_broker.administration.create_topic("t")
    await alter(admin_broker, of_topic(("cleanup.policy", APPEND, "compact,delete")))
    assert admin_broker.image.topics["t"].config == {"cleanup.policy": "delete,compact"}
    await alter(admin_broker, of_topic(("cleanup.policy", SUBTRACT, "delete")))
    assert admin_broker.image.topics["t"].config == {"cleanup.policy": "compact"}


async def test_settings_of_one_broker_go_before_those_of_all(admin_broker: AdminBroker) -> None:
    results = await alter(
        admin_broker,
        resource(ResourceType.BROKER, "", ("log.retention.ms", SET, "5")),
        resource(ResourceType.BROKER, str(NODE_ID), ("log.retention.ms", SET, "6")),
    )
    assert results == [(ErrorCode.NONE, None)] * 2
    assert admin_broker.context.settings.get("log.retention.ms") == 6
    await alter(admin_broker, resource(ResourceType.BROKER, str(NODE_ID), ("log.retention.ms", DELETE, None)))
    assert admin_broker.context.settings.get("log.retention.ms") == 5


async def test_validation_alone_changes_nothing(admin_broker: AdminBroker) -> None:
    await admin_broker.administration.create_topic("t")
    assert await alter(admin_broker, of_topic(("flush", SET, "os")), validate_only=True) == [(ErrorCode.NONE, None)]
    assert admin_broker.image.topics["t"].config == {}


@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        (
            of_topic(("retention.ms", APPEND, "5")),
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            of_topic(("no.such", SUBTRACT, "5")),
            ErrorCode.INVALID_CONFIG,
            "Can't SUBTRACT to key no.such because its type is not LIST.",
        ),
        (of_topic(("no.such", SET, "5")), ErrorCode.INVALID_CONFIG, "Unknown topic config name: no.such"),
        (of_topic(("flush", SET, None)), ErrorCode.INVALID_REQUEST, "Null value not supported for : flush"),
        (of_topic(("flush", 9, "os")), ErrorCode.INVALID_REQUEST, "Unknown operations type 9"),
        (
            of_topic(("flush", SET, "os"), ("flush", DELETE, None)),
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
        (
            resource(ResourceType.TOPIC, "nowhere", ("flush", SET, "os")),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "The topic 'nowhere' does not exist.",
        ),
        (
            resource(ResourceType.BROKER, "", ("num.partitions", SET, "5")),
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: Set(num.partitions)",
        ),
        (
            resource(ResourceType.BROKER, "7", ("flush", SET, "os")),
            ErrorCode.INVALID_REQUEST,
            "Unexpected broker id, expected 1, but received 7",
        ),
        (
            resource(ResourceType.CLIENT_METRICS, "m", ("x", SET, "1")),
            ErrorCode.INVALID_REQUEST,
            "This broker does not support configs of type CLIENT_METRICS.",
        ),
        (resource(1, "x", ("x", SET, "1")), ErrorCode.INVALID_REQUEST, "Unknown resource type 1"),
    ],
)
async def test_a_refusal_has_kafkas_code_and_says_why(
    admin_broker: AdminBroker, wanted: AlterConfigsResource, code: ErrorCode, message: str
) -> None:
    await admin_broker.administration.create_topic("t")
    assert await alter(admin_broker, wanted) == [(code, message)]
    assert admin_broker.image.topics["t"].config == {}


async def test_one_refusal_does_not_keep_the_others_from_happening(admin_broker: AdminBroker) -> None:
    await admin_broker.administration.create_topic("t")
    results = await alter(admin_broker, resource(ResourceType.TOPIC, "nowhere"), of_topic(("flush", SET, "os")))
    assert [code for code, _ in results] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]
    assert admin_broker.image.topics["t"].config == {"flush": "os"}
