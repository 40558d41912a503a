from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from penstock.cluster.model import BrokerState, Endpoint
from penstock.cluster.settings import ConfigSource, SettingType
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from penstock.server.config_resources import ResourceType
from penstock.server.handlers import describe_configs
from tests.cluster.controlled_cluster import NODE_ID
from tests.server.admin_broker import AdminBroker

DEFAULT, STATIC = ConfigSource.DEFAULT_CONFIG, ConfigSource.STATIC_BROKER_CONFIG
CLUSTER, OWN = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, ConfigSource.DYNAMIC_BROKER_CONFIG
TOPIC = ConfigSource.TOPIC_CONFIG


async def describe(
    broker: AdminBroker, kind: int, name: str, keys: list[str] | None = None, version: int = 4
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)],
        include_synonyms=True,
        include_documentation=True,
    )
    (result,) = (await broker.ask(describe_configs.handle, request, DescribeConfigsResponse, version)).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


async def one(broker: AdminBroker, kind: int, name: str, key: str) -> DescribeConfigsResourceResult:
    (entry,) = (await describe(broker, kind, name, [key])).configs
    return entry


def synonyms(entry: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms]


@pytest.mark.parametrize("version", range(1, 5))
async def test_every_version_describes_a_topic(admin_broker: AdminBroker, version: int) -> None:
    await admin_broker.administration.create_topic("t", config={"retention.ms": "5000"})
    result = await describe(admin_broker, ResourceType.TOPIC, "t", version=version)
    entries = {entry.name: entry for entry in result.configs}
    assert entries["retention.ms"].value == "5000"
    assert entries["retention.ms"].config_source == TOPIC
    assert entries["max.message.bytes"].value == "1048588"
    assert entries["max.message.bytes"].config_source == DEFAULT
    assert not any(entry.read_only or entry.is_sensitive for entry in result.configs)
    assert "internal.segment.bytes" not in entries
    if version >= 3:
        assert entries["retention.ms"].config_type == SettingType.LONG
        assert entries["cleanup.policy"].config_type == SettingType.LIST
        assert "dropped" in (entries["retention.ms"].documentation or "")


async def test_every_place_that_gives_a_value_is_listed_in_order(
    admin_broker_with: Callable[..., Awaitable[AdminBroker]],
) -> None:
    broker = await admin_broker_with(log_retention_hours="1")
    await broker.administration.create_topic("t", config={"retention.ms": "1"})
    await broker.administration.alter_broker_config(None, {"log.retention.ms": "2"})
    await broker.administration.alter_broker_config(NODE_ID, {"log.retention.ms": "3"})
    assert synonyms(await one(broker, ResourceType.TOPIC, "t", "retention.ms")) == [
        ("retention.ms", "1", TOPIC),
        ("log.retention.ms", "3", OWN),
        ("log.retention.ms", "2", CLUSTER),
        ("log.retention.hours", "1", STATIC),
        ("log.retention.hours", "336", DEFAULT),
    ]


async def test_a_topic_default_says_which_broker_setting_it_comes_from(
    admin_broker_with: Callable[..., Awaitable[AdminBroker]],
) -> None:
    broker = await admin_broker_with(log_retention_hours="1")
    await broker.administration.create_topic("t")
    entry = await one(broker, ResourceType.TOPIC, "t", "retention.ms")
    assert (entry.value, entry.config_source) == ("3600000", STATIC)


async def test_a_brokers_settings_are_read_only_unless_they_can_change(
    admin_broker_with: Callable[..., Awaitable[AdminBroker]],
) -> None:
    broker = await admin_broker_with(num_partitions="3")
    fixed = await one(broker, ResourceType.BROKER, str(NODE_ID), "num.partitions")
    assert (fixed.value, fixed.read_only, fixed.config_source) == ("3", True, STATIC)
    assert synonyms(fixed) == [("num.partitions", "3", STATIC), ("num.partitions", "1", DEFAULT)]
    changing = await one(broker, ResourceType.BROKER, str(NODE_ID), "message.max.bytes")
    assert (changing.value, changing.read_only, changing.config_source) == ("1048588", False, DEFAULT)
    unset = await one(broker, ResourceType.BROKER, str(NODE_ID), "log.retention.ms")
    assert (unset.value, synonyms(unset)) == (None, [])


async def test_a_broker_says_who_and_where_it_is_though_that_need_not_be_set(admin_broker: AdminBroker) -> None:
    endpoint = Endpoint("PLAINTEXT", "outside", 9092)
    admin_broker.image.brokers[NODE_ID] = BrokerState(NODE_ID, (endpoint,))
    for key, value in {
        "node.id": str(NODE_ID),
        "broker.id": str(NODE_ID),
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "advertised.listeners": "PLAINTEXT://outside:9092",
    }.items():
        entry = await one(admin_broker, ResourceType.BROKER, str(NODE_ID), key)
        assert (entry.value, entry.config_source, entry.read_only) == (value, STATIC, True)


async def test_of_all_brokers_only_what_was_changed_is_described(admin_broker: AdminBroker) -> None:
    assert (await describe(admin_broker, ResourceType.BROKER, "")).configs == []
    await admin_broker.administration.alter_broker_config(None, {"log.retention.ms": "7"})
    await admin_broker.administration.alter_broker_config(NODE_ID, {"flush": "os"})
    (entry,) = (await describe(admin_broker, ResourceType.BROKER, "")).configs
    assert (entry.name, entry.value, entry.config_source) == ("log.retention.ms", "7", CLUSTER)
    assert synonyms(entry) == [("log.retention.ms", "7", CLUSTER)]


async def test_only_the_keys_that_are_asked_for_are_described(admin_broker: AdminBroker) -> None:
    await admin_broker.administration.create_topic("t")
    some = await describe(admin_broker, ResourceType.TOPIC, "t", ["flush.ms", "nothing.such"])
    assert [entry.name for entry in some.configs] == ["flush.ms"]
    everything = await describe(admin_broker, ResourceType.TOPIC, "t", [])
    assert len(everything.configs) > 20


async def test_synonyms_and_documentation_are_left_out_unless_asked_for(admin_broker: AdminBroker) -> None:
    await admin_broker.administration.create_topic("t")
    resource = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource])
    (result,) = (await admin_broker.ask(describe_configs.handle, request, DescribeConfigsResponse)).results
    assert all(entry.synonyms == [] and entry.documentation is None for entry in result.configs)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (ResourceType.TOPIC, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ResourceType.TOPIC, "bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (ResourceType.TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (ResourceType.BROKER, "one", ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER, "2", ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER_LOGGER, "", ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER_LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (ResourceType.GROUP, "", ErrorCode.INVALID_REQUEST),
        (ResourceType.CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER_LOGGER, "1", ErrorCode.NONE),
        (ResourceType.CLIENT_METRICS, "m", ErrorCode.NONE),
    ],
)
async def test_what_can_not_be_described_is_an_error_or_empty(
    admin_broker: AdminBroker, kind: int, name: str, code: ErrorCode
) -> None:
    result = await describe(admin_broker, kind, name)
    assert result.error_code == code
    assert result.configs == []


async def test_who_asks_by_name_is_told_whether_the_broker_reaches_its_coordination(
    admin_broker: AdminBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "zookeeper.connected"
    entry = await one(admin_broker, ResourceType.BROKER, str(NODE_ID), name)
    assert (entry.value, entry.read_only) == ("true", True)
    monkeypatch.setattr(type(admin_broker.cluster.store), "connected", False)
    assert (await one(admin_broker, ResourceType.BROKER, str(NODE_ID), name)).value == "false"
    assert name not in {each.name for each in (await describe(admin_broker, ResourceType.BROKER, str(NODE_ID))).configs}
