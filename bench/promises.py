"""What promises cost in throughput, against the same load without them.

The two loads take turns on one broker, and the figure is the median of the pairs: what disturbs the machine for longer
than a moment disturbs both of a pair.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.cells import MEGABYTE_BATCH, SMALL_BATCH
from bench.loader import load
from bench.peers import penstock
from bench.results import Measure

PAIRS = 7
LIMIT = 5.0  # percent
PARTITIONS = 6
WRITTEN_LATER = {"flush": "os"}  # else it would be the device that is measured


def costs(work: Path, seconds: float) -> Iterator[Measure]:
    with penstock(work / "promises", WRITTEN_LATER) as peer:
        peer.create_topics(["written", "decided"], PARTITIONS, {"retention.bytes": str(1 << 30)})
        common = {"partitions": PARTITIONS, "seconds": seconds}

        def produce(idempotent: int) -> float:
            batches = {"batch_bytes": SMALL_BATCH, "in_flight": 5, "bytes_max": 1.5e9}
            return load("produce", peer.port, topic="written", idempotent=idempotent, **common, **batches)["mb_s"]

        def fetch(committed: int) -> float:
            asked = {"fetch_bytes": 1 << 20, "connections": PARTITIONS}
            return load("fetch", peer.port, topic="decided", committed=committed, **common, **asked)["mb_s"]

        yield _cost("idempotence-cost", "an idempotent producer, batches of 16 KB", produce)
        fill = {"batch_bytes": MEGABYTE_BATCH, "connections": PARTITIONS, "bytes_max": 0.3e9, "abort_every": 10}
        load("transact", peer.port, topic="decided", partitions=PARTITIONS, seconds=20, **fill)
        yield _cost("read-committed-cost", "read_committed, of what was written in transactions", fetch)


def _cost(name: str, what: str, run: Callable[[int], float]) -> Measure:
    """`run` with 0 is without the promise, with 1 it is with it."""
    run(1)
    shares = []
    for number in range(PAIRS):
        first = number % 2  # neither of the two is always the first
        found = {which: run(which) for which in (first, 1 - first)}
        shares.append((1 - found[1] / found[0]) * 100)
    note = f"{min(shares):+.0f} to {max(shares):+.0f} % in {PAIRS} pairs"
    return Measure(name, f"throughput that is lost to {what}", statistics.median(shares), "%", LIMIT, note)
