"""What a Python worker of Spark's holds while it reads a partition: as much for gigabytes as for 50 MB."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from bench.loader import load
from bench.peers import penstock
from bench.results import Measure
from bench.spark import OURS, Spark

SMALL_BYTES = 50_000_000
RECORD_BYTES = 1024
FILL_S = 600
LOOK_S = 0.05
GROWTH_MAX = 1.25  # until an allocator has seen the largest answer and the largest batch together


class PeakOfWorkers:
    """The most that any Python worker below a process has held, as the kernel remembers it while it lives."""

    def __init__(self, driver: int) -> None:
        self.mb = 0.0
        self._driver = driver
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> PeakOfWorkers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        last = False
        while not last:
            last = self._ended.wait(LOOK_S)
            for pid in _below(self._driver):
                self.mb = max(self.mb, _peak_mb(pid))


def _below(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            children = [int(each) for each in (task / "children").read_text().split()]
        except OSError:
            continue  # it has ended
        for child in children:
            yield child
            yield from _below(child)


def _peak_mb(pid: int) -> float:
    """0 if it is no worker."""
    try:
        is_worker = b"pyspark.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
        lines = Path(f"/proc/{pid}/status").read_text().splitlines() if is_worker else []
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0)


def measures(work: Path, gigabytes: float) -> Iterator[Measure]:
    with penstock(work / "memory", {"flush": "os"}) as broker:
        broker.create_topics(["large"], 1)
        figures = load(
            "produce", broker.port, topic="large", partitions=1, batch_bytes=64 * 1024, record_bytes=RECORD_BYTES,
            connections=1, in_flight=4, bytes_max=int(gigabytes * 1e9), seconds=FILL_S,
        )  # fmt: skip
        rows = int(figures["records"])
        peaks, seconds = [], 0.0
        for count in (SMALL_BYTES // RECORD_BYTES, rows):
            spark = Spark(sys.executable, OURS, f"127.0.0.1:{broker.port}", [], work / "memory.log")
            try:
                with PeakOfWorkers(spark.pid) as peak:
                    seconds = spark.do("batch", topic="large", stop=count)
            finally:
                spark.close()
            peaks.append(peak.mb)
    small, large = peaks
    read = f"{rows * RECORD_BYTES / 1e9:.1f} GB"
    title = f"Spark, memory of a Python worker: a partition of {read} against 50 MB of it"
    note = f"{large:.0f} against {small:.0f} MB at most; {rows:,} rows in {seconds:.0f} s"
    yield Measure("spark-memory", title, large / small, "×", GROWTH_MAX, note)
