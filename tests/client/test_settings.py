"""Delivery modes and profiles become settings of librdkafka; what fights is refused, with both names."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.client import Consumer, Producer, SettingsError
from penstock.client.delivery import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, DeliveryMode, find_delivery
from penstock.client.profiles import BALANCED, LATENCY, PROFILE_NAMES, THROUGHPUT, find_profile
from penstock.client.settings import consumer_settings, producer_settings

NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize("mode", [AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE])
def test_a_mode_fixes_what_it_means(mode: DeliveryMode) -> None:
    made = producer_settings(mode, BALANCED, {}, None)
    assert {name: made[name] for name in mode.producer} == dict(mode.producer)
    read = consumer_settings(mode, BALANCED, {}, None)
    assert read["enable.auto.commit"] is False
    assert read["enable.auto.offset.store"] is False


def test_a_setting_overrides_the_profile_under_either_of_its_names() -> None:
    assert producer_settings(AT_LEAST_ONCE, LATENCY, {}, None)["linger.ms"] == 0
    assert producer_settings(AT_LEAST_ONCE, LATENCY, {}, {"linger.ms": 7})["linger.ms"] == 7
    assert producer_settings(AT_LEAST_ONCE, LATENCY, {}, {"queue.buffering.max.ms": 7})["linger.ms"] == 7


@pytest.mark.parametrize(
    ("mode", "settings", "words"),
    [
        (AT_LEAST_ONCE, {"acks": 1}, ("acks=1", "delivery='at-least-once'", "acks=all")),
        (AT_LEAST_ONCE, {"request.required.acks": "0"}, ("acks=0", "delivery='at-least-once'")),
        (AT_LEAST_ONCE, {"enable.idempotence": False}, ("enable.idempotence=false", "delivery='at-least-once'")),
        (AT_MOST_ONCE, {"retries": 3}, ("retries=3", "delivery='at-most-once'", "retries=0")),
        (EXACTLY_ONCE, {"metadata.recovery.strategy": "rebootstrap"}, ("rebootstrap", "delivery='exactly-once'")),
        (AT_LEAST_ONCE, {"linger.ms": 1, "queue.buffering.max.ms": 2}, ("linger.ms", "queue.buffering.max.ms")),
        (AT_LEAST_ONCE, {"bootstrap.servers": "x:1"}, ("bootstrap.servers", "argument bootstrap")),
        (AT_LEAST_ONCE, {"fetch.min.bytes": 1}, ("fetch.min.bytes", "of a consumer")),
        (AT_LEAST_ONCE, {"on_delivery": print}, ("on_delivery", "Delivery")),
    ],
)
def test_settings_that_fight_are_both_named(
    mode: DeliveryMode, settings: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(SettingsError) as caught:
        producer_settings(mode, BALANCED, {}, settings)
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize("settings", [{"acks": "all"}, {"acks": -1}, {"acks": "-1"}, {"enable.idempotence": "true"}])
def test_what_says_the_same_as_the_mode_does_not_fight(settings: dict[str, Any]) -> None:
    producer_settings(AT_LEAST_ONCE, THROUGHPUT, {}, settings)


@pytest.mark.parametrize("name", ["enable.auto.commit", "auto.commit.enable"])
def test_a_consumer_commits_itself(name: str) -> None:
    with pytest.raises(SettingsError, match=r"enable\.auto\.commit=true and delivery='at-least-once'"):
        consumer_settings(AT_LEAST_ONCE, BALANCED, {}, {name: True})


def test_exactly_once_reads_what_is_committed() -> None:
    with pytest.raises(SettingsError, match=r"isolation\.level=read_uncommitted and delivery='exactly-once'"):
        consumer_settings(EXACTLY_ONCE, BALANCED, {}, {"isolation.level": "read_uncommitted"})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"linger.m": 5}, "Did you mean 'linger.ms'"),
        ({"qqqqqq": 5}, r"CONFIGURATION\.md"),
        ({"linger.ms": -5}, "outside allowed range"),
        ({"acks": "all", "linger.ms": "soon"}, r"linger\.ms"),
        ({"max.in.flight": 50}, "max.in.flight"),
    ],
)
def test_what_librdkafka_does_not_take_is_a_settings_error(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        Producer(NOWHERE, settings=settings)


def test_a_consumers_unknown_setting_is_named_with_its_near_miss() -> None:
    with pytest.raises(SettingsError, match=r"no setting 'fetch\.min\.byte'\. Did you mean 'fetch\.min\.bytes'"):
        Consumer(NOWHERE, "group", "topic", settings={"fetch.min.byte": 1})


def test_names_of_modes_and_profiles_have_near_misses() -> None:
    with pytest.raises(SettingsError, match="'at-least-once'"):
        find_delivery("at-least-ones")
    with pytest.raises(SettingsError, match="'throughput'"):
        find_profile("thruput")
    assert [find_profile(name).name for name in PROFILE_NAMES] == list(PROFILE_NAMES)


@pytest.mark.parametrize(
    "options",
    [
        {"delivery": "at-least-once", "transactional_id": "x"},
        {"partitioner": "murmur"},
        {"value": "jsn"},
        {"bootstrap": "localhost"},
        {"bootstrap": ""},
        {"settings": ["linger.ms"]},
    ],
)
def test_a_producers_wrong_argument_is_a_settings_error(options: dict[str, Any]) -> None:
    with pytest.raises(SettingsError) as caught:
        Producer(**{"bootstrap": NOWHERE, **options})
    assert caught.value.hint


@pytest.mark.parametrize(
    "options", [{"start": "yesterday"}, {"commit_every": 0}, {"commit_interval_s": "1"}, {"where": 7}, {"where": {}}]
)
def test_a_consumers_wrong_argument_is_a_settings_error(options: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        Consumer(NOWHERE, "group", "topic", **options)
