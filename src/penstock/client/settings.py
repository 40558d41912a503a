"""From the names of a delivery and a profile, and what overrides them, to the settings of one client of librdkafka.

A setting that was overridden counts more than the profile's; one that contradicts the delivery, or an argument, or
another setting is an error that names both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException

from penstock.client.delivery import DeliveryMode
from penstock.client.errors import PenstockError, SettingsError, from_kafka, near_miss
from penstock.client.profiles import Profile
from penstock.client.setting_names import COMMON_NAMES, CONSUMER_NAMES, PRODUCER_NAMES

Settings = dict[str, Any]

# Two names of one setting: what we and Kafka call it, by what librdkafka calls it as well.
ALIASES = {
    "metadata.broker.list": "bootstrap.servers",
    "request.required.acks": "acks",
    "message.send.max.retries": "retries",
    "queue.buffering.max.ms": "linger.ms",
    "compression.codec": "compression.type",
    "message.timeout.ms": "delivery.timeout.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "auto.commit.enable": "enable.auto.commit",
    "sasl.mechanisms": "sasl.mechanism",
}
# What an argument says is not said a second time.
ARGUMENTS = {
    "bootstrap.servers": "bootstrap",
    "group.id": "group",
    "auto.offset.reset": "start",
    "transactional.id": "transactional_id",
    "partitioner": "partitioner",
}
# Not librdkafka's, but confluent-kafka's.
CALLBACKS = frozenset({"error_cb", "stats_cb", "throttle_cb", "oauth_cb", "logger"})
OWN_CALLBACKS = frozenset({"on_delivery", "dr_cb", "delivery_cb", "on_commit", "offset_commit_cb", "rebalance_cb"})

# And what would keep the answer to a message from whoever waits for it.
OWN_SETTINGS = frozenset({"delivery.report.only.error"})

_COMMON = {"client.id": "penstock-python", "log_level": 2}


def producer_settings(
    mode: DeliveryMode, profile: Profile, arguments: Mapping[str, Any], overrides: Mapping[str, Any] | None
) -> Settings:
    return _merge("producer", mode, mode.producer, {**profile.producer, **mode.producer_usual}, arguments, overrides)


def consumer_settings(
    mode: DeliveryMode, profile: Profile, arguments: Mapping[str, Any], overrides: Mapping[str, Any] | None
) -> Settings:
    return _merge("consumer", mode, mode.consumer, profile.consumer, arguments, overrides)


def _merge(
    kind: str,
    mode: DeliveryMode,
    fixed: Mapping[str, Any],
    usual: Mapping[str, Any],
    arguments: Mapping[str, Any],
    overrides: Mapping[str, Any] | None,
) -> Settings:
    """`fixed` is the delivery's, `usual` the profile's, `arguments` what the client was given under names of ours."""
    given = _canonical(overrides)
    for name, value in given.items():
        _check_name(name, kind)
        if name in fixed and not _same(fixed[name], value):
            raise SettingsError(
                f"{name}={_show(value)} and delivery={mode.name!r} contradict each other: "
                f"that delivery is {name}={_show(fixed[name])}.",
                "Leave out the one, or choose another delivery.",
            )
    found = {**_COMMON, **usual, **given, **fixed, **arguments}
    _check_text(found)
    return found


def _check_text(settings: Settings) -> None:
    """confluent-kafka does not survive what is no Unicode."""
    for name, value in settings.items():
        try:
            f"{name}{value if isinstance(value, str) else ''}".encode()
        except UnicodeEncodeError as failure:
            said = ARGUMENTS.get(name, name)
            raise SettingsError(f"{said}={value!r} is no text: {failure}.", "Surrogates stand for bytes.") from failure


def check_settings(given: Mapping[str, Any] | None, option: str = "settings") -> Mapping[str, Any]:
    """What was given under this name, or none."""
    if given is not None and not isinstance(given, Mapping):
        raise SettingsError(f"{option} is {type(given).__name__}, not a dict.", "For example: {'client.id': 'till'}")
    return given or {}


def _canonical(overrides: Mapping[str, Any] | None) -> Settings:
    found: Settings = {}
    said: dict[str, str] = {}
    for name, value in check_settings(overrides).items():
        if not isinstance(name, str):
            raise SettingsError(f"settings: {name!r} is no name of a setting.", "For example: {'linger.ms': 5}")
        known = ALIASES.get(name, name)
        if known in said:
            raise SettingsError(f"{said[known]} and {name} are two names of one setting.", "Give one of them.")
        said[known] = name
        found[known] = value
    return found


def _check_name(name: str, kind: str) -> None:
    if name in ARGUMENTS:
        raise SettingsError(
            f"the setting {name} is the argument {ARGUMENTS[name]}.", f"Give {ARGUMENTS[name]}=… instead."
        )
    if name in OWN_CALLBACKS:
        raise SettingsError(
            f"the callback {name} is this client's own.", "Use the Delivery that send() returns, or a listener."
        )
    if name in OWN_SETTINGS:
        raise SettingsError(
            f"the setting {name} is this client's own: no Delivery would ever know that its message has arrived.",
            "Leave it out; a Delivery that nobody asks costs next to nothing.",
        )
    others, other = (CONSUMER_NAMES, "consumer") if kind == "producer" else (PRODUCER_NAMES, "producer")
    if name in others:
        mine = PRODUCER_NAMES if kind == "producer" else CONSUMER_NAMES
        raise SettingsError(f"{name} is a setting of a {other}, and this is a {kind}.", near_miss(name, mine))


def refused(failure: KafkaException, names: Mapping[str, Any]) -> PenstockError:
    """For what librdkafka says when a client is made: a name it does not know, or a value."""
    error = failure.args[0]
    text: str = error.str().strip()
    for name in names:
        if text == f'No such configuration property: "{name}"':
            known = COMMON_NAMES | PRODUCER_NAMES | CONSUMER_NAMES | CALLBACKS
            hint = near_miss(name, known) or "librdkafka's CONFIGURATION.md lists what there is."
            return SettingsError(f"there is no setting {name!r}.", hint, kafka_error=error.name())
    if error.name() in ("_INVALID_ARG", "_CONFLICT"):
        text = text.removeprefix("Failed to create producer: ").removeprefix("Failed to create consumer: ")
        hint = "librdkafka's CONFIGURATION.md says what each may be."
        return SettingsError(f"settings: {_by_our_names(text).rstrip('.')}.", hint, kafka_error=error.name())
    return from_kafka(error, "making a client")


def _by_our_names(text: str) -> str:
    """librdkafka speaks of a setting by its own name of it, which is seldom the one that was given."""
    for alias, name in ALIASES.items():
        text = re.sub(rf"(?<![\w.]){re.escape(alias)}(?![\w.])", name, text)
    return text


def _same(one: Any, other: Any) -> bool:
    return _plain(one) == _plain(other)


def _plain(value: Any) -> str:
    text = str(value).lower()
    return "all" if text == "-1" else text


def _show(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
