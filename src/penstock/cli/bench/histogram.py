"""Latencies counted in buckets of growing width: bounded memory, an error of 3 % at most, and a picture in blocks.

Within each power of two there are 32 buckets, so that a bucket is never wider than 1/32 of its values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

SUB_BITS = 5
SUB_COUNT = 1 << SUB_BITS
BUCKETS = (64 - SUB_BITS) * SUB_COUNT

PERCENTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999))
EIGHTHS = " ▏▎▍▌▋▊▉█"
BAR_WIDTH = 40


def bucket_of(value_ns: int) -> int:
    if value_ns < SUB_COUNT:
        return max(0, value_ns)
    shift = value_ns.bit_length() - SUB_BITS - 1
    return min(BUCKETS - 1, (shift << SUB_BITS) + (value_ns >> shift))


def bucket_middle_ns(bucket: int) -> float:
    """The value that stands for all that fell into the bucket."""
    if bucket < SUB_COUNT:
        return float(bucket)
    shift = (bucket >> SUB_BITS) - 1
    low = (SUB_COUNT + (bucket & (SUB_COUNT - 1))) << shift
    return low + (1 << shift) / 2


def add(histograms: Iterable[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip(*histograms)]


def percentiles_ms(counts: Sequence[int], max_ns: int) -> dict[str, float]:
    """p50 to p99.9, and the largest exactly as it was. Empty if there was nothing to count."""
    total = sum(counts)
    if not total:
        return {}
    found: dict[str, float] = {}
    seen = 0
    waiting = list(PERCENTILES)
    for bucket, count in enumerate(counts):
        seen += count
        while waiting and seen >= waiting[0][1] * total:
            found[waiting.pop(0)[0]] = min(bucket_middle_ns(bucket), max_ns) / 1e6
    return {**found, "max": max_ns / 1e6}


class Row(NamedTuple):
    from_ms: float
    to_ms: float
    messages: int


def rows(counts: Sequence[int]) -> list[Row]:
    """The counts between the round numbers 1, 2, 5, 10 … that enclose them."""
    edges = list(_round_edges_ms())
    totals = [0] * (len(edges) - 1)
    edge = 0
    for bucket, count in enumerate(counts):
        if count:
            value_ms = bucket_middle_ns(bucket) / 1e6
            while edge < len(totals) - 1 and value_ms >= edges[edge + 1]:
                edge += 1
            totals[edge] += count
    used = [position for position, total in enumerate(totals) if total]
    if not used:
        return []
    return [Row(edges[i], edges[i + 1], totals[i]) for i in range(used[0], used[-1] + 1)]


def _round_edges_ms() -> Iterator[float]:
    yield 0.0
    for exponent in range(-2, 6):
        for digit in (1, 2, 5):
            yield float(f"{digit}e{exponent}")


def draw(counts: Sequence[int]) -> list[str]:
    """One line a row: `  1 to 2 ms  ██████████▌   34.2 %`"""
    found = rows(counts)
    if not found:
        return []
    total, most = sum(row.messages for row in found), max(row.messages for row in found)
    labels = [(f"{row.from_ms:g}", f"{row.to_ms:g}") for row in found]
    left, right = (max(len(label[side]) for label in labels) for side in (0, 1))
    return [
        f"{low:>{left}} to {high:>{right}} ms  {_bar(row.messages / most)}  {100 * row.messages / total:5.1f} %"
        for (low, high), row in zip(labels, found)
    ]


def _bar(part: float) -> str:
    """Never empty for a count above zero, since the tail is what one looks for."""
    eighths = max(1 if part else 0, round(part * BAR_WIDTH * 8))
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + EIGHTHS[rest].strip()).ljust(BAR_WIDTH)
