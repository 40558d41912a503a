from __future__ import annotations

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from penstock.server.config_resources import ResourceType
from penstock.server.handlers import alter_configs
from tests.server.admin_broker import AdminBroker


def resource(kind: int, name: str, *configs: tuple[str, str | None]) -> AlterConfigsResource:
    entries = [AlterableConfig(name=key, value=value) for key, value in configs]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)


async def alter(
    broker: AdminBroker, *resources: AlterConfigsResource, validate_only: bool = False, version: int = 2
) -> list[tuple[int, str | None]]:
    request = AlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    response = await broker.ask(alter_configs.handle, request, AlterConfigsResponse, version)
    assert [r.resource_name for r in response.responses] == [r.resource_name for r in resources]
    return [(answer.error_code, answer.error_message) for answer in response.responses]


@pytest.mark.parametrize("version", range(3))
async def test_what_is_not_named_goes_back_to_its_default(admin_broker: AdminBroker, version: int) -> None:
    await admin_broker.administration.create_topic("t", config={"retention.ms": "5", "flush": "os"})
    wanted = resource(ResourceType.TOPIC, "t", ("segment.ms", "9"))
    assert await alter(admin_broker, wanted, version=version) == [(ErrorCode.NONE, None)]
    assert admin_broker.image.topics["t"].config == {"segment.ms": "9"}


async def test_validation_alone_changes_nothing(admin_broker: AdminBroker) -> None:
    await admin_broker.administration.create_topic("t", config={"flush": "os"})
    wanted = resource(ResourceType.TOPIC, "t", ("segment.ms", "9"))
    assert await alter(admin_broker, wanted, validate_only=True) == [(ErrorCode.NONE, None)]
    assert admin_broker.image.topics["t"].config == {"flush": "os"}


async def test_settings_of_all_brokers_are_replaced(admin_broker: AdminBroker) -> None:
    await admin_broker.administration.alter_broker_config(None, {"flush": "os"})
    wanted = resource(ResourceType.BROKER, "", ("log.retention.ms", "9"))
    assert await alter(admin_broker, wanted) == [(ErrorCode.NONE, None)]
    assert admin_broker.image.broker_config == {"log.retention.ms": "9"}


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (resource(ResourceType.TOPIC, "nowhere", ("flush", "os")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (resource(ResourceType.TOPIC, "t", ("no.such", "1")), ErrorCode.INVALID_CONFIG),
        (resource(ResourceType.TOPIC, "t", ("retention.ms", "x")), ErrorCode.INVALID_CONFIG),
        (resource(ResourceType.TOPIC, "t", ("flush", None)), ErrorCode.INVALID_REQUEST),
        (resource(ResourceType.TOPIC, "t", ("flush", "os"), ("flush", "commit")), ErrorCode.INVALID_REQUEST),
        (resource(ResourceType.TOPIC, ""), ErrorCode.INVALID_REQUEST),
        (resource(ResourceType.TOPIC, "bad name"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (resource(ResourceType.BROKER, "", ("node.id", "9")), ErrorCode.INVALID_REQUEST),
        (resource(ResourceType.BROKER, "2", ("flush", "os")), ErrorCode.INVALID_REQUEST),
        (resource(ResourceType.BROKER_LOGGER, "1", ("root", "DEBUG")), ErrorCode.INVALID_REQUEST),
        (resource(ResourceType.GROUP, "g", ("x", "1")), ErrorCode.INVALID_CONFIG),
        (resource(ResourceType.CLIENT_METRICS, "m", ("x", "1")), ErrorCode.INVALID_REQUEST),
        (resource(0, "x"), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_can_not_be_changed_is_refused(
    admin_broker: AdminBroker, wanted: AlterConfigsResource, code: ErrorCode
) -> None:
    await admin_broker.administration.create_topic("t", config={"flush": "interval"})
    ((got, message),) = await alter(admin_broker, wanted)
    assert got == code
    assert message
    assert admin_broker.image.topics["t"].config == {"flush": "interval"}


async def test_a_resource_that_is_named_twice_is_not_changed(admin_broker: AdminBroker) -> None:
    await admin_broker.administration.create_topic("t")
    results = await alter(
        admin_broker,
        resource(ResourceType.TOPIC, "t", ("flush", "os")),
        resource(ResourceType.TOPIC, "t", ("flush", "commit")),
    )
    assert results == [(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")] * 2
    assert admin_broker.image.topics["t"].config == {}
