"""Settings of topics and of the broker, read and changed with confluent-kafka's admin client."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.clients.conftest import PEER, Topics
from tests.clients.drivers import CLIENTS, Outgoing, Refused, send_all
from tests.clients.steps import wait_until
from tests.clients.wire import Wire

CONFLUENT = CLIENTS["confluent"]
SET, DELETE = AlterConfigOpType.SET, AlterConfigOpType.DELETE
APPEND, SUBTRACT = AlterConfigOpType.APPEND, AlterConfigOpType.SUBTRACT

Change = tuple[str, str | None, AlterConfigOpType]


def describe(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    (answer,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    return answer.result(20)


def settings(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    return describe(admin, ResourceType.TOPIC, topic)


def change(admin: AdminClient, kind: ResourceType, name: str, *changes: Change, **options: object) -> None:
    entries = [ConfigEntry(setting, value, incremental_operation=how) for setting, value, how in changes]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    (answer,) = admin.incremental_alter_configs([resource], **options).values()
    answer.result(20)


def refusal_of(admin: AdminClient, kind: ResourceType, name: str, *changes: Change) -> int:
    with pytest.raises(KafkaException) as failure:
        change(admin, kind, name, *changes)
    return failure.value.args[0].code()


def test_a_topic_s_settings_are_its_own_or_the_broker_s_or_defaults(admin: AdminClient, new_topic: Topics) -> None:
    topic = new_topic(retention_ms=12345, cleanup_policy="compact,delete")
    found = settings(admin, topic)
    assert found["retention.ms"].value == "12345"
    assert ConfigSource(found["retention.ms"].source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert found["cleanup.policy"].value == "compact,delete"
    assert found["max.message.bytes"].value == "1048588"
    assert found["max.message.bytes"].is_default
    assert ConfigSource(found["max.message.bytes"].source) is ConfigSource.DEFAULT_CONFIG
    assert not any(entry.is_sensitive or entry.is_read_only for entry in found.values())


@pytest.mark.skipif(PEER is not None, reason="Kafka keeps data for one week")
def test_data_is_kept_for_two_weeks_by_default(admin: AdminClient, new_topic: Topics) -> None:
    assert settings(admin, new_topic())["retention.ms"].value == str(14 * 24 * 3600 * 1000)


def test_a_setting_is_changed_and_taken_back(admin: AdminClient, new_topic: Topics) -> None:
    topic = new_topic(segment_ms=777_000)
    change(admin, ResourceType.TOPIC, topic, ("retention.ms", "1000", SET), ("max.message.bytes", "2000", SET))
    found = settings(admin, topic)
    assert (found["retention.ms"].value, found["max.message.bytes"].value) == ("1000", "2000")
    assert found["segment.ms"].value == "777000"
    change(admin, ResourceType.TOPIC, topic, ("retention.ms", None, DELETE))
    found = settings(admin, topic)
    assert found["retention.ms"].is_default
    assert found["max.message.bytes"].value == "2000"


def test_a_list_is_added_to_and_taken_from(admin: AdminClient, new_topic: Topics) -> None:
    topic = new_topic()
    change(admin, ResourceType.TOPIC, topic, ("cleanup.policy", "compact", APPEND))
    assert set(settings(admin, topic)["cleanup.policy"].value.split(",")) == {"delete", "compact"}
    change(admin, ResourceType.TOPIC, topic, ("cleanup.policy", "delete", SUBTRACT))
    assert settings(admin, topic)["cleanup.policy"].value == "compact"


def test_a_change_takes_effect_at_once(admin: AdminClient, new_topic: Topics, bootstrap: str) -> None:
    topic = new_topic()
    send_all(CONFLUENT, bootstrap, topic, [bytes(5000)])
    change(admin, ResourceType.TOPIC, topic, ("max.message.bytes", "1000", SET))
    with pytest.raises(Refused) as refusal:
        send_all(CONFLUENT, bootstrap, topic, [bytes(5000)])
    assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE
    change(admin, ResourceType.TOPIC, topic, ("max.message.bytes", "100000", SET), ("cleanup.policy", "compact", SET))
    with pytest.raises(Refused) as refusal:
        send_all(CONFLUENT, bootstrap, topic, [bytes(5000)])
    assert refusal.value.code == ErrorCode.INVALID_RECORD
    assert send_all(CONFLUENT, bootstrap, topic, [Outgoing(bytes(5000), b"k")])[0].offset == 1


def test_a_dry_run_changes_nothing(admin: AdminClient, new_topic: Topics) -> None:
    topic = new_topic()
    change(admin, ResourceType.TOPIC, topic, ("retention.ms", "1000", SET), validate_only=True)
    assert settings(admin, topic)["retention.ms"].is_default


@pytest.mark.parametrize(
    "wrong",
    [
        ("no.such.setting", "1", SET),
        ("retention.ms", "soon", SET),
        ("retention.ms", "-2", SET),
        ("cleanup.policy", "burn", SET),
        ("compression.type", "rar", SET),
        ("min.cleanable.dirty.ratio", "7", SET),
        ("segment.bytes", "99999999999999", SET),
        ("preallocate", "perhaps", SET),
        ("retention.ms", "1", APPEND),
    ],
)
def test_settings_that_make_no_sense_are_refused_and_change_nothing(
    admin: AdminClient, new_topic: Topics, wrong: Change
) -> None:
    topic = new_topic()
    code = refusal_of(admin, ResourceType.TOPIC, topic, ("segment.ms", "5000", SET), wrong)
    assert code == ErrorCode.INVALID_CONFIG
    assert settings(admin, topic)["segment.ms"].is_default


def test_one_setting_twice_in_a_request_is_refused(wire: Wire, new_topic: Topics) -> None:
    twice = [AlterableConfig(name="retention.ms", config_operation=0, value=value) for value in ("1", "2")]
    resource = AlterConfigsResource(resource_type=2, resource_name=new_topic(), configs=twice)
    answer = wire.ask(IncrementalAlterConfigsRequest(resources=[resource]))
    assert answer.responses[0].error_code == ErrorCode.INVALID_REQUEST


def test_a_topic_that_is_not_there_has_no_settings(admin: AdminClient) -> None:
    with pytest.raises(KafkaException) as failure:
        settings(admin, "no-such-topic")
    assert failure.value.args[0].code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    code = refusal_of(admin, ResourceType.TOPIC, "no-such-topic", ("retention.ms", "1", SET))
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_old_way_of_altering_replaces_everything(admin: AdminClient, new_topic: Topics) -> None:
    topic = new_topic(retention_ms=1000, segment_ms=777_000)
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "2000"})
    (answer,) = admin.alter_configs([resource]).values()
    answer.result(20)
    found = settings(admin, topic)
    assert found["retention.ms"].value == "2000"
    assert found["segment.ms"].is_default


def test_the_broker_shows_its_settings(admin: AdminClient) -> None:
    found = describe(admin, ResourceType.BROKER, "1")
    assert found["message.max.bytes"].value == "1048588"
    assert "log.retention.hours" in found
    assert found["num.partitions"].value == "1"
    assert found["node.id"].is_read_only
    assert ConfigSource(found["log.cleaner.min.cleanable.ratio"].source) is ConfigSource.DEFAULT_CONFIG


def test_a_default_of_topics_is_changed_while_the_broker_runs(admin: AdminClient, new_topic: Topics) -> None:
    plain, own = new_topic(), new_topic(segment_ms=777_000)
    change(admin, ResourceType.BROKER, "1", ("log.roll.ms", "555000", SET))
    try:
        wait_until(lambda: settings(admin, plain)["segment.ms"].value == "555000")
        found = settings(admin, plain)["segment.ms"]
        assert ConfigSource(found.source) is ConfigSource.DYNAMIC_BROKER_CONFIG
        assert settings(admin, own)["segment.ms"].value == "777000"
    finally:
        change(admin, ResourceType.BROKER, "1", ("log.roll.ms", None, DELETE))
    wait_until(lambda: settings(admin, plain)["segment.ms"].is_default)


@pytest.mark.parametrize(
    ("setting", "value", "code"),
    [
        ("node.id", "7", ErrorCode.INVALID_REQUEST),
        ("log.roll.ms", "soon", ErrorCode.INVALID_REQUEST),
    ],
)
def test_settings_of_the_broker_that_cannot_change_are_refused(
    admin: AdminClient, setting: str, value: str, code: ErrorCode
) -> None:
    assert refusal_of(admin, ResourceType.BROKER, "1", (setting, value, SET)) == code


def test_a_broker_answers_for_itself_only(wire: Wire) -> None:
    resource = DescribeConfigsResource(resource_type=4, resource_name="77", configuration_keys=None)
    answer = wire.ask(DescribeConfigsRequest(resources=[resource]))
    assert answer.results[0].error_code == ErrorCode.INVALID_REQUEST
