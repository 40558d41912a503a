"""Whether the broker stays the same when something grows: partitions, the log, connections, and upkeep beside it.

The cost of a request is processor time of the broker per request, which a busy machine disturbs less than a rate.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from bench.loader import LoadFailed, idle_connections, load
from bench.peers import Peer, penstock
from bench.results import Measure
from bench.startup import TOPIC, Layout, until_readable, write_to_each

FLAT = 1.25  # how much more a request may cost and still be called the same
COMPACTION_LIMIT = 2.0
ROUNDS = 3
GIGABYTE = 10**9
SMALL_BATCH = 16_384
WRITTEN_LATER = {"flush": "os"}  # where the disk is not what is measured
CONFIG_TIMEOUT_S = 30


def _cost_us(peer: Peer, mode: str, seconds: float, **options: object) -> float:
    """Processor time of the broker per request."""
    before = peer.cpu_s()
    figures = load(mode, peer.port, seconds=seconds, **options)
    return (peer.cpu_s() - before) / figures["requests"] * 1e6


def _costs(peer: Peer, seconds: float, fetch_bytes: int, **options: object) -> tuple[float, float]:
    """Of a single message, and of a fetch, anywhere in what `options` name."""
    produce = _cost_us(peer, "produce", seconds, anywhere=1, **options)
    fetch = _cost_us(peer, "fetch", seconds, anywhere=1, fetch_bytes=fetch_bytes, **options)
    return produce, fetch


def _growth(
    name: str,
    title: str,
    small: list[tuple[float, float]],
    large: list[tuple[float, float]],
    limit: float | None = FLAT,
) -> Iterator[Measure]:
    for index, what in enumerate(("produce", "fetch")):
        before, after = (statistics.median(costs[index] for costs in rounds) for rounds in (small, large))
        note = f"{before:.1f} → {after:.1f} µs of processor time a request"
        yield Measure(f"{name}-{what}", f"cost of a {what} request, {title}", after / before, "×", limit, note)


def over_partitions(work: Path, folder: Path, layout: Layout, seconds: float) -> Iterator[Measure]:
    """A broker on `folder`, which holds many partitions, and a fresh one with one: the same requests by turns.

    Spread over all partitions they cost more, whatever the broker does: each touches other files and other memory.
    """
    fetch_bytes = 1  # one batch, wherever it is
    with penstock(work / "one-partition", WRITTEN_LATER) as small, penstock(folder, WRITTEN_LATER, keep=True) as large:
        small.create_topics([TOPIC], 1)
        load("produce", small.port, topic=TOPIC, requests_max=1)
        write_to_each(large, layout)  # an opened log is what is compared, not the opening
        alone, among, spread = [], [], []
        for _ in range(ROUNDS + 1):
            alone.append(_costs(small, seconds, fetch_bytes, topic=TOPIC))
            among.append(_costs(large, seconds, fetch_bytes, topic=TOPIC))
            spread.append(_costs(large, seconds, fetch_bytes, **layout.options()))
        title = f"1 → {layout.total:,} partitions"
        yield from _growth("partitions", title, alone[1:], among[1:])
        yield from _growth("partitions-spread", f"{title}, spread over all", alone[1:], spread[1:], None)


def over_log_size(work: Path, small_gb: float, large_gb: float, seconds: float) -> Iterator[Measure]:
    """Two partitions of one broker, a small one and a large one: the same requests by turns."""
    folder = work / "growing"
    free_gb = shutil.disk_usage(work).free / GIGABYTE
    if free_gb < (small_gb + large_gb) * 1.2:
        raise OSError(f"a log of {large_gb:g} GB does not fit into {free_gb:.0f} GB of free space")
    sizes_gb = {"small": small_gb, "large": large_gb}
    try:
        with penstock(folder, WRITTEN_LATER, keep=True) as peer:
            peer.create_topics(sizes_gb, 1)
            for topic, size_gb in sizes_gb.items():
                fill = {"batch_bytes": SMALL_BATCH, "in_flight": 5, "bytes_max": size_gb * GIGABYTE}
                load("produce", peer.port, topic=topic, seconds=20 + 30 * size_gb, **fill)
            os.sync()  # a disk that still writes would be measured with whoever comes first
            costs: dict[str, list[tuple[float, float]]] = {topic: [] for topic in sizes_gb}
            for _ in range(ROUNDS + 1):
                for topic, found in costs.items():
                    found.append(_costs(peer, seconds, SMALL_BATCH, topic=topic))
            title = f"{small_gb:g} → {large_gb:g} GB of log"
            yield from _growth("log", title, costs["small"][1:], costs["large"][1:])
            peer.stop()
        with penstock(folder) as peer:
            readable_s = until_readable(peer, topic="large")
            yield Measure("start-log", f"from command to first record, {large_gb:g} GB of log", readable_s, "s")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def after_a_crash(work: Path, log_gb: float, flush: str) -> Iterator[Measure]:
    """kill -9 of a broker with a log, and the time until it serves again, with nothing lost."""
    folder = work / f"crashed-{flush}"
    try:
        with penstock(folder, {"flush": flush}, keep=True) as peer:
            peer.create_topics(["log"], 1)
            fill = {"batch_bytes": SMALL_BATCH, "in_flight": 5, "bytes_max": log_gb * GIGABYTE}
            acknowledged = int(load("produce", peer.port, topic="log", seconds=60, **fill)["records"])
            peer.kill()
        with penstock(folder, {"flush": flush}) as peer:
            readable_s = until_readable(peer, topic="log")
            found = _end_offset(peer, "log")
            if found < acknowledged:
                raise LoadFailed(f"{acknowledged - found} of {acknowledged} acknowledged records are lost")
            title = f"from command to first record after kill -9, {log_gb:g} GB of log, flush={flush}"
            yield Measure(f"crash-{flush}", title, readable_s, "s", note=f"all {acknowledged:,} records are there")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _end_offset(peer: Peer, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": peer.address, "group.id": "bench", "log_level": 2})
    try:
        end: int = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=CONFIG_TIMEOUT_S)[1]
        return end
    finally:
        consumer.close()


def with_idle_connections(work: Path, count: int, seconds: float) -> Iterator[Measure]:
    with penstock(work / "idle", WRITTEN_LATER) as peer:
        peer.create_topics(["idle"], 1)
        _latency_p99_us(peer, "idle", seconds)
        alone_us = statistics.median(_latency_p99_us(peer, "idle", seconds) for _ in range(ROUNDS))
        before_mb = peer.memory_mb()
        with idle_connections(peer.port, count) as opened:
            crowded_us = statistics.median(_latency_p99_us(peer, "idle", seconds) for _ in range(ROUNDS))
            after_mb = peer.memory_mb()
            note = f"{(after_mb - before_mb) * 1024 / count:.1f} KB each; opened in {opened['seconds']:.1f} s"
            yield Measure("idle-memory", f"resident with {count:,} idle connections", after_mb, "MB", note=note)
        note = f"p99 {alone_us:.0f} → {crowded_us:.0f} µs"
        yield Measure(
            "idle-latency", f"end-to-end p99 beside {count:,} idle connections", crowded_us / alone_us, "×", note=note
        )


def _latency_p99_us(peer: Peer, topic: str, seconds: float) -> float:
    return load("latency", peer.port, topic=topic, seconds=seconds)["p99_us"]


# ---- compaction


def during_compaction(work: Path, log_gb: float, seconds: float) -> Iterator[Measure]:
    """End-to-end latency while the worker compacts another topic, against the same broker with nothing to do."""
    with penstock(work / "compacting", WRITTEN_LATER | {"log.cleaner.backoff.ms": "200"}) as peer:
        # The lag holds compaction back until it is wanted.
        held_back = {"min.compaction.lag.ms": str(7 * 24 * 3600 * 1000), "segment.bytes": str(64 << 20)}
        peer.create_topics(
            ["state"], 4, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", **held_back}
        )
        peer.create_topics(["events"], 1)
        fill = {"batch_bytes": 65_536, "record_bytes": 200, "keys": 1_000_000, "bytes_max": log_gb * GIGABYTE}
        load("produce", peer.port, topic="state", partitions=4, in_flight=5, seconds=60, **fill)
        _latency_p99_us(peer, "events", seconds)
        calm_us = statistics.median(_latency_p99_us(peer, "events", seconds) for _ in range(ROUNDS))
        _let_compaction_begin(peer, "state")
        busy_us, busy_share = _while_compacting(peer, seconds)
        note = f"p99 {calm_us:.0f} → {busy_us:.0f} µs; the worker was busy {busy_share:.0%} of the time"
        yield Measure(
            "compaction-latency",
            "end-to-end p99 during a compaction, against an idle broker",
            busy_us / calm_us,
            "×",
            COMPACTION_LIMIT,
            note,
        )


def _let_compaction_begin(peer: Peer, topic: str) -> None:
    entry = ConfigEntry("min.compaction.lag.ms", "0", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in peer.admin.incremental_alter_configs([change]).values():
        future.result(CONFIG_TIMEOUT_S)
    deadline = time.monotonic() + 10
    idle = peer.workers_cpu_s()
    while peer.workers_cpu_s() < idle + 0.05 and time.monotonic() < deadline:
        time.sleep(0.02)


def _while_compacting(peer: Peer, seconds: float) -> tuple[float, float]:
    """The median of p99s, and the share of the time that the worker worked: windows without work do not count."""
    windows: list[tuple[float, float]] = []
    while len(windows) < ROUNDS:
        began, work = time.monotonic(), peer.workers_cpu_s()
        p99_us = _latency_p99_us(peer, "events", seconds)
        share = (peer.workers_cpu_s() - work) / (time.monotonic() - began)
        if share < 0.2:
            break
        windows.append((p99_us, share))
    if not windows:
        raise LoadFailed("compaction did not last long enough to be measured")
    p99s, shares = zip(*windows)
    return statistics.median(p99s), statistics.mean(shares)
