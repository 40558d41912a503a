"""What a person sees while a pipeline runs: a bar for each query, and a line for each batch that did something."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.pipeline.transform.running import Batch


class Progress:
    """Bars are drawn on standard error, and only for a person. Lines are for everybody."""

    def __init__(self, pipeline: str, queries: list[str], *, as_json: bool) -> None:
        from rich import progress

        from penstock.cli.output import console

        self._pipeline = pipeline
        self._json = as_json
        self._count: Counter[str] = Counter()
        self._counts_all = True
        self._bars = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TextColumn("{task.fields[state]}"),
            progress.TimeElapsedColumn(),
            console=console(stderr=True),
            disable=as_json or not sys.stderr.isatty(),
        )
        self._tasks = {name: self._bars.add_task(name, total=None, state="starting") for name in queries}

    def __enter__(self) -> Progress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def tell(self, batch: Batch) -> None:
        self._counts_all = self._counts_all and batch.rows_out is not None
        self._count["bad" if batch.dead_letters else "out"] += batch.rows_out or 0
        if not batch.dead_letters:
            self._count["in"] += batch.rows_in
        state = f"{batch.lag:,} behind" if batch.lag else "waiting"
        task = self._tasks[batch.query]
        self._bars.update(task, total=batch.read + batch.lag or 1, completed=batch.read or 1, state=state)
        if self._json:
            print(json.dumps(asdict(batch)), flush=True)
        elif not batch.dead_letters or batch.rows_out:  # most of the time nothing is bad
            self._line(batch)

    def _line(self, batch: Batch) -> None:
        out = "" if batch.rows_out is None else f", {batch.rows_out:,} out"
        written = f"{batch.rows_out:,} bad" if batch.dead_letters else f"{batch.rows_in:,} in{out}"
        line = f"{batch.query}  batch {batch.number}: {written}, {batch.lag:,} behind, {batch.duration_ms / 1000:.1f} s"
        if self._bars.disable:
            print(line, flush=True)
        else:
            self._bars.console.print(line)

    def summary(self) -> None:
        if not self._json:
            count = self._count
            out = f", {count['out']:,} out" if self._counts_all else ""
            print(f"Pipeline {self._pipeline}: {count['in']:,} in{out}, {count['bad']:,} bad.")
