"""What is lost or damaged beside a log must not turn aborted data into committed data, nor hold readers up for ever."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.protocol.record_batch import CONTROL_BIT
from penstock.storage import compaction
from penstock.storage.disk import Disk
from penstock.storage.log import Log, LogSettings
from penstock.storage.recovery import recover
from tests.storage.logs import NOW_MS, append, batch_at, end_transaction, new_log, seal_all

MANY = LogSettings(segment_bytes=400)
COMPACT = LogSettings(
    segment_bytes=250, compact=True, delete=False, min_cleanable_dirty_ratio=0.0, delete_retention_ms=1
)
HOUR_MS = 3600 * 1000


def write(log: Log, producer_id: int) -> None:
    append(log, batch_at(log.next_offset, producer=(producer_id, 0, 0), transactional=True))


def aborted_in_the_first_segment(folder: Path) -> Log:
    log = new_log(folder, MANY)
    write(log, 1)
    end_transaction(log, 1, committed=False)
    while len(log.segments) < 3:
        append(log, batch_at(log.next_offset))
    seal_all(log)
    return log


@pytest.mark.parametrize("damage", ["the log is shorter", "an entry of the index is wrong", "the index is lost"])
def test_what_was_aborted_stays_aborted(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "t-0"
    log = aborted_in_the_first_segment(folder)
    first = log.segments[0]
    index, data = first.path("index"), first.path("log")
    if damage == "the log is shorter":
        data.write_bytes(data.read_bytes()[:-1])
    elif damage == "the index is lost":
        index.unlink()
    else:
        entries = bytearray(index.read_bytes())
        entries[0] ^= 1
        index.write_bytes(entries)
        data.write_bytes(data.read_bytes() + batch_at(first.base_offset + 10))
    again = recover(Disk(), folder, MANY, NOW_MS).log
    assert [(each.producer_id, each.first_offset) for each in again.aborted_between(0, 2)] == [(1, 0)]


def test_a_marker_that_compaction_took_away_is_missed_by_nobody(tmp_path: Path) -> None:
    """Snapshots from before it call its transaction open: they go with it."""
    folder = tmp_path / "t-0"
    log = new_log(folder, COMPACT)
    append(log, batch_at(0, 2, keys=["a", "b"], producer=(7, 0, 0), transactional=True))
    for key in ("x", "y"):
        append(log, batch_at(log.next_offset, keys=[key]))  # a segment begins, and with it a snapshot
    end_transaction(log, 7, committed=False)
    for run in range(4):
        for n in range(12 if not run else 4):
            append(log, batch_at(log.next_offset, keys=[f"{min(run, 1)}-{n}"]))
        seal_all(log)
        plan = compaction.plan(log, NOW_MS + run * HOUR_MS, log.end_offset)
        assert plan is not None
        compaction.install(log, compaction.run(plan, log.disk))
    assert not any(batch.attributes & CONTROL_BIT for segment in log.segments for batch in segment.batches(0))
    for lost in sorted(folder.glob("*.index")):
        copy = tmp_path / lost.stem
        shutil.copytree(folder, copy)
        (copy / lost.name).unlink()
        again = recover(Disk(), copy, COMPACT, NOW_MS).log
        again.producers.committed_to(again.end_offset)
        assert again.producers.first_unstable_offset() is None, f"without {lost.name}"
