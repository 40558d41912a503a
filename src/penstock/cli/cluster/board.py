"""What a person sees while a cluster comes up: a table that changes, or a line for each change where nobody watches."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

MARKS = {"starting": "…", "up": "✓"}


class Board:
    def __init__(self) -> None:
        self._rows: dict[str, tuple[str, int | None, str]] = {}
        self._since: dict[str, float] = {}
        self._took_s: dict[str, float] = {}
        self._live: Live | None = None

    def __enter__(self) -> Board:
        if sys.stdout.isatty():
            from rich.live import Live

            from penstock.cli.output import console

            self._live = Live(self._table(), console=console(), refresh_per_second=10)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, name: str, address: str, pid: int | None, state: str) -> None:
        row = (address, pid, state)
        if self._rows.get(name) == row:
            return
        self._since.setdefault(name, time.monotonic())
        self._rows[name] = row
        if state == "up":
            self._took_s[name] = time.monotonic() - self._since[name]
        if self._live is not None:
            self._live.update(self._table())
        elif state == "up":
            print(f"{name:<10}  {address:<21}  process {pid:<7}  up after {self._took_s[name]:.1f} s", flush=True)

    def _table(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        for name, (address, pid, state) in self._rows.items():
            took = f"up after {self._took_s[name]:.1f} s" if state == "up" else state
            style = "green" if state == "up" else "yellow"
            mark = Text(MARKS[state], style)
            table.add_row(mark, name, address, f"process {pid}" if pid else "", took)
        return table
