"""The rows of all trials, shown together at the end, also where workers of pytest-xdist ran them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

ROW = "row of the table of faults"  # a property of a test, which reaches the process that reports from any other


@dataclass(frozen=True, slots=True)
class Row:
    """What is shown of a trial."""

    fault: str
    acknowledged: int
    rate: float  # messages a second that were sent
    silence_s: float  # the longest time without any acknowledgement
    pause_s: float  # the longest time without one in some partition
    whole_s: float  # from the end of the fault until all replicas were in sync


def worst(rows: list[Row]) -> list[Row]:
    """One for each fault, however often it happened."""
    found: dict[str, Row] = {}
    for row in rows:
        other = found.get(row.fault, row)
        found[row.fault] = Row(
            row.fault, min(row.acknowledged, other.acknowledged), min(row.rate, other.rate),
            max(row.silence_s, other.silence_s), max(row.pause_s, other.pause_s), max(row.whole_s, other.whole_s),
        )  # fmt: skip
    return list(found.values())


def table(rows: list[Row]) -> list[str]:
    width = max((len(row.fault) for row in rows), default=0)
    lines = [f"{'fault':{width}}  acknowledged  sent/s  silence s  pause s  in sync s"]
    lines += [
        f"{row.fault:{width}}  {row.acknowledged:12}  {row.rate:6.0f}  {row.silence_s:9.2f}  {row.pause_s:7.2f}  "
        f"{row.whole_s:9.2f}"
        for row in rows
    ]
    return lines


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    passed = terminalreporter.stats.get("passed", [])
    rows = [Row(**value) for report in passed for name, value in report.user_properties if name == ROW]
    if rows:
        terminalreporter.section("faults")
        for line in table(worst(rows)):
            terminalreporter.write_line(line)
