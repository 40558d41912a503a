"""What was measured, apart from how it is shown: comparisons with another broker, and measures of ours alone."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from bench.loader import LoadFailed
from bench.peers import BrokerFailed

# The columns, in this order: a broker's name, and what it is.
OURS, OURS_DURABLE, KAFKA, KAFKA_DURABLE = "penstock-os", "penstock-commit", "kafka", "kafka-fsync"
COLUMNS = {
    OURS: "Penstock, flush=os",
    OURS_DURABLE: "Penstock, flush=commit (default)",
    KAFKA: "Kafka (default)",
    KAFKA_DURABLE: "Kafka, fsync each batch",
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure of several brokers under the same load. `goal` is what the ratio of ours to Kafka's must reach."""

    name: str
    title: str
    unit: str
    less_is_better: bool
    goal: float | None
    samples: dict[str, list[float]] = field(default_factory=dict)

    def value(self, column: str) -> float | None:
        found = self.samples.get(column)
        return statistics.median(found) if found else None

    def ratio(self, ours: str, theirs: str) -> float | None:
        """Above 1 means that ours is ahead."""
        mine, other = self.value(ours), self.value(theirs)
        if not mine or not other:
            return None
        return other / mine if self.less_is_better else mine / other

    def reached(self) -> bool | None:
        ratio = self.ratio(OURS, KAFKA)
        return None if self.goal is None or ratio is None else ratio >= self.goal


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of a Penstock broker alone, that should stay at or under its limit."""

    name: str
    title: str
    value: float
    unit: str
    limit: float | None = None
    note: str = ""

    def reached(self) -> bool | None:
        return None if self.limit is None else self.value <= self.limit


@dataclass(slots=True)
class Results:
    comparisons: list[Comparison] = field(default_factory=list)
    measures: list[Measure] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    settings: dict[str, object] = field(default_factory=dict)

    def missed(self) -> list[str]:
        rows: list[Comparison | Measure] = [*self.comparisons, *self.measures]
        return [row.title for row in rows if row.reached() is False]

    def attempt(self, what: str, measures: Iterable[Measure]) -> None:
        """Measures, if it does so only now that it is asked. One failure is a line of the report, not the end of it."""
        began = time.monotonic()
        try:
            found = list(measures)
        except (BrokerFailed, LoadFailed, OSError) as failure:
            self.fail(what, failure)
            return
        self.measures += found
        figures = ", ".join(f"{row.name} {row.value:.4g} {row.unit}" for row in found)
        print(f"  {what}: {figures}  ({time.monotonic() - began:.0f} s)", flush=True)

    def fail(self, what: str, failure: Exception) -> None:
        self.failures.append(f"{what}: {failure}")
        print(f"  {what}: FAILED: {failure}", flush=True)
