"""What retention lets go of, and what it keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.storage import retention, snapshots
from penstock.storage.log import Log, LogSettings
from tests.storage.disks import FailingDisk
from tests.storage.logs import NOW_MS, append, batch_at, new_log, offsets, recovered

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Five segments of two records; each is a day younger than the one before, the last one is of today."""
    log = new_log(tmp_path / "t-0", LogSettings(segment_bytes=1 << 20))
    for day in range(5):
        if day:
            log.roll(2 * day, NOW_MS)
        append(
            log, batch_at(2 * day, 2, size=100, timestamps=[NOW_MS - (4 - day) * DAY_MS] * 2, producer=(1, 0, 2 * day))
        )
    return log


def decide(log: Log, high_watermark: int | None = None, now_ms: int = NOW_MS, **settings: object) -> int:
    log.settings = LogSettings(**{"retention_ms": -1, **settings})
    return retention.start_offset(log, now_ms, log.end_offset if high_watermark is None else high_watermark)


def test_segments_whose_newest_record_is_too_old_go(log: Log) -> None:
    assert decide(log, retention_ms=2 * DAY_MS) == 4
    assert decide(log, retention_ms=2 * DAY_MS - 1) == 6
    assert decide(log, retention_ms=10 * DAY_MS) == 0
    assert decide(log, retention_ms=-1) == 0


def test_all_may_go_even_the_active_segment(log: Log) -> None:
    assert decide(log, now_ms=NOW_MS + 9 * DAY_MS, retention_ms=DAY_MS) == 10
    dropped = log.delete_before(10, NOW_MS)
    assert len(dropped) == 5
    assert (log.start_offset, log.end_offset, offsets(log)) == (10, 10, [])
    log.discard(dropped)
    assert [path.name for path in log.directory.glob("*.log")] == ["00000000000000000010.log"]
    assert decide(log, now_ms=NOW_MS + 9 * DAY_MS, retention_ms=DAY_MS) == 10  # and again there is nothing to do
    assert log.delete_before(10, NOW_MS) == []
    again = recovered(log.directory).log
    assert (again.start_offset, again.end_offset) == (10, 10)
    assert again.producers.entries[1].last_sequence == 9


def test_the_active_segment_stays_unless_the_caller_lets_it_be_rolled(log: Log) -> None:
    assert len(log.delete_before(10)) == 4
    assert offsets(log) == [8, 9]


def test_a_timestamp_from_the_future_keeps_its_segment_and_those_behind_it(log: Log) -> None:
    log.segments[1].max_timestamp_ms = NOW_MS + DAY_MS
    assert decide(log, retention_ms=1) == 2


def test_a_segment_without_timestamps_is_as_old_as_its_file(log: Log) -> None:
    log.segments[0].max_timestamp_ms = -1
    log.segments[0].created_ms = NOW_MS - 3 * DAY_MS - 10
    assert decide(log, retention_ms=3 * DAY_MS + 9) == 2
    assert decide(log, retention_ms=3 * DAY_MS + 10) == 0


def test_segments_go_while_the_log_stays_as_large_as_asked(log: Log) -> None:
    size = log.segments[0].size
    assert decide(log, retention_bytes=5 * size) == 0
    assert decide(log, retention_bytes=5 * size - 1) == 0
    assert decide(log, retention_bytes=4 * size) == 2
    assert decide(log, retention_bytes=2 * size + 1) == 4
    assert decide(log, retention_bytes=0) == 10


def test_nothing_goes_that_is_not_committed(log: Log) -> None:
    assert decide(log, high_watermark=3, retention_bytes=0) == 2
    assert decide(log, high_watermark=1, retention_bytes=0) == 0


def test_a_log_that_is_only_compacted_keeps_all_but_what_lies_below_its_start(log: Log) -> None:
    settings = {"compact": True, "delete": False, "retention_bytes": 0, "retention_ms": 1}
    assert decide(log, **settings) == 0
    log.advance_start(5)
    assert decide(log, **settings) == 5
    assert len(log.delete_before(5)) == 2
    assert offsets(log) == [5, 6, 7, 8, 9]


def test_snapshots_that_no_restart_needs_are_removed(log: Log) -> None:
    for offset in (3, 5, 7):
        snapshots.save(log.disk, log.directory, offset, log.producers)
    log.discard(log.delete_before(4))
    assert snapshots.offsets(log.disk, log.directory) == [4, 6, 7, 8]
    assert retention.stale_snapshots([1, 2, 3, 4], [2]) == [1]
    assert retention.stale_snapshots([], [2]) == []


def test_a_start_that_could_not_be_saved_deletes_nothing(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = new_log(tmp_path / "t-0", disk=disk)
    append(log, batch_at(0))
    log.roll(1, NOW_MS)
    dropped = log.delete_before(1)
    disk.fail_write = disk.writes
    with pytest.raises(OSError, match="Input/output"):
        log.discard(dropped)
    assert dropped[0].path("log").exists()
