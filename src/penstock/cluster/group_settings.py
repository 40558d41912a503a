"""Every setting a group may carry of its own, within the limits and in place of the defaults that brokers set for all.

Kafka's names, rules and words (KIP-848): a group has a shorter or a longer session than others, if the broker allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from penstock.cluster.setting_types import Setting, SettingError, SettingType, Value, at_least


class Limits(NamedTuple):
    """The broker's settings that stand behind one of a group: its default, and between what it must be."""

    default: str
    least: str
    most: str


SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"

LIMITS = {
    name: Limits(f"group.{name}", f"group.consumer.min.{rest}", f"group.consumer.max.{rest}")
    for name, rest in ((SESSION, "session.timeout.ms"), (HEARTBEAT, "heartbeat.interval.ms"))
}

GROUP_SETTINGS = {
    setting.name: setting
    for setting in (
        Setting(SESSION, SettingType.INT, None, "A member that was not heard of for this long has left.", at_least(1)),
        Setting(HEARTBEAT, SettingType.INT, None, "How often members are told to make themselves heard.", at_least(1)),
    )
}

assert GROUP_SETTINGS.keys() == LIMITS.keys()


def check_limits(broker: Mapping[str, Any]) -> None:
    """Raises SettingError unless the broker's own defaults are within its limits, and these are in order."""
    for limits in LIMITS.values():
        _check_order(broker, limits.least, limits.most)
        _check_order(broker, limits.least, limits.default)
        _check_order(broker, limits.default, limits.most)
    session, heartbeat = LIMITS[SESSION].default, LIMITS[HEARTBEAT].default
    if broker[heartbeat] >= broker[session]:
        raise SettingError(f"{heartbeat} must be less than {session}")


def _check_order(broker: Mapping[str, Any], less: str, more: str) -> None:
    if broker[less] > broker[more]:
        raise SettingError(f"{more} must be greater than or equal to {less}")


def check_group_config(config: Mapping[str, str], broker: Mapping[str, Any]) -> None:
    """Raises SettingError unless every name is known, and every value is one that the broker allows a group."""
    for name, text in config.items():
        if name not in GROUP_SETTINGS:
            raise SettingError(f"Unknown group config name: {name}")
        GROUP_SETTINGS[name].parse(text)
    values = _merge(config, broker)
    for name, value in values.items():
        limits = LIMITS[name]
        if value < broker[limits.least]:
            raise SettingError(f"{name} must be greater than or equal to {limits.least}")
        if value > broker[limits.most]:
            raise SettingError(f"{name} must be less than or equal to {limits.most}")
    if values[SESSION] <= values[HEARTBEAT]:
        raise SettingError(f"{SESSION} must be greater than {HEARTBEAT}")


def effective_group_settings(config: Mapping[str, str], broker: Mapping[str, Any]) -> dict[str, int]:
    """What counts for a group of this config. A broker that was started with other limits than when it was set keeps
    to its own."""
    return {
        name: min(max(value, broker[LIMITS[name].least]), broker[LIMITS[name].most])
        for name, value in _merge(config, broker).items()
    }


def _merge(config: Mapping[str, str], broker: Mapping[str, Any]) -> dict[str, int]:
    """A value that is stored and not admitted was written by a newer version: the broker's default counts."""
    values = {name: int(broker[limits.default]) for name, limits in LIMITS.items()}
    for name in GROUP_SETTINGS.keys() & config.keys():
        with suppress(SettingError):
            values[name] = _whole(GROUP_SETTINGS[name].parse(config[name]))
    return values


def _whole(value: Value) -> int:
    assert isinstance(value, int)
    return value
