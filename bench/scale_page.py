"""`python -m bench.scale_page`: puts what `metadata` has measured last into docs/scale.md and draws docs/scale.svg."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "bench" / "out" / "metadata.json"
PAGE, PICTURE = ROOT / "docs" / "scale.md", ROOT / "docs" / "scale.svg"
BEGIN, END = "<!-- figures -->", "<!-- /figures -->"

Row = Mapping[str, float]

ROWS: Sequence[tuple[str, Callable[[Row], str]]] = (
    ("topics are created", lambda row: _seconds(row["created_s"])),
    ("… and every broker knows them", lambda row: _seconds(row["created_known_s"])),
    ("a broker that joins has the image", lambda row: _seconds(row["loaded_s"])),
    ("controller killed: every broker knows the next", lambda row: _seconds(row["controller_known_s"])),
    ("… and it has looked at every topic", lambda row: _seconds(row["controller_settled_s"])),
    ("broker killed: every broker knows", lambda row: _seconds(row["noticed_s"])),
    ("leaderships that it had", lambda row: f"{row['moved']:,.0f}"),
    ("… every broker knows all new leaders", lambda row: _seconds(row["leaders_s"])),
    ("… processor time of that: in each broker", lambda row: _seconds(row["learning_cpu_s"])),
    ("… in the controller", lambda row: _seconds(row["deciding_cpu_s"])),
    ("… in ZooKeeper", lambda row: _seconds(row["zookeeper_cpu_s"])),
    ("the same, of a broker that was the controller", lambda row: _seconds(row["both_s"])),
    ("sessions lost while topics were created", lambda row: f"{row['flaps']:.0f}"),
    ("the image in a broker's memory", lambda row: f"{row['image_mb']:.0f} MB"),
    ("ZooKeeper's process", lambda row: f"{row['zookeeper_mb']:.0f} MB"),
)
LINES = (
    ("loaded_s", "a broker that joins has the image", "#1b9e77"),
    ("controller_settled_s", "controller killed: the next has settled", "#2a6fdb"),
    ("leaders_s", "broker killed: all know the new leaders", "#d1495b"),
)
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 360, 60, 30, 80, 40
INK, FAINT = "#444", "#ccc"
TICKS = 5
BUSY = 0.5  # a load average


def _seconds(value: float) -> str:
    return f"{value:.2f} s"


def table(sizes: Sequence[Row]) -> str:
    heads = [f"{row['partitions']:,.0f}" for row in sizes]
    lines = [f"| partitions | {' | '.join(heads)} |"]
    lines.append(f"| --- | {' | '.join('---:' for _ in sizes)} |")
    lines += [f"| {title} | {' | '.join(show(row) for row in sizes)} |" for title, show in ROWS]
    return "\n".join(lines)


def figures(measured: Mapping[str, object]) -> str:
    machine, sizes = measured["machine"], measured["sizes"]
    assert isinstance(machine, dict)
    assert isinstance(sizes, list)
    load = measured["load_before"]
    assert isinstance(load, float)
    taken = f"{machine['processor']}, {machine['memory']}, Python {machine['python']}, {machine['date']}. "
    if load >= BUSY:
        taken += (
            f"**Others used the machine** (load average {load:.0f}): seconds are too long, processor times are not."
        )
    else:
        taken += "The machine had nothing else to do."
    return f"{BEGIN}\n{taken}\n\n{table(sizes)}\n{END}"


# ---- the picture


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{INK}">{escape(words)}</text>\n'


def draw(sizes: Sequence[Row]) -> str:
    most_x = max(row["partitions"] for row in sizes)
    most_y = max(row[key] for row in sizes for key, _, _ in LINES)
    step = next(each for each in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if each * TICKS >= most_y)

    def at(x: float, y: float) -> tuple[float, float]:
        across = LEFT + x / most_x * (WIDTH - LEFT - RIGHT)
        return across, HEIGHT - BOTTOM - y / (step * TICKS) * (HEIGHT - TOP - BOTTOM)

    parts = []
    for index in range(TICKS + 1):
        x, y = at(0, index * step)
        parts.append(f'<line x1="{x:.1f}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{FAINT}"/>\n')
        parts.append(_text(x - 6, y + 4, f"{index * step:g} s", "end"))
    for across in (row["partitions"] for row in sizes):
        x, y = at(across, 0)
        parts.append(_text(x, y + 18, f"{across:,.0f}", "middle"))
    for index, (key, title, colour) in enumerate(LINES):
        points = [at(row["partitions"], row[key]) for row in sizes]
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"/>\n')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>\n' for x, y in points]
        parts.append(f'<rect x="{LEFT}" y="{14 + index * 18}" width="10" height="10" rx="2" fill="{colour}"/>\n')
        parts.append(_text(LEFT + 16, 23 + index * 18, title))
    parts.append(_text(WIDTH - RIGHT, HEIGHT - 6, "partitions of the cluster", "end"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="system-ui, sans-serif" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="#fff"/>\n{"".join(parts)}</svg>\n'
    )


def main() -> int:
    try:
        measured = json.loads(MEASURED.read_text())
    except FileNotFoundError:
        print('nothing was measured yet: make bench ARGS="--cells metadata"', file=sys.stderr)
        return 1
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(before + figures(measured) + after)
    PICTURE.write_text(draw(measured["sizes"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
