"""Filters on topic, partition, offset and timestamp, as narrower ranges of offsets.

Spark looks at every row again, so a range may hold more than was asked for, and never less.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from penstock.pipeline.fetching import OffsetRange

EVER = 1 << 62


@dataclass(slots=True)
class Bounds:
    """What the rows that somebody wants have in common."""

    topics: set[str] | None = None
    partitions: set[int] | None = None
    first_partition: int = 0
    stop_partition: int = EVER
    first_offset: int = 0
    stop_offset: int = EVER
    first_ms: int | None = None  # a record's time, at least
    stop_ms: int | None = None

    def take(self, given: Filter) -> None:
        """Whatever can't be used is left to Spark."""
        column: Any = getattr(given, "attribute", ())
        if len(column) != 1:
            return
        value = getattr(given, "value", None)
        match column[0], given:
            case "topic", EqualTo() if isinstance(value, str):
                self.topics = _both(self.topics, {value})
            case "topic", In():
                self.topics = _both(self.topics, {each for each in given.value if isinstance(each, str)})
            case "partition", In():
                self.partitions = _both(self.partitions, {each for each in given.value if isinstance(each, int)})
            case "partition", _ if isinstance(value, int):
                first, stop = _span(given, value)
                self.first_partition = max(self.first_partition, first)
                self.stop_partition = min(self.stop_partition, stop)
            case "offset", _ if isinstance(value, int):
                first, stop = _span(given, value)
                self.first_offset = max(self.first_offset, first)
                self.stop_offset = min(self.stop_offset, stop)
            case "timestamp", _ if isinstance(value, datetime):
                self._take_time(given, value)

    def _take_time(self, given: Filter, value: datetime) -> None:
        """Records have milliseconds, so what lies between two of them is rounded to where nothing is lost."""
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        micros = round(aware.timestamp() * 1_000_000)
        if isinstance(given, GreaterThan | GreaterThanOrEqual | EqualTo):
            self.first_ms = micros // 1000 if self.first_ms is None else max(self.first_ms, micros // 1000)
        if isinstance(given, LessThan | LessThanOrEqual | EqualTo):
            self.stop_ms = min(EVER if self.stop_ms is None else self.stop_ms, micros // 1000 + 1)

    def narrowed(self, wanted: OffsetRange) -> OffsetRange | None:
        topic, partition = wanted.place
        if self.topics is not None and topic not in self.topics:
            return None
        if self.partitions is not None and partition not in self.partitions:
            return None
        if not self.first_partition <= partition < self.stop_partition:
            return None
        start, stop = max(wanted.start, self.first_offset), min(wanted.stop, self.stop_offset)
        return OffsetRange(wanted.place, start, stop) if start < stop else None


def _both(known: set[Any] | None, more: set[Any]) -> set[Any]:
    return more if known is None else known & more


def _span(given: Filter, value: int) -> tuple[int, int]:
    """The numbers that pass a comparison: the first, and the first that does not pass any more."""
    if isinstance(given, EqualTo):
        return value, value + 1
    if isinstance(given, GreaterThan):
        return value + 1, EVER
    if isinstance(given, GreaterThanOrEqual):
        return value, EVER
    if isinstance(given, LessThan):
        return 0, value
    if isinstance(given, LessThanOrEqual):
        return 0, value + 1
    return 0, EVER
