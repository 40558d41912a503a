from __future__ import annotations

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from penstock.server.config_resources import ResourceType
from penstock.server.handlers import list_config_resources
from tests.server.admin_broker import AdminBroker

TOPIC, BROKER, LOGGER, METRICS, GROUP = ResourceType


async def ask(broker: AdminBroker, *kinds: int, version: int = 1) -> ListConfigResourcesResponse:
    request = ListConfigResourcesRequest(resource_types=list(kinds))
    return await broker.ask(list_config_resources.handle, request, ListConfigResourcesResponse, version)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ((), [("a", TOPIC), ("b", TOPIC), ("1", BROKER), ("1", LOGGER)]),
        ((TOPIC,), [("a", TOPIC), ("b", TOPIC)]),
        ((BROKER, LOGGER), [("1", BROKER), ("1", LOGGER)]),
        ((GROUP, METRICS), []),
    ],
)
async def test_resources_of_the_types_that_are_asked_for_are_listed(
    admin_broker: AdminBroker, kinds: tuple[int, ...], expected: list[tuple[str, int]]
) -> None:
    for name in ("b", "a"):
        await admin_broker.administration.create_topic(name)
    response = await ask(admin_broker, *kinds)
    assert [(found.resource_name, found.resource_type) for found in response.config_resources] == expected


async def test_version_0_asked_for_client_metrics_and_there_are_none(admin_broker: AdminBroker) -> None:
    await admin_broker.administration.create_topic("t")
    assert (await ask(admin_broker, version=0)).config_resources == []


async def test_an_unknown_type_is_refused(admin_broker: AdminBroker) -> None:
    assert (await ask(admin_broker, TOPIC, 99)).error_code == ErrorCode.UNSUPPORTED_VERSION
