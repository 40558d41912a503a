"""Settings that a consumer group has of its own: set, shown, listed, refused, and kept over a restart."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock.cluster.settings import BrokerSettings, ConfigSource, SettingError
from penstock.groups.assignors import ASSIGNORS
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages import alter_configs as whole
from penstock.protocol.messages import incremental_alter_configs as single
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from penstock.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from penstock.server.config_alterations import GROUP_NAME_MAX
from penstock.server.config_resources import ResourceType
from penstock.server.handlers import (
    alter_configs,
    consumer_group_heartbeat,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from penstock.server.handlers.incremental_alter_configs import ConfigOperation
from tests.server.admin_broker import AdminBroker

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
SET, DELETE, APPEND = ConfigOperation.SET, ConfigOperation.DELETE, ConfigOperation.APPEND
Starting = Callable[..., Awaitable[AdminBroker]]


async def change(
    broker: AdminBroker, group: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> tuple[int, str | None]:
    configs = [single.AlterableConfig(name=name, config_operation=op, value=value) for name, op, value in changes]
    resource = single.AlterConfigsResource(resource_type=ResourceType.GROUP, resource_name=group, configs=configs)
    request = single.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    response = await broker.ask(incremental_alter_configs.handle, request, single.IncrementalAlterConfigsResponse)
    (answer,) = response.responses
    assert (answer.resource_type, answer.resource_name) == (ResourceType.GROUP, group)
    return answer.error_code, answer.error_message


async def replace(broker: AdminBroker, group: str, **config: str) -> int:
    configs = [whole.AlterableConfig(name=name.replace("_", "."), value=value) for name, value in config.items()]
    resource = whole.AlterConfigsResource(resource_type=ResourceType.GROUP, resource_name=group, configs=configs)
    request = whole.AlterConfigsRequest(resources=[resource])
    (answer,) = (await broker.ask(alter_configs.handle, request, whole.AlterConfigsResponse)).responses
    return answer.error_code


async def shown(broker: AdminBroker, group: str) -> dict[str, tuple[str | None, int]]:
    """Each setting's value and source, which is also its one synonym."""
    resource = DescribeConfigsResource(resource_type=ResourceType.GROUP, resource_name=group, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    (result,) = (await broker.ask(describe_configs.handle, request, DescribeConfigsResponse)).results
    assert result.error_code == ErrorCode.NONE
    for entry in result.configs:
        synonyms = [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms]
        assert synonyms == [(entry.name, entry.value, entry.config_source)]
        assert not entry.read_only
    return {entry.name: (entry.value, entry.config_source) for entry in result.configs}


async def listed(broker: AdminBroker) -> list[str]:
    request = ListConfigResourcesRequest(resource_types=[ResourceType.GROUP])
    response = await broker.ask(list_config_resources.handle, request, ListConfigResourcesResponse)
    assert {each.resource_type for each in response.config_resources} <= {ResourceType.GROUP}
    return [each.resource_name for each in response.config_resources]


async def test_a_group_without_settings_shows_the_brokers(admin_broker_with: Starting) -> None:
    broker = await admin_broker_with(group_consumer_heartbeat_interval_ms="6000")
    assert await shown(broker, "g") == {
        SESSION: ("45000", ConfigSource.DEFAULT_CONFIG),
        HEARTBEAT: ("6000", ConfigSource.DEFAULT_CONFIG),
    }
    assert await listed(broker) == []


async def test_a_setting_of_a_group_is_its_own(admin_broker: AdminBroker) -> None:
    assert await change(admin_broker, "g", (SESSION, SET, "50000")) == (ErrorCode.NONE, None)
    assert (await shown(admin_broker, "g"))[SESSION] == ("50000", ConfigSource.GROUP_CONFIG)
    assert (await shown(admin_broker, "g"))[HEARTBEAT] == ("5000", ConfigSource.DEFAULT_CONFIG)
    assert (await shown(admin_broker, "h"))[SESSION] == ("45000", ConfigSource.DEFAULT_CONFIG)
    assert await listed(admin_broker) == ["g"]


async def test_a_group_that_has_lost_its_last_setting_is_not_listed(admin_broker: AdminBroker) -> None:
    await change(admin_broker, "g", (SESSION, SET, "50000"))
    assert await change(admin_broker, "g", (SESSION, DELETE, None)) == (ErrorCode.NONE, None)
    assert (await shown(admin_broker, "g"))[SESSION] == ("45000", ConfigSource.DEFAULT_CONFIG)
    assert await listed(admin_broker) == []
    assert await change(admin_broker, "g", (SESSION, SET, "51000")) == (ErrorCode.NONE, None)
    assert (await shown(admin_broker, "g"))[SESSION] == ("51000", ConfigSource.GROUP_CONFIG)


async def test_alter_configs_replaces_all_of_them(admin_broker: AdminBroker) -> None:
    await change(admin_broker, "g", (SESSION, SET, "50000"))
    assert await replace(admin_broker, "g", consumer_heartbeat_interval_ms="7000") == ErrorCode.NONE
    assert admin_broker.image.group_configs == {"g": {HEARTBEAT: "7000"}}
    assert await replace(admin_broker, "g") == ErrorCode.NONE
    assert admin_broker.image.group_configs == {}


async def test_validation_alone_changes_nothing(admin_broker: AdminBroker) -> None:
    assert await change(admin_broker, "g", (SESSION, SET, "50000"), validate_only=True) == (ErrorCode.NONE, None)
    assert admin_broker.image.group_configs == {}


@pytest.mark.parametrize("name", ["g", "a/b", ".", "..", "naïve group", "%2F", "x" * GROUP_NAME_MAX])
async def test_settings_of_a_group_of_any_name_outlive_the_broker(tmp_path: Path, name: str) -> None:
    broker = await AdminBroker(tmp_path).start()
    await change(broker, name, (SESSION, SET, "50000"))
    await change(broker, "other", (SESSION, SET, "51000"))
    await broker.stop()
    again = await AdminBroker(tmp_path).start()
    assert again.image.group_configs == {name: {SESSION: "50000"}, "other": {SESSION: "51000"}}
    assert await change(again, name, (HEARTBEAT, SET, "6000")) == (ErrorCode.NONE, None)
    assert again.image.group_configs[name] == {SESSION: "50000", HEARTBEAT: "6000"}
    await again.stop()


@pytest.mark.parametrize(
    ("group", "changes", "code", "message"),
    [
        ("g", [("x", SET, "1")], ErrorCode.INVALID_CONFIG, "Unknown group config name: x"),
        (
            "g",
            [(SESSION, SET, "x")],
            ErrorCode.INVALID_CONFIG,
            f"Invalid value x for configuration {SESSION}: Not a number of type INT",
        ),
        (
            "g",
            [(SESSION, SET, "44999")],
            ErrorCode.INVALID_CONFIG,
            f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            "g",
            [(SESSION, SET, "60001")],
            ErrorCode.INVALID_CONFIG,
            f"{SESSION} must be less than or equal to group.consumer.max.session.timeout.ms",
        ),
        (
            "g",
            [(HEARTBEAT, SET, "4999")],
            ErrorCode.INVALID_CONFIG,
            f"{HEARTBEAT} must be greater than or equal to group.consumer.min.heartbeat.interval.ms",
        ),
        (
            "g",
            [(HEARTBEAT, SET, "15001")],
            ErrorCode.INVALID_CONFIG,
            f"{HEARTBEAT} must be less than or equal to group.consumer.max.heartbeat.interval.ms",
        ),
        (
            "g",
            [(SESSION, APPEND, "1")],
            ErrorCode.INVALID_CONFIG,
            f"Can't APPEND to key {SESSION} because its type is not LIST.",
        ),
        ("", [(SESSION, SET, "50000")], ErrorCode.INVALID_REQUEST, "Default group resources are not allowed."),
    ],
)
async def test_a_refusal_has_kafkas_code_and_says_why(
    admin_broker: AdminBroker, group: str, changes: list[tuple[str, int, str | None]], code: ErrorCode, message: str
) -> None:
    assert await change(admin_broker, group, *changes) == (code, message)
    assert admin_broker.image.group_configs == {}


async def test_a_name_that_is_too_long_is_refused(admin_broker: AdminBroker) -> None:
    code, _ = await change(admin_broker, "x" * (GROUP_NAME_MAX + 1), (SESSION, SET, "50000"))
    assert code == ErrorCode.INVALID_REQUEST


async def test_a_session_must_be_longer_than_a_heartbeat(admin_broker_with: Starting) -> None:
    broker = await admin_broker_with(
        group_consumer_min_session_timeout_ms="1000", group_consumer_max_heartbeat_interval_ms="20000"
    )
    refused = await change(broker, "g", (SESSION, SET, "10000"), (HEARTBEAT, SET, "10000"))
    assert refused == (ErrorCode.INVALID_CONFIG, f"{SESSION} must be greater than {HEARTBEAT}")


async def test_a_write_that_failed_is_not_shown(admin_broker: AdminBroker) -> None:
    admin_broker.cluster.store.fail_before = True
    code, _ = await change(admin_broker, "g", (SESSION, SET, "50000"))
    assert code == ErrorCode.REQUEST_TIMED_OUT
    assert admin_broker.image.group_configs == {}
    admin_broker.cluster.store.fail_before = False
    admin_broker.cluster.store.fail_after = True
    await change(admin_broker, "g", (SESSION, SET, "50000"))
    admin_broker.cluster.store.fail_after = False
    assert await change(admin_broker, "h", (SESSION, SET, "51000")) == (ErrorCode.NONE, None)
    assert admin_broker.image.group_configs == {"g": {SESSION: "50000"}, "h": {SESSION: "51000"}}


def test_a_broker_with_other_limits_keeps_to_its_own() -> None:
    broker = BrokerSettings({"group.consumer.max.session.timeout.ms": "48000"})
    assert broker.effective_group({SESSION: "60000"}) == {SESSION: 48000, HEARTBEAT: 5000}


@pytest.mark.parametrize(
    "given",
    [
        {"group.consumer.session.timeout.ms": "1000"},
        {"group.consumer.session.timeout.ms": "100000"},
        {"group.consumer.heartbeat.interval.ms": "1000"},
        {"group.consumer.max.heartbeat.interval.ms": "1000"},
        {"group.consumer.min.session.timeout.ms": "1000", "group.consumer.session.timeout.ms": "5000"},
        {"group.consumer.assignors": ""},
        {"group.consumer.assignors": "uniform,sticky"},
        {"group.coordinator.rebalance.protocols": "consumer"},
        {"group.consumer.migration.policy": "sideways"},
    ],
)
def test_settings_that_contradict_each_other_do_not_start_a_broker(given: dict[str, str]) -> None:
    with pytest.raises(SettingError):
        BrokerSettings(given)


async def test_the_consumer_protocol_can_be_switched_off(admin_broker_with: Starting) -> None:
    broker = await admin_broker_with(group_coordinator_rebalance_protocols="classic")
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m")
    response = await broker.ask(consumer_group_heartbeat.handle, request, ConsumerGroupHeartbeatResponse)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_every_assignor_is_on_unless_it_is_left_out() -> None:
    assert BrokerSettings({}).get("group.consumer.assignors") == tuple(ASSIGNORS)
