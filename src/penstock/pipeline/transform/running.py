"""The queries of a pipeline: one for each sink, and one for the dead letters of each source, until they end.

Each has a folder of its own in the checkpoint, and begins where it was. If one fails the others are stopped: a pipeline
runs as a whole or not at all. Queries that run once run one after another, since all have to end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from penstock.pipeline import progress
from penstock.pipeline.brokers import Brokers
from penstock.pipeline.problem import PipelineError
from penstock.pipeline.transform import judging, writing
from penstock.pipeline.transform.checking import Plan, dead_letters_from
from penstock.pipeline.transform.dead_letter_topics import create_missing
from penstock.pipeline.transform.model import ONCE, Sink
from penstock.pipeline.transform.saying import in_short

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S = 0.2
BEGIN_S_MAX = 60.0
STARTS_MAX = 5
TOO_SLOW = "Python worker failed to connect back"
BATCH_S_MAX = 60.0  # for a running batch to end before a stop cuts it short


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of one query, when it is done."""

    query: str
    dead_letters: bool
    number: int
    rows_in: int
    rows_out: int | None  # where Spark counts them, which it does for topics that rows are appended to
    read: int  # offsets from where the query started
    lag: int  # offsets that are still to be read
    duration_ms: int


@dataclass(slots=True)
class _Part:
    sink: Sink
    rows: DataFrame
    dead_letters: bool
    starts: int = 0


class Run:
    """Queries that were started together."""

    def __init__(self, plan: Plan, *, once: bool = False) -> None:
        self._plan = plan
        self._once = once
        self._parts: dict[str, _Part] = {}
        self._queries: dict[str, StreamingQuery] = {}
        self._seen: dict[str, int] = {}
        self._begun: dict[str, dict[tuple[str, int, int], int]] = {}
        self._reporters: list[progress.ProgressReporter] = []

    @property
    def names(self) -> list[str]:
        return list(self._parts)

    def start(self) -> None:
        plan, pipeline = self._plan, self._plan.pipeline
        begin = judging.agree(pipeline, plan.spark)
        with Brokers(plan.settings) as brokers:
            create_missing(brokers, plan.missing, [source for source, _ in plan.dead_letters])
            for source, rows in plan.dead_letters:
                sink = Sink(name=judging.dead_letters_query(source), sql="", topic=source.dead_letters)
                if sink.name in begin:
                    rows = dead_letters_from(brokers, plan, source, begin[sink.name])
                self._parts[pipeline.query(sink.name)] = _Part(sink, rows, dead_letters=True)
        for sink, rows in plan.rows:
            name = pipeline.query(sink.name)
            self._parts[name] = _Part(sink, rows, dead_letters=False)
            # A group for each of them: 'penstock group describe' shows how far it is behind.
            self._reporters.append(progress.attach(plan.spark, plan.settings, name, name))
        try:
            for name in self._parts:
                if not (self._once and self._queries):  # the others follow, one by one
                    self._start(name)
        except PySparkException as error:
            self.stop()
            raise PipelineError(f"pipeline {pipeline.name!r} does not start: {in_short(error)}") from error
        except BaseException:
            self.stop()
            raise

    def _start(self, name: str) -> None:
        plan, pipeline = self._plan, self._plan.pipeline
        part = self._parts[name]
        part.starts += 1
        sink = part.sink
        trigger_s = sink.trigger_s if sink.trigger_s is not None else pipeline.trigger_s
        self._queries[name] = query = writing.start(
            part.rows,
            sink,
            query=name,
            checkpoint=f"{pipeline.checkpoint}/{sink.name}",
            client=plan.client,
            trigger_s=ONCE if self._once else trigger_s,
        )
        _let_begin(query)

    def watch(self, tell: Callable[[Batch], None], ended: threading.Event) -> None:
        """Until the queries end by themselves, or somebody else sets `ended`. Raises PipelineError if one fails."""
        while not ended.wait(LOOK_S):
            active = False
            for name, query in list(self._queries.items()):
                alive = query.isActive  # asked before the batches, so that none comes after the last look
                self._tell(name, query, tell)
                if not alive and (failure := query.exception()) is not None:
                    self._start_again(name, failure)
                    alive = True
                active = active or alive
            if not active:
                waiting = [name for name in self._parts if name not in self._queries]
                if not waiting:
                    break
                self._start(waiting[0])
        self.stop(after_batch=True)
        for name, query in self._queries.items():
            self._tell(name, query, tell)

    def _start_again(self, name: str, failure: Exception) -> None:
        """Where a loaded machine was too slow for Spark; nothing is lost, since the checkpoint knows how far it was."""
        if TOO_SLOW not in str(failure) or self._parts[name].starts >= STARTS_MAX:
            self.stop()
            raise PipelineError(f"query {name!r} failed: {in_short(failure)}") from failure
        self._start(name)

    def stop(self, *, after_batch: bool = False, patience_s: float = BATCH_S_MAX) -> None:
        deadline = time.monotonic() + (patience_s if after_batch else 0.0)
        for query in self._queries.values():
            _let_finish(query, deadline)
            query.stop()
        for reporter in self._reporters:
            self._plan.spark.streams.removeListener(reporter)
        self._reporters.clear()

    # ---- batches

    def _tell(self, name: str, query: StreamingQuery, tell: Callable[[Batch], None]) -> None:
        for each in query.recentProgress:
            if each.batchId > self._seen.get(name, -1) and _did_something(each):
                self._seen[name] = each.batchId
                tell(self._batch(name, each))

    def _batch(self, name: str, done: StreamingQueryProgress) -> Batch:
        lag, read = 0, 0
        begun = self._begun.setdefault(name, {})
        for index, source in enumerate(done.sources):
            end = progress.offsets_of(source.description, source.endOffset)
            for (topic, partition), offset in progress.offsets_of(source.description, source.startOffset).items():
                begun.setdefault((topic, partition, index), offset)
            latest = progress.offsets_of(source.description, source.latestOffset)
            for place, offset in end.items():
                read += offset - begun.setdefault((*place, index), 0)
                lag += max(0, latest.get(place, offset) - offset)
        return Batch(
            query=name,
            dead_letters=self._parts[name].dead_letters,
            number=done.batchId,
            rows_in=done.numInputRows,
            rows_out=done.sink.numOutputRows if done.sink.numOutputRows >= 0 else None,
            read=read,
            lag=lag,
            duration_ms=done.batchDuration,
        )


def _did_something(done: StreamingQueryProgress) -> bool:
    """Spark tells of triggers that found nothing too, under the number of the batch to come."""
    return "addBatch" in done.durationMs


def _let_begin(query: StreamingQuery) -> None:
    """One after another: each starts processes of Python's, to which Spark gives ten seconds."""
    deadline = time.monotonic() + BEGIN_S_MAX
    while query.isActive and query.status["message"] == "Initializing sources" and time.monotonic() < deadline:
        time.sleep(0.05)


def _let_finish(query: StreamingQuery, deadline: float) -> None:
    """A batch that is running may end; the next one may not."""
    before = query.lastProgress.batchId if query.lastProgress else -1
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        now = query.lastProgress.batchId if query.lastProgress else -1
        if now != before:
            return
        time.sleep(0.05)
