"""Tables for people, JSON for programs, and the question before something is lost."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from penstock.cli.problem import Problem, usage

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 10_000  # what another program reads is never cut
FINE_ROWS_MAX = 500


def print_json(document: Any) -> None:
    import json

    print(json.dumps(document, indent=2, ensure_ascii=False))


def console(stderr: bool = False) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], right: Iterable[int] = ()) -> None:
    """A column whose cells are all numbers is aligned to the right, and so are those named."""
    to_the_right = set(right)
    for position in range(len(columns)):
        if rows and all(row[position] is None or isinstance(row[position], int | float) for row in rows):
            to_the_right.add(position)
    titles = [name.upper() if name.islower() else name for name in columns]
    cells = [[_cell(value) for value in row] for row in rows]
    if sys.stdout.isatty() and len(rows) <= FINE_ROWS_MAX:
        _print_fine(titles, cells, to_the_right)
    else:
        _print_plain(titles, cells, to_the_right)


def _print_fine(titles: list[str], cells: list[list[str]], to_the_right: set[int]) -> None:
    """As wide as the terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    for position, title in enumerate(titles):
        justify: Literal["left", "right"] = "right" if position in to_the_right else "left"
        table.add_column(title, justify=justify, overflow="fold")
    for row in cells:
        table.add_row(*row)
    console().print(table)


def _print_plain(titles: list[str], cells: list[list[str]], to_the_right: set[int]) -> None:
    """As wide as it is: for programs, and for thousands of rows, which would take a second per thousand otherwise."""
    widths = [max(len(row[position]) for row in [titles, *cells]) for position in range(len(titles))]
    for row in [titles, *cells]:
        padded = (
            f"{cell:>{width}}" if position in to_the_right else f"{cell:<{width}}"
            for position, (cell, width) in enumerate(zip(row, widths))
        )
        print("  ".join(padded).rstrip())


def _cell(value: object) -> str:
    if value is None or value in ([], ()):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return str(value)


def print_facts(facts: Sequence[tuple[str, object]]) -> None:
    """Names and values under each other, as at the head of a description."""
    width = max(len(name) for name, _ in facts)
    out = console()
    for name, value in facts:
        out.print(f"{name.upper():<{width}}  {_cell(value)}")


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def local_time(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000).astimezone().isoformat(sep=" ", timespec="milliseconds")


def confirm(question: str, yes: bool) -> None:
    """Returns if the person agrees. A program that can't be asked must say --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise usage(f"{question} Nobody is there to answer.", "Add --yes to do it without asking.")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Problem("nothing was changed.")
