"""A driver in a process of its own, for queries that are killed with everything that belongs to them, or on a cluster.

    python -m tests.pipeline.driver MASTER    takes jobs from its standard input, one a line, and runs one after another

A job is {"folder": ..., "copy": BOOTSTRAP}, the query of copying.py with the plan that is in the folder, or {"folder":
..., "command": [...]}, a command of `penstock`. How it ended is in the folder, in a file `ended`. Where the plan has
`"kill": "me"`, this process and its JVM are killed at the planned step.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from penstock.cli import main as penstock
from penstock.pipeline.session import open_session
from tests.pipeline.conftest import SHORT_LIVED
from tests.pipeline.copying import start
from tests.pipeline.faulty import FaultySource

ENDED = "ended"
WELL = "well"


def main(master: str) -> None:
    executors = {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": SHORT_LIVED}
    session = open_session("driver", master, {**executors, "spark.task.maxFailures": "8"})
    session.dataSource.register(FaultySource)
    for line in sys.stdin:
        job = json.loads(line)
        folder = Path(job["folder"])
        if "copy" in job:
            ended = _copy(session, job["copy"], folder)
        else:
            code = penstock(job["command"])
            ended = WELL if code == 0 else f"{job['command']} ended with {code}"
        (folder / f"{ENDED}.new").write_text(ended)
        (folder / f"{ENDED}.new").rename(folder / ENDED)
    session.stop()


def _copy(session: SparkSession, bootstrap: str, folder: Path) -> str:
    plan = folder / "plan.json"
    planned = json.loads(plan.read_text())
    if planned.get("kill") == "me":
        gateway = session.sparkContext._gateway
        assert gateway is not None
        planned["kill"] = [gateway.jvm.java.lang.ProcessHandle.current().pid(), os.getpid()]
        plan.write_text(json.dumps(planned))
    try:
        start(session, bootstrap, folder).awaitTermination()
    except StreamingQueryException as failure:
        return str(failure)
    return WELL


class Driver:
    """That process, as a test has it."""

    def __init__(self, folder: Path, master: str = "local[1]") -> None:
        self._log = folder / "driver.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.pipeline.driver", master],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def begin(self, folder: Path, **job: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"folder": str(folder), **job}).encode() + b"\n")
        self._process.stdin.flush()

    def ended(self, folder: Path, patience_s: float = 240.0) -> str:
        """How the job of this folder ended."""
        deadline = time.monotonic() + patience_s
        while not (folder / ENDED).exists():
            assert self.is_alive, f"the driver has died: {self.log()}"
            assert time.monotonic() < deadline, f"the job does not end: {self.log()}"
            time.sleep(0.05)
        said = (folder / ENDED).read_text()
        (folder / ENDED).unlink()
        return said

    def death(self, patience_s: float = 240.0) -> int:
        return self._process.wait(patience_s)

    def log(self) -> str:
        return self._log.read_text()[-3000:]

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(20)


if __name__ == "__main__":
    main(sys.argv[1])
