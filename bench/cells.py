"""The cells of the comparison: what load they are, which figure counts, and what the goal is.

Every cell has a topic of its own, on all brokers. Brokers take turns within a cell, so that a noisy neighbour on the
machine disturbs all of them, and a figure is the median of its rounds.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bench.loader import LoadFailed, load
from bench.peers import BrokerFailed, Peer
from bench.results import COLUMNS, KAFKA, KAFKA_DURABLE, OURS, Comparison

PARTITIONS = 6
SETTLE_S = 0.4  # after a topic is created, before it is used
MEGABYTE_BATCH, SMALL_BATCH = 1_000_000, 16_384
HUNDRED_RECORDS = {"batch_bytes": 11_060, "record_bytes": 100}
BYTES_MAX = 1.5e9
WARM_S = 2.0  # a JVM compiles what it has seen often
READERS = (OURS, KAFKA)  # reading waits for no disk: the durable brokers would only repeat the others


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    title: str
    key: str
    unit: str
    goal: float | None = None
    less_is_better: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    name: str
    mode: str
    figures: tuple[Figure, ...]
    options: Mapping[str, object]
    fill: Mapping[str, object] | None = None
    fill_mode: str = "produce"
    columns: Sequence[str] = field(default=tuple(COLUMNS))


def _produce(name: str, title: str, goal: float | None, **options: object) -> Cell:
    figure = Figure(name, title, "mb_s", "MB/s", goal)
    return Cell(name, "produce", (figure,), {"in_flight": 5, "bytes_max": BYTES_MAX, **options})


def _single(connections: int, goal: float) -> Cell:
    title = f"single messages of 1 KB, {connections} connection{'s' if connections > 1 else ''}"
    figure = Figure(f"single-{connections}", title, "requests_s", "requests/s", goal)
    return Cell(figure.name, "produce", (figure,), {"connections": connections})


def _fill(batch_bytes: int, bytes_max: float) -> dict[str, object]:
    return {"connections": 6, "in_flight": 5, "batch_bytes": batch_bytes, "bytes_max": bytes_max, "seconds": 20}


def _transactions(connections: int, goal: float | None, p99_goal: float | None) -> Cell:
    """Committed one after another: the commit is answered early, but the next transaction may have to wait for it."""
    who = "one producer" if connections == 1 else f"{connections} producers"
    name = f"transactions-{connections}"
    figures = (
        Figure(name, f"transactions of 100 records, {who}", "transactions_s", "per second", goal),
        Figure(f"{name}-p50", f"commit, {who}, p50", "commit_p50_us", "µs", less_is_better=True),
        Figure(f"{name}-p99", f"commit, {who}, p99", "commit_p99_us", "µs", p99_goal, less_is_better=True),
        Figure(f"{name}-whole", f"from begin to committed, {who}, p99", "p99_us", "µs", less_is_better=True),
    )
    return Cell(name, "transact", figures, {"connections": connections, **HUNDRED_RECORDS})


def _fetch_decided(name: str, title: str, committed: int) -> Cell:
    """Of a topic that was written in transactions, one in ten of which was aborted."""
    return Cell(
        name,
        "fetch",
        (Figure(name, title, "mb_s", "MB/s"),),
        {"fetch_bytes": 1 << 20, "connections": 6, "committed": committed},
        fill={"connections": 6, "batch_bytes": MEGABYTE_BATCH, "bytes_max": 0.3e9, "abort_every": 10, "seconds": 20},
        fill_mode="transact",
        columns=READERS,
    )


CELLS = [
    _produce("produce-1m", "produce, batches of 1 MB", 3.0, batch_bytes=MEGABYTE_BATCH),
    _produce("produce-16k", "produce, batches of 16 KB", 3.0, batch_bytes=SMALL_BATCH),
    _produce("produce-16k-idempotent", "the same, idempotent", None, batch_bytes=SMALL_BATCH, idempotent=1),
    _produce(
        "records-100b",
        "produce, 100-byte records in 16 KB",
        3.0,
        batch_bytes=SMALL_BATCH,
        record_bytes=100,
        connections=6,
    ),
    Cell(
        "fetch-1m",
        "fetch",
        (Figure("fetch-1m", "fetch, 1 MB a request", "mb_s", "MB/s", 1.0),),
        {"fetch_bytes": 1 << 20, "partitions": 1},
        fill=_fill(MEGABYTE_BATCH, 0.6e9),
        columns=READERS,
    ),
    Cell(
        "fetch-16k",
        "fetch",
        (Figure("fetch-16k", "fetch, 16 KB a request, 20 connections", "requests_s", "requests/s", 1.5),),
        {"fetch_bytes": SMALL_BATCH, "connections": 20},
        fill=_fill(SMALL_BATCH, 0.3e9),
        columns=READERS,
    ),
    _single(1, 1.2),
    _single(10, 1.7),
    _single(100, 1.7),
    Cell(
        "end-to-end",
        "latency",
        (
            Figure("e2e-p50", "end-to-end latency, p50", "p50_us", "µs", 1.2, less_is_better=True),
            Figure("e2e-p99", "end-to-end latency, p99", "p99_us", "µs", 4.0, less_is_better=True),
        ),
        {"rate": 1000, "partitions": 1},
    ),
    _transactions(1, 1.5, 2.0),
    _transactions(10, 1.5, 2.0),
    _fetch_decided("fetch-transactions", "fetch, 1 MB, written in transactions", 0),
    _fetch_decided("fetch-transactions-committed", "the same, read_committed", 1),
]
MEMORY = Figure("memory", "resident memory after all of the above", "", "MB", 10.0, less_is_better=True)


def choose(names: str) -> list[Cell]:
    """By comma-separated beginnings of names; "all" is all of them."""
    wanted = names.split(",")
    return [cell for cell in CELLS if "all" in wanted or any(cell.name.startswith(name) for name in wanted if name)]


def run_cell(peer: Peer, cell: Cell, seconds: float, acks: int) -> dict[str, float]:
    topic = f"{cell.name}-{uuid.uuid4().hex[:8]}"
    peer.create_topics([topic], PARTITIONS)
    os.sync()  # what was written before goes to the device now: whoever comes next is not to pay for it
    time.sleep(SETTLE_S)
    common: dict[str, object] = {"topic": topic, "partitions": PARTITIONS, "acks": acks}
    try:
        if cell.fill:
            load(cell.fill_mode, peer.port, **common | dict(cell.fill))
        return load(cell.mode, peer.port, **common | {"seconds": seconds} | dict(cell.options))
    finally:
        peer.delete_topics([topic])


class Contest:
    """The cells on the brokers that are up, round by round."""

    def __init__(self, peers: Mapping[str, Peer], seconds: float, acks: int, warm_s: float = WARM_S) -> None:
        """A virtual machine is warm after so long; with three of them on two cores it takes longer."""
        self.peers = peers
        self._longest_warm_s = warm_s
        self.failures: list[str] = []
        self._seconds = seconds
        self._acks = acks
        self._rows: dict[str, Comparison] = {}

    def play(self, cells: Sequence[Cell], rounds: int) -> list[Comparison]:
        for number in range(rounds + 1):
            for cell in cells:
                self._turn(cell, "warming up" if number == 0 else f"round {number} of {rounds}", number > 0)
        if cells:
            row = self._row(MEMORY)
            for column, peer in self.peers.items():
                row.samples.setdefault(column, []).append(peer.memory_mb())
        return list(self._rows.values())

    def _turn(self, cell: Cell, when: str, counts: bool) -> None:
        shown = []
        for column in self._columns(cell):
            try:
                got = run_cell(self.peers[column], cell, self._seconds if counts else self._warm_s(column), self._acks)
            except (LoadFailed, BrokerFailed) as failure:
                self.failures.append(f"{cell.name}, {COLUMNS[column]}: {failure}")
                shown.append(f"{column} FAILED")
                continue
            for figure in cell.figures:
                row = self._row(figure)
                if counts:
                    row.samples.setdefault(column, []).append(got[figure.key])
            shown.append(f"{column} " + "/".join(f"{got[figure.key]:.0f}" for figure in cell.figures))
        print(f"  {when}: {cell.name} ({cell.figures[0].unit}): {', '.join(shown)}", flush=True)

    def _warm_s(self, column: str) -> float:
        if column in (KAFKA, KAFKA_DURABLE):
            return min(self._longest_warm_s, 4 * self._seconds)
        return min(0.3, self._seconds)

    def _columns(self, cell: Cell) -> Iterable[str]:
        return [column for column in cell.columns if column in self.peers]

    def _row(self, figure: Figure) -> Comparison:
        fresh = Comparison(figure.name, figure.title, figure.unit, figure.less_is_better, figure.goal)
        return self._rows.setdefault(figure.name, fresh)
