"""Settings as clients are shown them: each with its value in force and every place that gives it one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import dropwhile
from typing import NamedTuple

from penstock.cluster.settings import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    BrokerSettings,
    ConfigSource,
    Origin,
    Setting,
    SettingType,
    effective_topic_settings,
)


class ConfigEntry(NamedTuple):
    setting: Setting
    value: str | None
    source: ConfigSource
    read_only: bool
    origins: list[Origin]


def _entry(setting: Setting, value: str | None, origins: list[Origin], *, read_only: bool) -> ConfigEntry:
    source = origins[0].source if origins else ConfigSource.DEFAULT_CONFIG
    return ConfigEntry(setting, value, source, read_only, origins)


def topic_entries(topic_config: Mapping[str, str], settings: BrokerSettings) -> Iterator[ConfigEntry]:
    effective = effective_topic_settings(topic_config, settings)
    for name, setting in TOPIC_SETTINGS.items():
        if not setting.internal:
            origins = settings.topic_origins(name, topic_config)
            yield _entry(setting, setting.text(effective[name]), origins, read_only=False)


def broker_entries(settings: BrokerSettings, following: Mapping[str, str]) -> Iterator[ConfigEntry]:
    """`following` has the values of those that follow from others where they are not set."""
    for name, setting in BROKER_SETTINGS.items():
        # Kafka begins with the setting itself: other names of it that come before count only in the list.
        origins = list(dropwhile(lambda origin: origin.name != name, settings.origins(name)))  # noqa: B023
        if name in following and all(origin.source is ConfigSource.DEFAULT_CONFIG for origin in origins):
            origin = Origin(name, following[name], ConfigSource.STATIC_BROKER_CONFIG)
            yield _entry(setting, following[name], [origin, *origins], read_only=True)
            continue
        yield _entry(setting, setting.text(settings.get(name)), origins, read_only=not setting.dynamic)


# No setting, so only who asks for it by name is told.
CONNECTED = Setting(
    "zookeeper.connected", SettingType.BOOLEAN, None,
    "Whether the broker reaches what coordinates its cluster now. While it does not, it serves, and decides nothing.",
)  # fmt: skip


def connected_entry(connected: bool) -> ConfigEntry:
    return _entry(CONNECTED, CONNECTED.text(connected), [], read_only=True)


def cluster_entries(settings: BrokerSettings) -> Iterator[ConfigEntry]:
    """What was changed at runtime on all brokers, and nothing else."""
    for name, value in settings.dynamic_cluster.items():
        if setting := BROKER_SETTINGS.get(name):
            origin = Origin(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
            yield _entry(setting, value, [origin], read_only=not setting.dynamic)
