"""What a person sees while the load runs: two bars, each with its speed."""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import TaskID

SPEED_OVER_S = 2.0


class Progress:
    """Drawn on standard error, and only for a person."""

    def __init__(self, args: argparse.Namespace) -> None:
        from rich import progress

        from penstock.cli.output import console

        self._args = args
        self._size: int = args.size
        self._started = time.monotonic()
        self._history: deque[tuple[float, int, int]] = deque()
        self._bars = progress.Progress(
            progress.TextColumn("{task.description:<8}"),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TextColumn("{task.fields[speed]}"),
            progress.TimeElapsedColumn(),
            console=console(stderr=True),
            disable=args.json or not sys.stderr.isatty(),
        )
        self._produced = self._bars.add_task("produce", total=1.0, speed="")
        self._consumed = self._bars.add_task("consume", total=1.0, speed="", visible=args.consumers > 0)

    def __enter__(self) -> Progress:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def update(self, produced: int, consumed: int) -> None:
        now = time.monotonic()
        if not produced:
            self._started = now
        self._history.append((now, produced, consumed))
        while now - self._history[0][0] > SPEED_OVER_S:
            self._history.popleft()
        then, produced_then, consumed_then = self._history[0]
        elapsed = now - then
        part = self._part(produced, now)
        self._show(self._produced, part, produced - produced_then, elapsed)
        self._show(self._consumed, part * consumed / produced if produced else 0.0, consumed - consumed_then, elapsed)

    def _part(self, produced: int, now: float) -> float:
        if self._args.messages:
            return produced / float(self._args.messages)
        return min(1.0, (now - self._started) / float(self._args.duration))

    def _show(self, bar: TaskID, part: float, messages: int, elapsed_s: float) -> None:
        per_second = messages / elapsed_s if elapsed_s else 0.0
        speed = f"{per_second:>11,.0f} messages/s {per_second * self._size / 1e6:>8,.1f} MB/s"
        self._bars.update(bar, completed=min(1.0, part), speed=speed)
