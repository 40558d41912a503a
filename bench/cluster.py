"""Three brokers beside three of Kafka's: acks=all, three replicas, six partitions that the first broker leads.

The cells and the turns are those of `cells`; what differs is that a request is answered only when two others have it.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from bench import jars
from bench.cells import MEGABYTE_BATCH, MEMORY, SMALL_BATCH, Cell, Contest, Figure
from bench.fleet import Fleet, kafka_cluster, penstock_cluster
from bench.results import KAFKA, OURS, OURS_DURABLE, Comparison, Results

COLUMNS = (OURS, OURS_DURABLE, KAFKA)
BYTES_MAX = 0.6e9  # three copies of it are written, on one disk
SPEED_GOAL, SINGLE_GOAL, P99_GOAL, MEMORY_GOAL = 3.0, 2.0, 2.0, 8.0
ACKS_ALL = -1
WARM_S = 10.0
# Followers take a while to turn to a new topic, Kafka's longest: all are measured when they run.
RUNNING: dict[str, object] = {"connections": 6, "seconds": 1.5}


def _produce(name: str, title: str, **options: object) -> Cell:
    figure = Figure(f"cluster-{name}", f"three brokers, {title}", "mb_s", "MB/s", SPEED_GOAL)
    return Cell(figure.name, "produce", (figure,), {"bytes_max": BYTES_MAX, **options}, RUNNING, columns=COLUMNS)


def _single(connections: int) -> Cell:
    name, title = f"cluster-single-{connections}", f"three brokers, single messages over {connections}"
    figures = (
        Figure(name, title, "requests_s", "requests/s", SINGLE_GOAL),
        Figure(f"{name}-p50", f"{title}, p50", "p50_us", "µs", less_is_better=True),
        Figure(f"{name}-p99", f"{title}, p99", "p99_us", "µs", P99_GOAL, less_is_better=True),
    )
    return Cell(name, "produce", figures, {"connections": connections}, RUNNING, columns=COLUMNS)


CELLS = [
    _produce("1m", "batches of 1 MB", batch_bytes=MEGABYTE_BATCH, connections=2, in_flight=4),
    _produce("16k", "batches of 16 KB", batch_bytes=SMALL_BATCH, connections=4, in_flight=5),
    _single(1),
    _single(10),
    _single(100),
]


def compare(work: Path, results: Results, chosen: list[Cell], rounds: int, seconds: float, kafka: bool) -> None:
    with contextlib.ExitStack() as stack:
        fleets: dict[str, Fleet] = {
            OURS: stack.enter_context(penstock_cluster(work / f"three-{OURS}", {"flush": "os"}, name=OURS)),
            OURS_DURABLE: stack.enter_context(penstock_cluster(work / f"three-{OURS_DURABLE}", name=OURS_DURABLE)),
        }
        if kafka:
            try:
                fleets[KAFKA] = stack.enter_context(kafka_cluster(work / f"three-{KAFKA}", name=KAFKA))
            except jars.NoKafka as missing:
                results.failures.append(f"three of Kafka: {missing}")
                print(f"  without Kafka: {missing}", flush=True)
        contest = Contest({column: fleet.leader() for column, fleet in fleets.items()}, seconds, ACKS_ALL, WARM_S)
        rows = contest.play(chosen, rounds)
        results.comparisons += [row for row in rows if row.name != MEMORY.name]
        results.comparisons += _memory(fleets)
        results.failures += contest.failures


def _memory(fleets: dict[str, Fleet]) -> list[Comparison]:
    """Kafka's controllers are inside its brokers; what does their work for ours is a process of its own."""
    brokers = {column: fleet.leader().memory_mb() for column, fleet in fleets.items()}
    everything = {column: brokers[column] + fleet.zookeeper_mb() for column, fleet in fleets.items()}
    rows = []
    for name, title, found in (
        ("cluster-memory", "resident memory of three brokers", brokers),
        ("cluster-memory-zookeeper", "the same with ZooKeeper", everything),
    ):
        samples = {column: [value] for column, value in found.items()}
        rows.append(Comparison(name, title, "MB", True, MEMORY_GOAL, samples))
    return rows
