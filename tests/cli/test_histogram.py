from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.bench.histogram import BUCKETS, bucket_middle_ns, bucket_of, draw, percentiles_ms, rows


def counted(values_ns: list[int]) -> list[int]:
    counts = [0] * BUCKETS
    for value_ns in values_ns:
        counts[bucket_of(value_ns)] += 1
    return counts


@given(st.integers(0, 2**62))
def test_a_bucket_stands_for_its_values_within_three_percent(value_ns: int) -> None:
    assert bucket_middle_ns(bucket_of(value_ns)) == pytest.approx(value_ns, rel=0.032)


@given(st.integers(0, 2**62), st.integers(0, 2**62))
def test_a_larger_value_is_never_in_a_lower_bucket(one: int, other: int) -> None:
    assert (bucket_of(one) <= bucket_of(other)) or one > other


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=200))
def test_percentiles_are_those_of_the_sorted_values(values_ns: list[int]) -> None:
    found = percentiles_ms(counted(values_ns), max(values_ns))
    ordered = sorted(values_ns)
    for name, part in (("p50", 0.5), ("p99", 0.99)):
        rank = max(0, -int(-part * len(ordered) // 1) - 1)
        assert found[name] * 1e6 == pytest.approx(ordered[rank], rel=0.033, abs=1)
    assert found["max"] == max(values_ns) / 1e6


def test_nothing_counted_is_nothing_shown() -> None:
    assert percentiles_ms([0] * BUCKETS, 0) == {}
    assert draw([0] * BUCKETS) == []


def test_rows_are_between_round_numbers_and_without_gaps() -> None:
    found = rows(counted([1_500_000, 1_600_000, 7_000_000]))
    assert [tuple(row) for row in found] == [(1.0, 2.0, 2), (2.0, 5.0, 0), (5.0, 10.0, 1)]


def test_the_longest_bar_is_full_and_the_shortest_is_still_seen() -> None:
    lines = draw(counted([1_500_000] * 10_000 + [70_000_000]))
    assert "█" * 40 in lines[0]
    assert "▏" in lines[-1]
    assert len({len(line) for line in lines}) == 1
