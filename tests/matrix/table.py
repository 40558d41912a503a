"""The rows of all trials of this process, shown together at the end."""

from __future__ import annotations

from tests.matrix.trial import Row

ROWS: list[Row] = []


def table(rows: list[Row]) -> list[str]:
    width = max((len(row.fault) for row in rows), default=0)
    lines = [f"{'fault':{width}}  acknowledged  sent/s  silence s  pause s  in sync s"]
    lines += [
        f"{row.fault:{width}}  {row.acknowledged:12}  {row.rate:6.0f}  {row.silence_s:9.2f}  {row.pause_s:7.2f}  "
        f"{row.whole_s:9.2f}"
        for row in rows
    ]
    return lines
