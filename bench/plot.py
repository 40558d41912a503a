"""Draws the results as an SVG by hand: bars of how many times Kafka's figure is reached, and how much of a limit used.

The scale of the ratios is logarithmic, so that half as fast and twice as fast are equally far from the line at 1×.
"""

from __future__ import annotations

import math
from xml.sax.saxutils import escape

from bench.results import COLUMNS, KAFKA, OURS, OURS_DURABLE, Comparison, Measure, Results

WIDTH, LEFT, RIGHT, ROW, BAR = 960, 390, 90, 34, 12
CHART = WIDTH - LEFT - RIGHT
SMALLEST, LARGEST = 0.25, 64.0
TICKS = (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64)
COLOURS = {OURS: "#2a6fdb", OURS_DURABLE: "#1b9e77"}
MISSED, REACHED, INK, FAINT = "#d1495b", "#2a6fdb", "#444", "#ccc"


def draw(results: Results) -> str:
    ratios = [row for row in results.comparisons if row.ratio(OURS, KAFKA) or row.ratio(OURS_DURABLE, KAFKA)]
    limits = [row for row in results.measures if row.limit]
    parts: list[str] = []
    y = 30
    if ratios:
        y = _draw_ratios(parts, ratios, y)
    if limits:
        y = _draw_limits(parts, limits, y + 20)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 10}" width="{WIDTH}" height="{y + 10}" '
        'font-family="system-ui, sans-serif" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="#fff"/>\n{"".join(parts)}</svg>\n'
    )


def _text(x: float, y: float, words: str, anchor: str = "start", weight: str = "normal", colour: str = INK) -> str:
    style = f'text-anchor="{anchor}" font-weight="{weight}" fill="{colour}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(words)}</text>\n'


def _rect(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 1):.1f}" height="{height}" rx="2" fill="{colour}"/>\n'


def _upright(x: float, top: float, bottom: float, colour: str, extra: str = "") -> str:
    return f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}" stroke="{colour}" {extra}/>\n'


def _at(ratio: float) -> float:
    share = math.log(min(max(ratio, SMALLEST), LARGEST) / SMALLEST) / math.log(LARGEST / SMALLEST)
    return LEFT + share * CHART


def _draw_ratios(parts: list[str], rows: list[Comparison], y: float) -> int:
    parts.append(_text(20, y, "Times Apache Kafka as it comes; further right is better", weight="bold"))
    for index, (column, colour) in enumerate(COLOURS.items()):
        x = 20 + index * 260
        parts.append(_rect(x, y + 12, 10, 10, colour))
        parts.append(_text(x + 16, y + 21, COLUMNS[column]))
    parts.append(_upright(548, y + 10, y + 24, MISSED, 'stroke-width="3"') + _text(556, y + 21, "goal of flush=os"))
    top = y + 50
    bottom = top + len(rows) * ROW
    for tick in TICKS:
        parts.append(_upright(_at(tick), top - 6, bottom, INK if tick == 1 else FAINT))
        parts.append(_text(_at(tick), top - 10, f"{tick:g}×", "middle"))
    for index, row in enumerate(rows):
        parts.append(_ratio_row(row, top + index * ROW))
    return int(bottom)


def _ratio_row(row: Comparison, y: float) -> str:
    drawn = _text(LEFT - 10, y + 20, row.title, "end")
    for index, (column, colour) in enumerate(COLOURS.items()):
        ratio = row.ratio(column, KAFKA)
        if ratio is None:
            continue
        low, high = sorted((_at(1), _at(ratio)))
        bar = y + 4 + index * (BAR + 1)
        drawn += _rect(low, bar, high - low, BAR, colour)
        drawn += _text(max(high, _at(1)) + 5, bar + 10, f"{ratio:.1f}×")
    if row.goal:
        drawn += _upright(_at(row.goal), y + 2, y + 6 + BAR, MISSED, 'stroke-width="3"')
    return drawn


def _draw_limits(parts: list[str], rows: list[Measure], y: float) -> int:
    parts.append(_text(20, y, "How much of its limit Penstock uses; less is better", weight="bold"))
    top = y + 30
    bottom = top + len(rows) * (ROW - 10)
    scale = CHART / 1.5  # bars end at one and a half times the limit
    for share in (0, 0.5, 1, 1.5):
        parts.append(_upright(LEFT + share * scale, top - 6, bottom, MISSED if share == 1 else FAINT))
        parts.append(_text(LEFT + share * scale, top - 10, f"{share:.0%}", "middle"))
    for index, row in enumerate(rows):
        assert row.limit
        bar = top + index * (ROW - 10)
        share = min(max(row.value / row.limit, 0), 1.5)
        parts.append(_text(LEFT - 10, bar + 15, _short(row.title), "end"))
        parts.append(_rect(LEFT, bar + 5, share * scale, BAR, REACHED if row.reached() else MISSED))
        parts.append(_text(LEFT + share * scale + 5, bar + 15, f"{row.value:.3g} {row.unit}"))
    return int(bottom)


def _short(title: str, most: int = 56) -> str:
    return title if len(title) <= most else title[: most - 1] + "…"
