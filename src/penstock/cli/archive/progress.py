"""What a person sees while topics are archived: a bar for the batch that runs, and a line for each that is done."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

REPORT_BYTES_MAX = 1 << 20  # at a time


class Progress:
    """The bar is drawn on standard error, and only for a person. Lines are for everybody."""

    def __init__(self, args: argparse.Namespace, query: StreamingQuery, spark: SparkSession, report: Path) -> None:
        from rich import progress

        from penstock.cli.output import console

        self._json: bool = args.json
        self._query = query
        self._tracker = spark.sparkContext.statusTracker()
        self._report = report
        self._read = 0  # of the report, so far
        self._untold: list[dict[str, Any]] = []  # batches whose duration is not known yet
        self._rows = self._bytes = self._files = 0
        self._bars = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TextColumn("{task.fields[state]}"),
            progress.TimeElapsedColumn(),
            console=console(stderr=True),
            disable=args.json or not sys.stderr.isatty(),
        )
        self._bar = self._bars.add_task("archiving", total=None, state="")

    def __enter__(self) -> Progress:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def update(self) -> None:
        self._show_tasks()
        self._untold += self._new_reports()
        if self._untold:
            known = {each.batchId: json.loads(each.json) for each in self._query.recentProgress}
            while self._untold and self._untold[0]["batch"] in known:
                batch = self._untold.pop(0)
                self._tell(batch, known[batch["batch"]])

    def finish(self) -> None:
        for each in self._untold:
            self._tell(each, None)
        self._untold = []
        if self._json:
            return
        from penstock.cli.output import plural

        print(f"Archived {plural(self._rows, 'record')} in {plural(self._files, 'file')}.")

    def _show_tasks(self) -> None:
        for stage in self._tracker.getActiveStageIds():
            info = self._tracker.getStageInfo(stage)
            if info is not None and info.numTasks:
                state = f"{info.numCompletedTasks:,} of {info.numTasks:,} ranges"
                self._bars.update(self._bar, total=info.numTasks, completed=info.numCompletedTasks, state=state)
                return
        self._bars.update(self._bar, total=None, state=f"waiting; {self._rows:,} records so far")

    def _new_reports(self) -> list[dict[str, Any]]:
        try:
            with self._report.open("rb") as file:
                file.seek(self._read)
                data = file.read(REPORT_BYTES_MAX)
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        return [json.loads(line) for line in whole.splitlines()]

    def _tell(self, batch: dict[str, Any], progress: dict[str, Any] | None) -> None:
        from penstock.cli.archive.needs import human_bytes
        from penstock.cli.output import plural

        self._rows += batch["rows"]
        self._bytes += batch["log_bytes"]
        self._files += batch["files"]
        duration_s = progress["batchDuration"] / 1000 if progress else None
        behind = _behind(progress) if progress else None
        if self._json:
            print(json.dumps({**batch, "seconds": duration_s, "behind": behind}), flush=True)
            return
        line = f"batch {batch['batch']}: {plural(batch['rows'], 'record')} in {plural(batch['files'], 'file')}"
        if duration_s:
            line += f", {human_bytes(batch['log_bytes'])} at {batch['log_bytes'] / duration_s / 1e6:,.1f} MB/s"
        if behind is not None:
            line += f", {behind:,} behind"
        if self._bars.disable:
            print(line, flush=True)
        else:
            self._bars.console.print(line)


def _behind(progress: dict[str, Any]) -> int | None:
    """Offsets that the log had beyond the batch when it was planned."""
    total = 0
    for source in progress["sources"]:
        latest, end = source.get("latestOffset"), source.get("endOffset")
        if not isinstance(latest, dict) or not isinstance(end, dict):
            return None
        for topic, partitions in latest.items():
            for partition, offset in partitions.items():
                total += max(0, offset - end.get(topic, {}).get(partition, 0))
    return total
