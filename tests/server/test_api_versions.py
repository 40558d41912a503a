from __future__ import annotations

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.server.handlers import api_versions
from penstock.server.routing import HANDLERS
from tests.server.admin_broker import AdminBroker


async def ask(broker: AdminBroker, version: int, name: str = "penstock", software: str = "1.0") -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=software)
    return await broker.ask(api_versions.handle, request, ApiVersionsResponse, version)


@pytest.mark.parametrize("version", range(5))
async def test_every_version_announces_what_is_served(admin_broker: AdminBroker, version: int) -> None:
    response = await ask(admin_broker, version)
    assert response.error_code == ErrorCode.NONE
    announced = {api.key: (api.min_version, api.max_version) for api in response.api_keys}
    assert announced == {key: tuple(route.advertised) for key, route in HANDLERS.items()}
    assert announced[0][0] == 0, "librdkafka drops compression unless Produce is announced from version 0"
    assert announced[18] == (0, 4)
    assert announced[22] == (0, 5), "clients would choose version 6, which Kafka calls unstable (KIP-939)"


@pytest.mark.parametrize("version", range(5))
async def test_features_are_announced_to_clients_that_can_read_them(admin_broker: AdminBroker, version: int) -> None:
    response = await ask(admin_broker, version)
    supported = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
    finalized = {each.name: (each.min_version_level, each.max_version_level) for each in response.finalized_features}
    # Before version 4, a feature that is supported from 0 makes clients fail (KAFKA-17492).
    assert supported == ({"group.version": (0, 1), "transaction.version": (0, 2)} if version >= 4 else {})
    assert finalized == ({"group.version": (1, 1), "transaction.version": (2, 2)} if version >= 3 else {})
    assert response.finalized_features_epoch == (0 if version >= 3 else -1)


@pytest.mark.parametrize("name", ["apache-kafka-java", "librdkafka", "a", "x.y-z"])
async def test_a_client_may_say_what_it_is(admin_broker: AdminBroker, name: str) -> None:
    assert (await ask(admin_broker, 3, name)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "naïve", "a\n"])
async def test_what_is_no_name_is_refused(admin_broker: AdminBroker, name: str) -> None:
    assert (await ask(admin_broker, 3, name)).error_code == ErrorCode.INVALID_REQUEST
    assert (await ask(admin_broker, 3, software=name)).error_code == ErrorCode.INVALID_REQUEST
