"""The settings in force: what the broker was started with, what was changed since, and what each topic makes of it.

A broker setting is looked up at four levels, as in Kafka: set on this broker at runtime, set on the whole cluster at
runtime, given at the start, default. A topic setting is the topic's own or else the broker's, and so is a group's.
`BrokerSettings` holds the levels; what is derived from them is cached until a level changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from penstock.cluster import group_settings
from penstock.cluster.broker_settings import ALTERNATIVES, BROKER_SETTINGS
from penstock.cluster.group_settings import GROUP_SETTINGS
from penstock.cluster.setting_types import Setting, SettingError, SettingType, Value
from penstock.cluster.topic_settings import SYNONYMS, TOPIC_SETTINGS, parse_topic_config

__all__ = [
    "BROKER_SETTINGS",
    "GROUP_SETTINGS",
    "TOPIC_SETTINGS",
    "BrokerSettings",
    "ConfigSource",
    "Origin",
    "Setting",
    "SettingError",
    "SettingType",
    "Value",
    "effective_topic_settings",
    "unusable",
    "validate_topic_config",
]

EFFECTIVE_CACHED_MAX = 4096


class ConfigSource(IntEnum):
    """Where a value came from; the ids are those of DescribeConfigs."""

    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    GROUP_CONFIG = 8


class Origin(NamedTuple):
    """One of the places that give a setting a value, as DescribeConfigs lists them."""

    name: str
    text: str
    source: ConfigSource


class BrokerSettings:
    """What `get` answers is typed and current. Only the controller changes the dynamic levels."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        given = dict(values or {})
        for name in given:
            if name not in BROKER_SETTINGS:
                raise SettingError(f"Unknown setting: {name}.{_suggestion(name)}")
        if given.get("broker.id", given.get("node.id")) != given.get("node.id", given.get("broker.id")):
            raise SettingError("node.id and broker.id are one setting, but have two values: give only node.id.")
        if "broker.id" in given:
            given.setdefault("node.id", given["broker.id"])
        self._static: Mapping[str, str] = given
        self._cluster: Mapping[str, str] = {}
        self._broker: Mapping[str, str] = {}
        self._values: dict[str, Value] = {}
        self._topic_defaults: dict[str, Value] = {}
        self._effective: dict[frozenset[tuple[str, str]], Mapping[str, Value]] = {}
        self._listeners: list[Callable[[], None]] = []
        self._recompute()

    def get(self, name: str) -> Any:
        """The value in force, of the setting's own type. A name that does not exist is a mistake in the program."""
        return self._values[name]

    def topic_default(self, name: str) -> Any:
        """What a topic gets that does not set this topic setting."""
        return self._topic_defaults[name]

    def subscribe(self, changed: Callable[[], None]) -> None:
        """`changed` is called after a dynamic setting has changed."""
        self._listeners.append(changed)

    @property
    def dynamic_cluster(self) -> Mapping[str, str]:
        return self._cluster

    @property
    def dynamic_broker(self) -> Mapping[str, str]:
        return self._broker

    def set_dynamic(self, *, cluster: Mapping[str, str], broker: Mapping[str, str]) -> None:
        """Replaces both dynamic levels. Raises SettingError, and changes nothing, if the values can't stand."""
        before = self._values, self._topic_defaults
        levels = self._cluster, self._broker
        self._cluster, self._broker = dict(cluster), dict(broker)
        try:
            self._recompute()
        except SettingError:
            self._cluster, self._broker = levels
            self._recompute()
            raise
        if (self._values, self._topic_defaults) != before:
            for changed in self._listeners:
                changed()

    def validate_dynamic(self, values: Mapping[str, str], *, per_broker: bool) -> None:
        """Raises SettingError unless these may stand as one of the dynamic levels."""
        if unknown := [name for name in values if name not in BROKER_SETTINGS]:
            raise SettingError(f"Unknown broker config name: {unknown[0]}.{_suggestion(unknown[0])}")
        if fixed := sorted(name for name in values if not BROKER_SETTINGS[name].dynamic):
            raise SettingError(f"Cannot update these configs dynamically: Set({', '.join(fixed)})")
        cluster, broker = (self._cluster, values) if per_broker else (values, self._broker)
        BrokerSettings(self._static).set_dynamic(cluster=cluster, broker=broker)

    def origins(self, name: str) -> list[Origin]:
        """Every level that gives a value to a broker setting, or to another name of it; the first is in force."""
        names = ALTERNATIVES.get(name, (name,))
        found = [
            Origin(each, level[each], source) for level, source in self._levels() for each in names if each in level
        ]
        for each in names:
            setting = BROKER_SETTINGS[each]
            if (text := setting.text(setting.default)) is not None:
                found.append(Origin(each, text, ConfigSource.DEFAULT_CONFIG))
        return found

    def topic_origins(self, name: str, topic_config: Mapping[str, str]) -> list[Origin]:
        """The same of a topic setting."""
        own = [Origin(name, topic_config[name], ConfigSource.TOPIC_CONFIG)] if name in topic_config else []
        synonyms = SYNONYMS.get(name)
        return own + (self.origins(synonyms[0].name) if synonyms else [])

    def _levels(self) -> tuple[tuple[Mapping[str, str], ConfigSource], ...]:
        return (
            (self._broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self._cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self._static, ConfigSource.STATIC_BROKER_CONFIG),
        )

    def _recompute(self) -> None:
        given = {**self._static, **self._cluster, **self._broker}
        self._values = {
            name: setting.parse(given[name]) if name in given else setting.default
            for name, setting in BROKER_SETTINGS.items()
        }
        self._values["broker.id"] = self._values["node.id"]
        self._topic_defaults = {name: self._topic_default(name) for name in TOPIC_SETTINGS}
        self._effective = {}
        _check_lags(self._topic_defaults)
        group_settings.check_limits(self._values)

    def _topic_default(self, name: str) -> Value:
        setting = TOPIC_SETTINGS[name]
        units = {synonym.name: synonym.unit_ms for synonym in SYNONYMS.get(name, ())}
        for origin in self.origins(next(iter(units))) if units else ():
            value = BROKER_SETTINGS[origin.name].parse(origin.text)
            if units[origin.name] == 1:
                return value
            assert isinstance(value, int)
            return value * units[origin.name] if value >= 0 else -1
        return setting.default

    def effective(self, topic_config: Mapping[str, str]) -> Mapping[str, Value]:
        key = frozenset(topic_config.items())
        known = self._effective.get(key)
        if known is None:
            if len(self._effective) >= EFFECTIVE_CACHED_MAX:
                self._effective.clear()
            known = self._effective[key] = MappingProxyType(_merge(self._topic_defaults, topic_config))
        return known

    def check_group_config(self, group_config: Mapping[str, str]) -> None:
        """Raises SettingError unless a group may have these settings."""
        group_settings.check_group_config(group_config, self._values)

    def effective_group(self, group_config: Mapping[str, str]) -> dict[str, int]:
        """Every group setting with the value in force for a group of this config."""
        return group_settings.effective_group_settings(group_config, self._values)

    def group_origins(self, name: str, group_config: Mapping[str, str]) -> list[Origin]:
        """As in Kafka, always one: that the default is the broker's is not shown."""
        source = ConfigSource.GROUP_CONFIG if name in group_config else ConfigSource.DEFAULT_CONFIG
        return [Origin(name, str(self.effective_group(group_config)[name]), source)]


def _merge(defaults: Mapping[str, Value], topic_config: Mapping[str, str]) -> dict[str, Value]:
    merged = dict(defaults)
    for name, text in topic_config.items():
        # A name or a value that this version does not know was written by a newer one: it has no meaning here.
        with suppress(KeyError, SettingError):
            merged[name] = TOPIC_SETTINGS[name].parse(text)
    if merged["internal.segment.bytes"] is not None:
        merged["segment.bytes"] = merged["internal.segment.bytes"]
    return merged


def effective_topic_settings(topic_config: Mapping[str, str], broker: BrokerSettings) -> Mapping[str, Value]:
    """Every topic setting with the value in force for a topic of this config. Computed once per config."""
    return broker.effective(topic_config)


def unusable(config: Mapping[str, str], known: Mapping[str, Setting]) -> dict[str, SettingError]:
    """Which of the stored values are not admitted, and why. A name that is not known has no meaning, and no fault."""
    found = {}
    for name, text in config.items():
        try:
            if name in known:
                known[name].parse(text)
        except SettingError as error:
            found[name] = error
    return found


def validate_topic_config(topic_config: Mapping[str, str], broker: BrokerSettings) -> None:
    """Raises SettingError unless every name is known, every value admitted, and they agree with each other."""
    parse_topic_config(topic_config)
    _check_lags(_merge(broker.effective({}), topic_config))


def _check_lags(values: Mapping[str, Any]) -> None:
    least, most = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if least > most:
        raise SettingError(
            f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})"
        )


def _suggestion(name: str) -> str:
    import difflib  # only a mistake pays for it

    near = difflib.get_close_matches(name, BROKER_SETTINGS, n=1, cutoff=0.6)
    return f" Did you mean {near[0]}?" if near else " docs/settings.md lists them all."
