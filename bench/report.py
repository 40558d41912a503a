"""The report: a table for people (results.md), everything for programs (results.json), and a picture (results.svg)."""

from __future__ import annotations

import json
import os
import platform
import statistics
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from bench import plot
from bench.jars import VERSION
from bench.results import COLUMNS, KAFKA, KAFKA_DURABLE, OURS, OURS_DURABLE, Comparison, Measure, Results

VERDICTS = {True: "yes", False: "**no**", None: "–"}


def machine() -> dict[str, str]:
    model = next(
        (line.partition(":")[2].strip() for line in _read("/proc/cpuinfo") if line.startswith("model name")), ""
    )
    total = next((line.split()[1] for line in _read("/proc/meminfo") if line.startswith("MemTotal:")), "0")
    return {
        "processor": f"{os.cpu_count()} × {model or platform.machine()}",
        "memory": f"{int(total) / 1024 / 1024:.0f} GB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "kafka": VERSION,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def _read(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def write(results: Results, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        "results.json": json.dumps(as_json(results), indent=1, ensure_ascii=False) + "\n",
        "results.md": as_markdown(results),
        "results.svg": plot.draw(results),
    }
    for name, text in contents.items():
        (folder / name).write_text(text)
    return [folder / name for name in contents]


def as_json(results: Results) -> dict[str, object]:
    return {
        "machine": machine(),
        "settings": results.settings,
        "comparisons": [
            asdict(row)
            | {
                "medians": {column: row.value(column) for column in row.samples},
                "ratio": row.ratio(OURS, KAFKA),
                "ratio_durable_to_default_kafka": row.ratio(OURS_DURABLE, KAFKA),
                "ratio_durable": row.ratio(OURS_DURABLE, KAFKA_DURABLE),
                "reached": row.reached(),
            }
            for row in results.comparisons
        ],
        "measures": [asdict(row) | {"reached": row.reached()} for row in results.measures],
        "failures": results.failures,
    }


# ---- for people


def as_markdown(results: Results) -> str:
    lines = ["# What was measured", "", *(f"- {name}: {text}" for name, text in machine().items()), ""]
    lines += [f"- {name}: {value}" for name, value in results.settings.items()]
    if results.comparisons:
        lines += ["", "## Beside Apache Kafka", "", *_comparison_lines(results.comparisons)]
    if results.measures:
        lines += ["", "## Penstock alone", "", *_measure_lines(results.measures)]
    if results.failures:
        lines += ["", "## What could not be measured", "", *(f"- {failure}" for failure in results.failures)]
    return "\n".join(lines) + "\n"


def _comparison_lines(rows: list[Comparison]) -> list[str]:
    heads = ["", *COLUMNS.values(), "os : Kafka", "goal", "reached", "commit : Kafka", "commit : Kafka fsync"]
    lines = [_line(heads), _line(["---", *["---:"] * (len(heads) - 1)])]
    for row in rows:
        cells = [f"{row.title}, {row.unit}", *(number(row.value(column)) for column in COLUMNS)]
        cells += [_times(row.ratio(OURS, KAFKA)), _times(row.goal), VERDICTS[row.reached()]]
        cells += [_times(row.ratio(OURS_DURABLE, KAFKA)), _times(row.ratio(OURS_DURABLE, KAFKA_DURABLE))]
        lines.append(_line(cells))
    return lines


def _measure_lines(rows: list[Measure]) -> list[str]:
    lines = [_line(["", "measured", "limit", "reached", ""]), _line(["---", "---:", "---:", "---:", "---"])]
    for row in rows:
        limit = "" if row.limit is None else f"≤ {row.limit:g} {row.unit}"
        lines.append(_line([row.title, f"{number(row.value)} {row.unit}", limit, VERDICTS[row.reached()], row.note]))
    return lines


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _times(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}×"


def as_text(results: Results) -> str:
    """A line a row, for the terminal."""
    lines = []
    for row in results.comparisons:
        ratio, spread = row.ratio(OURS, KAFKA), _spread(row)
        figures = f"{number(row.value(OURS)):>9} {number(row.value(KAFKA)):>9} {row.unit:11} {_times(ratio):>7}"
        lines.append(f"{row.title:42} {figures} {'≥ ' + _times(row.goal) if row.goal else '':9} {_word(row)} {spread}")
    for measure in results.measures:
        limit = "" if measure.limit is None else f"≤ {measure.limit:g}"
        figures = f"{number(measure.value):>9} {measure.unit:3} {limit:8}"
        lines.append(f"{measure.title:64} {figures} {_word(measure)} {measure.note}")
    return "\n".join(lines)


def _word(row: Comparison | Measure) -> str:
    return {True: "reached", False: "MISSED ", None: "       "}[row.reached()]


def _spread(row: Comparison) -> str:
    """How far apart the rounds were: a wide spread means a busy machine."""
    ours = row.samples.get(OURS, [])
    return f"±{(max(ours) - min(ours)) / 2 / statistics.median(ours):.0%}" if len(ours) > 1 and all(ours) else ""
