"""The sink with a fault in it: its driver dies at a certain step of a certain batch, as often as the plan says.

Spark runs the driver's part of a sink in a process of its own, made from a class that it imports, so the plan is in
a folder: a file `plan.json`, {"steps": {"1": ...}}, which has a step for each batch at which to die. Each death leaves
a file there.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import StructType

from penstock.pipeline import sink, transactions
from penstock.pipeline.brokers import Brokers
from penstock.pipeline.datasource import PenstockDataSource
from penstock.pipeline.deciding import Claim
from penstock.pipeline.decisions import Decision
from penstock.pipeline.options import write_options
from penstock.pipeline.transactions import Identity


class Plan:
    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def reached(self, step: str, batch: int) -> None:
        """Dies here if that is the plan."""
        found = json.loads((self.folder / "plan.json").read_text())
        if found["steps"].get(str(batch)) != step or any(self.folder.glob(f"[dw]*-{batch}")):
            return
        if found.get("wait"):
            self._wait(batch)
            return
        (self.folder / f"died-{batch}").touch()
        victims = found.get("kill", [])
        for pid in [_executor()] if victims == "executor" else victims:
            os.kill(pid, signal.SIGKILL)
        os._exit(1)

    @property
    def has_died(self) -> bool:
        return any(self.folder.glob("died-*"))

    def _wait(self, batch: int) -> None:
        """Until the test says go."""
        (self.folder / f"waits-{batch}").touch()
        deadline = time.monotonic() + 120
        while not (self.folder / f"go-on-{batch}").exists() and time.monotonic() < deadline:
            time.sleep(0.05)


def _executor() -> int:
    """The JVM whose daemon has made this worker."""
    status = Path(f"/proc/{os.getppid()}/stat").read_text()
    return int(status.rpartition(")")[2].split()[1])


class DyingWriter(sink.StreamWriter):
    """A driver that died aborts nothing."""

    plan: Plan

    def write(self, rows: Iterator[Any]) -> sink.Written:
        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        return super().write(self._dying_rows(rows, batch))

    def _dying_rows(self, rows: Iterator[Any], batch: int) -> Iterator[Any]:
        for each in rows:
            yield each
            self.plan.reached("task in the middle", batch)
        self.plan.reached("task at its end", batch)

    def commit_batch(self, messages: list[Any], batch: int) -> None:
        self.plan.reached("before the decision", batch)
        super().commit_batch(messages, batch)
        self.plan.reached("after everything", batch)

    def _roll_forward(
        self, brokers: Brokers, claim: Claim, decision: Decision, owners: Mapping[str, Identity]
    ) -> None:  # fmt: skip
        self.plan.reached("after the decision", decision.batch)
        half = len(decision.transactions) // 2
        for each in decision.transactions[:half]:
            assert transactions.roll_forward(brokers, each, owners.get(each.transactional_id))
        self.plan.reached("half-way", decision.batch)
        for each in decision.transactions[half:]:
            assert transactions.roll_forward(brokers, each, owners.get(each.transactional_id))
        self.plan.reached("before it is done", decision.batch)
        claim.done(decision, decision.write)

    def abort_batch(self, messages: list[Any]) -> None:
        if not self.plan.has_died:
            super().abort_batch(messages)


class FaultySource(PenstockDataSource):
    @classmethod
    def name(cls) -> str:
        return "faulty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        given = dict(self.options)
        plan = Plan(given.pop("plan"))
        writer = DyingWriter(write_options(given), sink.new_job())
        writer.plan = plan
        return writer
