"""Someone reads old data, which is on the device only, while others write and read what is new: what they feel of it.

The two brokers take turns. Before each, all that the reader is going to read is put out of the page cache.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from bench import jars
from bench.cells import MEGABYTE_BATCH, SETTLE_S
from bench.loader import Figures, LoadFailed, load
from bench.peers import Peer, kafka, penstock
from bench.results import KAFKA, OURS, Comparison, Results

OLD, NEW = "old", "new"
WINDOW_S = 0.5
RATE = 1_000
READING_S_MAX = 120
READ = 0.95  # of what is there, so that nobody comes to its end
ROWS = {
    "cold-calm": ("end-to-end p99 before somebody reads old data", "p99_us", "µs"),
    "cold-p99": ("the same meanwhile", "p99_us", "µs"),
    "cold-read": ("old data, read from the device", "mb_s", "MB/s"),
}


def compare(work: Path, results: Results, rounds: int, gigabytes: float, with_kafka: bool) -> None:
    with contextlib.ExitStack() as stack:
        peers = {OURS: stack.enter_context(penstock(work / f"cold-{OURS}", {"flush": "os"}, name=OURS))}
        if with_kafka:
            try:
                peers[KAFKA] = stack.enter_context(kafka(work / f"cold-{KAFKA}", name=KAFKA))
            except jars.NoKafka as missing:
                results.fail("old data, Kafka", missing)
        rows = {name: Comparison(name, title, unit, unit == "µs", None) for name, (title, _, unit) in ROWS.items()}
        for peer in peers.values():
            _fill(peer, gigabytes)
        for number in range(rounds + 1):
            for column, peer in peers.items():
                found = _round(peer, gigabytes)
                shown = ", ".join(f"{name} {value:.0f}" for name, value in found.items())
                print(f"  {f'round {number}' if number else 'warming up'}: {column}: {shown}", flush=True)
                for name, value in found.items() if number else ():
                    rows[name].samples.setdefault(column, []).append(value)
        results.comparisons += rows.values()


def _fill(peer: Peer, gigabytes: float) -> None:
    peer.create_topics([OLD, NEW], 1)
    time.sleep(SETTLE_S)
    batches = {"batch_bytes": MEGABYTE_BATCH, "connections": 2, "in_flight": 4, "bytes_max": gigabytes * 1e9}
    load("produce", peer.port, topic=OLD, seconds=READING_S_MAX, acks=1, **batches)


def _round(peer: Peer, gigabytes: float) -> dict[str, float]:
    _forget(peer.data)
    calm = [_p99_us(peer) for _ in range(3)]
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(_read, peer, gigabytes)
        meanwhile = _while_reading(peer, reading)
    found = (statistics.median(calm), statistics.median(meanwhile), reading.result()["mb_s"])
    return dict(zip(ROWS, found, strict=True))


def _forget(data: Path) -> None:
    """Puts the old data out of the page cache, whoever wrote it."""
    for path in data.rglob(f"{OLD}-*/*.log"):
        with path.open("rb+") as file:
            os.fsync(file)
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read(peer: Peer, gigabytes: float) -> Figures:
    """Once, from the beginning."""
    requests = int(READ * gigabytes * 1e9 / MEGABYTE_BATCH)
    return load("fetch", peer.port, topic=OLD, fetch_bytes=1 << 20, requests_max=requests, seconds=READING_S_MAX)


def _while_reading(peer: Peer, reading: Future[Figures]) -> list[float]:
    windows: list[float] = []
    while not reading.done():
        p99_us = _p99_us(peer)
        if not reading.done() or not windows:
            windows.append(p99_us)
    if not windows:
        raise LoadFailed("all was read before anything could be measured")
    return windows


def _p99_us(peer: Peer) -> float:
    return load("latency", peer.port, topic=NEW, seconds=WINDOW_S, rate=RATE, acks=1)["p99_us"]
