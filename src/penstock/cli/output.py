"""Tables for people, JSON for programs, and the question before something is lost."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from penstock.cli.problem import Problem, usage

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 10_000  # a table that another program reads is never cut


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
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    out = console()
    box = SIMPLE_HEAD if out.is_terminal else None
    table = Table(box=box, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    to_the_right = set(right)
    for position, name in enumerate(columns):
        numeric = all(row[position] is None or isinstance(row[position], int | float) for row in rows)
        justify: Literal["left", "right"] = "right" if (numeric and rows) or position in to_the_right else "left"
        table.add_column(name.upper() if name.islower() else name, justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    out.print(table)


def _cell(value: object) -> str:
    if value is None:
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
