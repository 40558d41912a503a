"""How often, how long, and under which names: the parts that need no broker."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.errors import BadName, SettingsError
from penstock.client.retrying.policy import UNITS_MS, Retry, exponential, fixed, milliseconds, spoken, steps
from penstock.client.retrying.topics import NAME_MAX, places


@pytest.mark.parametrize(
    ("duration", "expected_ms"),
    [("500ms", 500), ("1s", 1_000), ("1.5m", 90_000), (" 2 h ", 7_200_000), (30, 30_000), (0.25, 250),
     (timedelta(days=1), 86_400_000)],
)  # fmt: skip
def test_a_duration_is_a_text_a_number_of_seconds_or_a_timedelta(duration: object, expected_ms: int) -> None:
    assert milliseconds(duration, "x") == expected_ms  # type: ignore[arg-type]


@pytest.mark.parametrize("duration", ["", "soon", "5 parsecs", "-1s", 0, -3, True, None, "400d", float("nan")])
def test_what_is_no_duration_is_refused_with_what_would_be(duration: object) -> None:
    with pytest.raises(SettingsError, match="500ms"):
        milliseconds(duration, "the delay")  # type: ignore[arg-type]


@given(st.integers(1, 10**10))
def test_a_delay_in_words_means_the_same_delay(delay_ms: int) -> None:
    said = spoken(delay_ms)
    unit = said.lstrip("0123456789")
    assert int(said.removesuffix(unit)) * UNITS_MS[unit] == delay_ms


def test_backoff_grows_to_its_limit_and_stays_there() -> None:
    retry = Retry(attempts=8, backoff=exponential("1s", "10s"))
    assert [retry.delay_s(attempt) for attempt in range(1, 8)] == [1, 2, 4, 8, 10, 10, 10]
    assert retry.tiers_ms == (1000, 2000, 4000, 8000, 10_000)
    assert Retry(attempts=5, backoff=fixed("30s")).tiers_ms == (30_000,)
    assert Retry(attempts=4, backoff=steps("1s", "1h")).tiers_ms == (1000, 3_600_000)
    assert Retry(attempts=1).tiers_ms == ()


@given(st.integers(1, 100), st.integers(1, 1000), st.integers(1, 1000), st.floats(1.5, 10))
def test_there_is_a_tier_for_every_delay(attempts: int, first_s: int, more_s: int, factor: float) -> None:
    retry = Retry(min(attempts, 12), exponential(first_s, first_s + more_s, factor))
    assert {retry.delay_ms(attempt) for attempt in range(1, retry.attempts)} == set(retry.tiers_ms)
    assert list(retry.tiers_ms) == sorted(set(retry.tiers_ms))


def test_some_errors_are_not_tried_again() -> None:
    retry = Retry(3, retry_on=(OSError, ValueError), give_up_on=FileNotFoundError)
    assert retry.tries_again(TimeoutError(), 1)
    assert not retry.tries_again(FileNotFoundError(), 1)
    assert not retry.tries_again(KeyError(), 1)
    assert not retry.tries_again(ValueError(), 3)


@pytest.mark.parametrize(
    "options",
    [{"attempts": 0}, {"attempts": 101}, {"attempts": "5"}, {"backoff": "1s"}, {"retry_on": "ValueError"},
     {"attempts": 50, "backoff": exponential("1ms", "300d", 1.5)}],
)  # fmt: skip
def test_a_policy_that_makes_no_sense_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(SettingsError):
        Retry(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("first", "longest", "factor"), [("2s", "1s", 2), ("1s", "2s", 1), ("1s", "2s", "x")])
def test_a_backoff_that_makes_no_sense_is_refused(first: str, longest: str, factor: object) -> None:
    with pytest.raises(SettingsError):
        exponential(first, longest, factor)  # type: ignore[arg-type]


def test_topics_are_named_after_topic_group_and_delay() -> None:
    found = places("orders", "billing", (1000, 600_000), True)
    assert found.names == ["orders.billing.retry.1s", "orders.billing.retry.10m", "orders.billing.dlq"]
    assert found.tier(600_000).topic == "orders.billing.retry.10m"
    assert places("orders", "billing", (), "graveyard").names == ["graveyard"]
    assert places("orders", "billing", (1000,), False).dead_letters is None


def test_names_that_no_topic_can_have_are_refused() -> None:
    longest = "t" * (NAME_MAX - len(".g.dlq"))
    assert len(places(longest, "g", (), True).names[0]) == NAME_MAX
    with pytest.raises(BadName, match="shorten one"):
        places(longest + "t", "g", (), True)
    with pytest.raises(BadName, match="letters, digits"):
        places("orders", "the group", (), True)
