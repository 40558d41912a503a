"""How long it takes from the command to the first answer, and what an idle broker weighs.

Readable is stricter than answering: a record of a partition has been fetched. After a clean stop a broker should not
have to read its logs, so that ten thousand partitions cost what their folders cost.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.loader import LoadFailed, load
from bench.peers import BrokerFailed, Peer, penstock
from bench.results import Measure

EMPTY_LIMIT_S, MANY_LIMIT_S = 0.4, 5.0
IDLE_LIMIT_MB, MANY_LIMIT_MB = 60.0, 300.0
RESIDENT_AFTER_S = 1.0
READABLE_WITHIN_S = 60.0
STARTS = 5
TOPIC = "many"
CREATE_AT_ONCE = 100  # topics in one request


def until_readable(peer: Peer, **options: object) -> float:
    """Seconds from the start command until a record could be fetched."""
    began = time.monotonic()
    while True:
        try:
            load("fetch", peer.port, requests_max=1, seconds=5, fetch_bytes=1024, **options)
            return peer.answered_s + time.monotonic() - began
        except LoadFailed as failure:
            if time.monotonic() - began > READABLE_WITHIN_S:
                raise BrokerFailed(f"nothing can be read after {READABLE_WITHIN_S:.0f} s: {failure}") from failure
            time.sleep(0.01)


def on_an_empty_folder(work: Path) -> Iterator[Measure]:
    starts, resident = [], []
    for number in range(STARTS):
        with penstock(work / f"empty-{number}") as peer:
            starts.append(peer.answered_s)
            if number == 0:
                time.sleep(RESIDENT_AFTER_S)
                resident.append(peer.memory_mb())
    yield Measure(
        "start-empty", "from command to first answer, empty folder", statistics.median(starts), "s", EMPTY_LIMIT_S
    )
    yield Measure("resident-idle", "resident when idle", resident[0], "MB", IDLE_LIMIT_MB)


@dataclass(frozen=True, slots=True)
class Layout:
    name: str
    topics: int
    partitions: int

    @property
    def title(self) -> str:
        topics = "one topic" if self.topics == 1 else f"{self.topics:,} topics"
        return f"{topics} of {self.partitions:,} partitions"

    @property
    def total(self) -> int:
        return self.topics * self.partitions

    def options(self) -> dict[str, object]:
        """How the load generator finds them."""
        return {"topic": TOPIC, "topics": self.topics, "partitions": self.partitions}

    def create(self, peer: Peer) -> None:
        names = [TOPIC] if self.topics == 1 else [f"{TOPIC}-{number:05}" for number in range(self.topics)]
        for first in range(0, len(names), CREATE_AT_ONCE):
            peer.create_topics(names[first : first + CREATE_AT_ONCE], self.partitions)


def layouts(partitions: int) -> tuple[Layout, Layout]:
    return Layout("one-topic", 1, partitions), Layout("many-topics", partitions // 10, 10)


@contextmanager
def many_partitions(work: Path, layout: Layout) -> Iterator[tuple[Path, list[Measure]]]:
    """The folder of a broker with a record in every partition, and how stopping and starting it went."""
    folder = work / layout.name
    try:
        with penstock(folder, keep=True) as peer:
            began = time.monotonic()
            layout.create(peer)
            created_s = time.monotonic() - began
            write_to_each(peer, layout)
            written_mb = peer.memory_mb()
            stopped_s = peer.stop()
        with penstock(folder, keep=True) as peer:
            readable_s = until_readable(peer, **layout.options())
            answered_s = peer.answered_s
            time.sleep(RESIDENT_AFTER_S)
            started_mb = peer.memory_mb()
            peer.stop()
        title, note = f"resident, {layout.title}", f"{started_mb:.0f} MB after a restart, before any is written to"
        resident = Measure(f"resident-{layout.name}", title, max(written_mb, started_mb), "MB", MANY_LIMIT_MB, note)
        title = f"from command to first answer, {layout.title}"
        note = f"created in {created_s:.1f} s, stopped in {stopped_s:.1f} s, readable after {readable_s:.1f} s"
        start = Measure(f"start-{layout.name}", title, answered_s, "s", MANY_LIMIT_S, note)
        yield folder, [start, resident]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_to_each(peer: Peer, layout: Layout) -> None:
    """One connection, so that the round is a round and each partition gets its record."""
    load("produce", peer.port, in_flight=5, seconds=60, requests_max=layout.total, **layout.options())
