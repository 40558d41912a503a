"""Topics read and written with Spark: `format("penstock")` beside Spark's own connector, on the same broker.

The connector needs jars, and its newest version that Maven Central has whole is 4.0.0, so it runs in a Spark of that
version. Both Sparks live through all rounds and take turns, each in its own process with two cores.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import jars
from bench.loader import LoadFailed, load
from bench.peers import Peer, die_with_parent, penstock
from bench.results import Measure

CONNECTOR = "4.0.0"
ARTIFACTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", CONNECTOR),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.0"),
)
PARTITIONS = 4
FILL_S = 60
WRITTEN_SHARE = 4  # a write takes so much longer than a read that it gets a part of the rows
ARCHIVE_MB_S = 200
ARCHIVE_BATCHES = 4
OURS, THEIRS = "penstock", "kafka"
GOALS = {"batch": 1.2, "stream": 1.2, "write at least once": 1.0, "write exactly once": 0.7}


@dataclass(frozen=True, slots=True)
class Rows:
    bytes: int
    topic: str
    count: int

    @property
    def name(self) -> str:
        return "1 KB" if self.bytes == 1024 else f"{self.bytes} bytes"


class Spark:
    """A driver in a process of its own."""

    def __init__(self, python: str, source: str, bootstrap: str, jar_paths: list[str], log: Path) -> None:
        command = [python, str(Path(__file__).with_name("spark_driver.py")), source, bootstrap, ",".join(jar_paths)]
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True,
                preexec_fn=die_with_parent,
            )  # fmt: skip
        self._log = log
        self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise LoadFailed(f"Spark ended: {self._log.read_text()[-500:]}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise LoadFailed(answer["error"])
        return answer

    def do(self, what: str, **more: object) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **more}) + "\n")
        self._process.stdin.flush()
        return float(self._answer()["seconds"])

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)


def measures(work: Path, rounds: int, gigabytes: float, *, alone: bool) -> Iterator[Measure]:
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(penstock(work / "spark", {"flush": "os"}))
        sparks = {OURS: Spark(sys.executable, OURS, f"127.0.0.1:{broker.port}", [], work / "ours.log")}
        stack.callback(sparks[OURS].close)
        if not alone:
            python, paths = connector()
            sparks[THEIRS] = Spark(python, THEIRS, f"127.0.0.1:{broker.port}", paths, work / "theirs.log")
            stack.callback(sparks[THEIRS].close)
        for size in (100, 1024):
            rows = _fill(broker, size, gigabytes)
            for name, goal in GOALS.items():
                yield _contest(broker, sparks, rows, name, goal, rounds)


def _fill(broker: Peer, size: int, gigabytes: float) -> Rows:
    topic = f"rows-{size}"
    broker.create_topics([topic], PARTITIONS)
    bytes_max = int(gigabytes * 10**9)
    figures = load(
        "produce", broker.port, topic=topic, partitions=PARTITIONS, batch_bytes=64 * 1024, record_bytes=size,
        connections=2, in_flight=4, bytes_max=bytes_max, seconds=FILL_S,
    )  # fmt: skip
    return Rows(size, topic, int(figures["records"]))


def _contest(broker: Peer, sparks: dict[str, Spark], rows: Rows, name: str, goal: float, rounds: int) -> Measure:
    samples: dict[str, list[float]] = {who: [] for who in sparks}
    for turn in range(rounds + 1):  # the first one warms up
        for who, spark in sparks.items():
            found = _rows_s(broker, spark, who, rows, name, turn)
            if turn:
                samples[who].append(found)
    ours = statistics.median(samples[OURS])
    title = f"Spark, {name}, rows of {rows.name}: time against Spark's own connector"
    if THEIRS not in samples:
        return Measure(f"spark-{name}-{rows.bytes}", title, 0.0, "×", None, f"{ours:,.0f} rows/s, alone")
    theirs = statistics.median(samples[THEIRS])
    note = f"{ours:,.0f} against {theirs:,.0f} rows/s: {ours / theirs:.2f}×, goal {goal}×"
    return Measure(f"spark-{name}-{rows.bytes}", title, theirs / ours, "×", 1 / goal, note)


def _rows_s(broker: Peer, spark: Spark, who: str, rows: Rows, name: str, turn: int) -> float:
    if name in ("batch", "stream"):
        return rows.count / spark.do(name, topic=rows.topic)
    topic = f"{rows.topic}-{who}-{name.replace(' ', '-')}-{turn}"
    broker.create_topics([topic], PARTITIONS)
    count = rows.count // WRITTEN_SHARE
    # The connector writes at least once, whatever it is asked for.
    options = {"delivery": name.removeprefix("write ").replace(" ", "-")} if who == OURS else {}
    took_s = spark.do("write", topic=topic, rows=count, size=rows.bytes, options=options)
    broker.delete_topics([topic])
    return count / took_s


def connector() -> tuple[str, list[str]]:
    """A Python with the connector's Spark, and the connector's jars."""
    folder = jars.cache() / f"spark-{CONNECTOR}"
    python = folder / "venv" / "bin" / "python"
    if not python.exists():
        print(f"installing Spark {CONNECTOR} for its own connector …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", f"pyspark=={CONNECTOR}"], check=True)
    libraries = folder / "jars"
    if not libraries.exists():
        jars.fetch(ARTIFACTS, libraries, f"Spark's connector {CONNECTOR}", transitive=False)
    return str(python), [str(each) for each in sorted(libraries.glob("*.jar"))]


def archive(work: Path, gigabytes: float) -> Iterator[Measure]:
    """What the archive job copies in a second, log to Parquet, once its processes have started: the first batch is not
    counted."""
    with penstock(work / "archive-broker", {"flush": "os"}) as broker:
        rows = _fill(broker, 1024, gigabytes)
        command = [
            sys.executable, "-m", "penstock", "archive", "run", "--topic", rows.topic, "--to", str(work / "archive"),
            "--once", "--bootstrap", f"127.0.0.1:{broker.port}", "--master", "local[2]", "--json",
            "--records-per-batch", str(rows.count // ARCHIVE_BATCHES + 1),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, preexec_fn=die_with_parent)
        if done.returncode:
            raise LoadFailed(done.stderr[-500:])
    batches = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")][1:]
    if not batches:
        raise LoadFailed("the archive job had one batch only")
    mb_s = sum(each["log_bytes"] for each in batches) / sum(each["seconds"] for each in batches) / 1e6
    title = f"Spark, archive to Parquet, rows of 1 KB: time against {ARCHIVE_MB_S} MB/s"
    yield Measure("spark-archive", title, ARCHIVE_MB_S / mb_s, "×", 1.0, f"{mb_s:.0f} MB/s of log")
