"""A follower that comes back far behind, while producers go on: what its catching up does to them.

The leader's acknowledgements are timed at a steady rate, before the follower is started and until it is in sync.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from bench.cells import MEGABYTE_BATCH
from bench.fleet import Fleet, penstock_cluster
from bench.loader import LoadFailed, load
from bench.results import Measure

PARTITIONS = 6
TOPIC = "behind"
LIMIT = 2.0
RATE = 1_000
WINDOW_S = 0.5
CALM_WINDOWS = 8
CATCHING_UP_S_MAX = 900.0
FILL_MB_S_LEAST = 10
GIGABYTE = 10**9
COPIES = 3


def beside_producers(work: Path, behind_gb: float, flush: str) -> Iterator[Measure]:
    free_gb = shutil.disk_usage(work).free / GIGABYTE
    if free_gb < behind_gb * COPIES * 1.2:
        raise OSError(f"{COPIES} logs of {behind_gb:g} GB do not fit into {free_gb:.0f} GB of free space")
    with penstock_cluster(work / f"catch-up-{flush}", {"flush": flush}) as fleet:
        leader = fleet.leader()
        leader.create_topics([TOPIC], PARTITIONS)
        fleet.until_in_sync([TOPIC])
        late = fleet.members[max(fleet.members)]
        late.stop()
        fleet.until(lambda: late.node_id not in _in_sync(fleet), "to do without one")
        fill = {"batch_bytes": MEGABYTE_BATCH, "connections": 2, "in_flight": 4, "bytes_max": behind_gb * GIGABYTE}
        seconds = behind_gb * 1000 / FILL_MB_S_LEAST
        load("produce", leader.port, topic=TOPIC, partitions=PARTITIONS, seconds=seconds, **fill)
        _p99_us(leader.port)
        before = [_p99_us(leader.port) for _ in range(CALM_WINDOWS)]
        late.launch()
        began = time.monotonic()
        late.wait()
        during = _while_behind(fleet, late.node_id)
        took_s = time.monotonic() - began
    calm_us, busy_us = statistics.median(before), statistics.median(during)
    note = (
        f"p99 {calm_us:.0f} ({min(before):.0f} to {max(before):.0f}) → {busy_us:.0f} µs ({min(during):.0f} to "
        f"{max(during):.0f}) at {RATE:,}/s; {behind_gb:g} GB in {took_s:.0f} s with its start"
    )
    title = f"produce p99 while a follower catches up with {behind_gb:g} GB, flush={flush}, against before"
    yield Measure(f"catch-up-{flush}", title, busy_us / calm_us, "×", LIMIT, note)


def _p99_us(port: int) -> float:
    return load("latency", port, topic=TOPIC, seconds=WINDOW_S, rate=RATE, acks=-1)["ack_p99_us"]


def _in_sync(fleet: Fleet) -> set[int]:
    """Those that are in sync on every partition."""
    return set.intersection(*(set(each.isr_nodes) for each in fleet.partitions(TOPIC)), set(fleet.members))


def _while_behind(fleet: Fleet, late: int) -> list[float]:
    """The p99 of each window at whose end the follower was behind still: the others are of a cluster at rest."""
    windows: list[float] = []
    deadline = time.monotonic() + CATCHING_UP_S_MAX
    while time.monotonic() < deadline:
        p99_us = _p99_us(fleet.members[1].port)
        if late in _in_sync(fleet):
            if not windows:
                raise LoadFailed("the follower was in sync before anything could be measured")
            return windows
        windows.append(p99_us)
    raise LoadFailed(f"the follower was not in sync after {CATCHING_UP_S_MAX:.0f} s")
