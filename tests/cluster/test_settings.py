from __future__ import annotations

import pytest

from penstock.cluster.settings import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    BrokerSettings,
    ConfigSource,
    SettingError,
    effective_topic_settings,
    validate_topic_config,
)

TWO_WEEKS_MS = 14 * 24 * 60 * 60 * 1000
HOUR_MS = 60 * 60 * 1000


def test_every_default_is_admitted_by_its_own_setting() -> None:
    for setting in [*TOPIC_SETTINGS.values(), *BROKER_SETTINGS.values()]:
        text = setting.text(setting.default)
        if text is not None:
            assert setting.parse(text) == setting.default, setting.name


def test_every_setting_says_what_it_does() -> None:
    for setting in [*TOPIC_SETTINGS.values(), *BROKER_SETTINGS.values()]:
        assert setting.documentation.endswith("."), setting.name


def test_a_topic_that_sets_nothing_keeps_data_for_two_weeks() -> None:
    effective = effective_topic_settings({}, BrokerSettings())
    assert effective["retention.ms"] == TWO_WEEKS_MS
    assert effective["max.message.bytes"] == 1048588
    assert effective["flush"] == "commit"
    assert effective["cleanup.policy"] == ("delete",)


def test_a_topic_waits_for_no_group_unless_it_says_so() -> None:
    effective = effective_topic_settings({}, BrokerSettings())
    assert (effective["retention.hold.group"], effective["retention.hold.max.bytes"]) == ("", -1)
    effective = effective_topic_settings({"retention.hold.group": " archive "}, BrokerSettings())
    assert effective["retention.hold.group"] == "archive"


def test_a_topic_setting_goes_before_the_brokers() -> None:
    broker = BrokerSettings({"log.retention.ms": "5000", "log.segment.bytes": "2097152"})
    effective = effective_topic_settings({"retention.ms": "7000"}, broker)
    assert effective["retention.ms"] == 7000
    assert effective["segment.bytes"] == 2097152


def test_requests_that_could_not_be_replicated_are_not_admitted() -> None:
    most = 128 * 1024 * 1024
    assert BrokerSettings({"socket.request.max.bytes": str(most)}).get("socket.request.max.bytes") == most
    with pytest.raises(SettingError, match=r"socket.request.max.bytes: Value must be no more than 134217728"):
        BrokerSettings({"socket.request.max.bytes": str(most + 1)})


def test_effective_settings_are_computed_once_per_config() -> None:
    broker = BrokerSettings()
    assert effective_topic_settings({"flush": "os"}, broker) is effective_topic_settings({"flush": "os"}, broker)


def test_a_small_segment_is_for_tests_only_and_hidden() -> None:
    broker = BrokerSettings()
    assert effective_topic_settings({"internal.segment.bytes": "100"}, broker)["segment.bytes"] == 100
    assert TOPIC_SETTINGS["internal.segment.bytes"].internal


def test_a_setting_that_a_newer_broker_stored_is_passed_over() -> None:
    effective = effective_topic_settings({"from.the.future": "1", "retention.ms": "5"}, BrokerSettings())
    assert effective["retention.ms"] == 5
    assert "from.the.future" not in effective


@pytest.mark.parametrize(
    ("given", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 2 * HOUR_MS),
        ({"log.retention.minutes": "3"}, 3 * 60 * 1000),
        ({"log.retention.minutes": "3", "log.retention.hours": "2"}, 3 * 60 * 1000),
        ({"log.retention.ms": "4", "log.retention.minutes": "3", "log.retention.hours": "2"}, 4),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_of_synonyms_the_finest_unit_counts(given: dict[str, str], retention_ms: int) -> None:
    assert BrokerSettings(given).topic_default("retention.ms") == retention_ms


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("no.such", "1", "Unknown topic config name: no.such"),
        ("retention.ms", "foo", "Invalid value foo for configuration retention.ms: Not a number of type LONG"),
        ("retention.ms", "1_000", "Invalid value 1_000 for configuration retention.ms: Not a number of type LONG"),
        ("retention.ms", "9223372036854775808", "Not a number of type LONG"),
        ("segment.bytes", "2147483648", "Not a number of type INT"),
        ("segment.bytes", "1000", "Invalid value 1000 for configuration segment.bytes: Value must be at least 1048576"),
        ("retention.ms", "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        ("preallocate", "yes", "Expected value to be either true or false"),
        ("min.cleanable.dirty.ratio", "1.5", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "nan", "Not a number of type DOUBLE"),
        ("compression.type", "brotli", "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("cleanup.policy", "delete,burn", "Invalid value burn for configuration cleanup.policy"),
        ("cleanup.policy", "delete,delete", "values must not be duplicated"),
        ("flush", "never", "String must be one of: commit, interval, os"),
        ("record.validation", "none", "String must be one of: header, full"),
        ("leader.replication.throttled.replicas", "x", "must be the literal '\\*' or a list"),
        ("remote.storage.enable", "true", "Tiered Storage functionality is disabled"),
        ("local.retention.ms", "5", "Tiered Storage functionality is disabled"),
        ("retention.hold.group", "g" * 32768, "configuration retention.hold.group: No group has a name of more than"),
        ("retention.hold.max.bytes", "-2", "retention.hold.max.bytes: Value must be at least -1"),
        ("retention.hold.max.bytes", "1GB", "Not a number of type LONG"),
        ("retention.hold.groups", "g", "Unknown topic config name: retention.hold.groups"),
    ],
)
def test_what_is_wrong_with_a_topic_setting_is_said_in_kafkas_words(name: str, value: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        validate_topic_config({name: value}, BrokerSettings())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "compact, delete"),
        ("cleanup.policy", ""),
        ("retention.ms", " +5 "),
        ("preallocate", "TRUE"),
        ("leader.replication.throttled.replicas", "*"),
        ("retention.hold.group", "archive of orders"),
        ("retention.hold.group", ""),
        ("retention.hold.max.bytes", "0"),
        ("leader.replication.throttled.replicas", "0:1,1:2"),
        ("remote.storage.enable", "false"),
        ("local.retention.bytes", "-2"),
        ("compression.gzip.level", "-1"),
    ],
)
def test_what_kafka_admits_is_admitted(name: str, value: str) -> None:
    validate_topic_config({name: value}, BrokerSettings())


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(SettingError, match=r"conflict topic config setting min.compaction.lag.ms \(9\)"):
        validate_topic_config({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}, BrokerSettings())


def test_an_unknown_broker_setting_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SettingError, match=r"Unknown setting: num\.partition\. Did you mean num\.partitions\?"):
        BrokerSettings({"num.partition": "3"})


def test_an_invalid_broker_setting_is_refused_at_the_start() -> None:
    with pytest.raises(SettingError, match=r"Invalid value lots for configuration num\.partitions"):
        BrokerSettings({"num.partitions": "lots"})


def test_broker_id_and_node_id_are_one_setting() -> None:
    assert BrokerSettings({"broker.id": "7"}).get("node.id") == 7
    assert BrokerSettings({"node.id": "7"}).get("broker.id") == 7
    with pytest.raises(SettingError, match=r"give only node\.id"):
        BrokerSettings({"broker.id": "7", "node.id": "8"})


def test_the_levels_of_a_broker_setting_count_in_kafkas_order() -> None:
    settings = BrokerSettings({"log.retention.ms": "1"})
    assert settings.get("log.retention.ms") == 1
    settings.set_dynamic(cluster={"log.retention.ms": "2"}, broker={})
    assert settings.get("log.retention.ms") == 2
    settings.set_dynamic(cluster={"log.retention.ms": "2"}, broker={"log.retention.ms": "3"})
    assert settings.get("log.retention.ms") == 3
    assert settings.topic_default("retention.ms") == 3
    assert [(origin.name, origin.text, origin.source) for origin in settings.origins("log.retention.ms")] == [
        ("log.retention.ms", "3", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("log.retention.ms", "2", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("log.retention.ms", "1", ConfigSource.STATIC_BROKER_CONFIG),
        ("log.retention.hours", "336", ConfigSource.DEFAULT_CONFIG),
    ]


def test_a_dynamic_change_reaches_topics_and_whoever_listens() -> None:
    settings = BrokerSettings()
    told: list[int] = []
    settings.subscribe(lambda: told.append(settings.get("message.max.bytes")))
    settings.set_dynamic(cluster={"message.max.bytes": "500"}, broker={})
    settings.set_dynamic(cluster={"message.max.bytes": "500"}, broker={})
    assert effective_topic_settings({}, settings)["max.message.bytes"] == 500
    assert told == [500], "a change that changes nothing is not told"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"node.id": "3"}, r"Cannot update these configs dynamically: Set\(node.id\)"),
        ({"log.retention.hours": "3"}, "Cannot update these configs dynamically"),
        ({"log.retention.sm": "3"}, r"Unknown broker config name: log.retention.sm. Did you mean log.retention.ms\?"),
        ({"log.retention.ms": "x"}, "Not a number of type LONG"),
        ({"log.cleaner.max.compaction.lag.ms": "1", "log.cleaner.min.compaction.lag.ms": "2"}, "conflict"),
    ],
)
def test_what_can_not_change_at_runtime_is_refused(values: dict[str, str], message: str) -> None:
    settings = BrokerSettings()
    with pytest.raises(SettingError, match=message):
        settings.validate_dynamic(values, per_broker=False)
    assert settings.dynamic_cluster == {}


def test_a_stored_value_that_is_not_admitted_counts_as_none() -> None:
    effective = effective_topic_settings({"min.insync.replicas": "abc", "retention.ms": "5"}, BrokerSettings())
    assert (effective["min.insync.replicas"], effective["retention.ms"]) == (1, 5)
    assert BrokerSettings().effective_group({"consumer.session.timeout.ms": "abc"}) == BrokerSettings().effective_group(
        {}
    )


def test_dynamic_values_that_can_not_stand_change_nothing() -> None:
    settings = BrokerSettings()
    settings.set_dynamic(cluster={"log.cleaner.backoff.ms": "7"}, broker={})
    with pytest.raises(SettingError):
        settings.set_dynamic(cluster={"log.cleaner.backoff.ms": "x"}, broker={})
    assert settings.get("log.cleaner.backoff.ms") == 7
    assert settings.dynamic_cluster == {"log.cleaner.backoff.ms": "7"}
