"""The clean stop: what it leaves, and that the next start needs nothing else."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path

import pytest

from penstock.storage import summary
from penstock.storage.disk import Disk
from penstock.storage.log import Log
from penstock.storage.segment import Segment
from penstock.storage.summary import LogSummary
from tests.machine import slowness
from tests.storage.disks import CountingDisk, FailingDisk
from tests.storage.logs import NOW_MS, SMALL, append, batch_at, fill, new_log, offsets, read_all

LOGS = 10_000
TOPIC_ID, OTHER_ID = bytes(range(16)), bytes(range(16, 32))


def reopened(log: Log, disk: Disk | None = None) -> Log:
    summary.close_cleanly(log)
    found = summary.parse(summary.dump({"t-0": summary.summarize(log, TOPIC_ID)}))
    assert found is not None
    return summary.open_log(disk or log.disk, log.directory, SMALL, found["t-0"])


def test_a_log_is_opened_without_touching_a_file(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0")
    fill(log, 20)
    disk = CountingDisk()
    again = reopened(log, disk)
    assert disk.calls == 0
    assert (again.start_offset, again.end_offset, again.size) == (0, 40, log.size)
    assert read_all(again) == read_all(log)
    assert again.max_timestamp() == log.max_timestamp()


def test_reopening_reads_no_batch_to_know_the_producers(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0")
    for n in range(20):
        append(log, batch_at(n, producer=(4, 0, n)))
    disk = CountingDisk()
    again = reopened(log, disk)
    assert again.producers.dump() == log.producers.dump()
    assert disk.log_bytes_read == 0
    append(again, batch_at(20, producer=(4, 0, 20)))
    assert offsets(again) == list(range(21))


def test_a_log_that_was_not_touched_costs_nothing_to_close(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0")
    fill(log, 20)
    disk = FailingDisk(fail_write=0, fail_sync=0)
    again = reopened(log, disk)
    summary.close_cleanly(again)
    assert (disk.writes, disk.syncs) == (0, 0)


def test_an_empty_log_leaves_no_folder(tmp_path: Path) -> None:
    log = Log(Disk(), tmp_path / "t-0", SMALL, [], 0, 0)
    again = reopened(log)
    assert (again.end_offset, again.segments) == (0, [])
    assert not (tmp_path / "t-0").exists()
    fill(again, 1)
    assert offsets(again) == [0, 1]


def test_a_lost_snapshot_or_index_costs_time_only(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0")
    for n in range(30):
        append(log, batch_at(n, producer=(4, 0, n)))
    again = reopened(log)
    for path in [*log.directory.glob("*.snapshot"), *log.directory.glob("*.index")]:
        path.unlink()
    assert again.producers.entries[4].last_sequence == 29
    assert offsets(again) == list(range(30))


def test_the_file_is_gone_once_it_was_read(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0")
    fill(log, 2)
    summary.close_cleanly(log)
    untouched = {"other-0": LogSummary(TOPIC_ID, 1, 2, -1, b"")}
    summary.save(log.disk, tmp_path, {"t-0": summary.summarize(log, OTHER_ID), **untouched})
    found = summary.load(log.disk, tmp_path)
    assert found is not None
    assert found["other-0"] == untouched["other-0"]
    assert found["t-0"].size == log.size
    assert found["t-0"].topic_id == OTHER_ID
    assert summary.load(log.disk, tmp_path) is None


@pytest.mark.parametrize(
    "change", [lambda d: d[:-1], lambda d: d[:20] + b"x" + d[21:], lambda d: b"", lambda d: d + b"x"]
)
def test_a_damaged_file_is_no_clean_stop(tmp_path: Path, change: object) -> None:
    log = new_log(tmp_path / "t-0")
    fill(log, 2)
    summary.close_cleanly(log)
    data = summary.dump({"t-0": summary.summarize(log, TOPIC_ID)})
    assert summary.parse(change(data)) is None


def test_a_file_of_a_former_version_is_no_clean_stop(tmp_path: Path) -> None:
    """It does not say of which topics its logs are."""
    log = new_log(tmp_path / "t-0")
    fill(log, 2)
    summary.close_cleanly(log)
    data = bytearray(summary.dump({"t-0": summary.summarize(log, TOPIC_ID)}))
    assert data[8:10] == bytes([0, 2])
    data[9] = 1
    assert summary.parse(bytes(data)) is None


def test_ten_thousand_logs_are_opened_in_no_time(tmp_path: Path) -> None:
    logs = {}
    for n in range(LOGS):
        name = f"a-topic-with-a-name-of-usual-length-{n}"
        segment = Segment(Disk(), tmp_path / name, 10**9 + n, size=10**8 + n, created_ms=NOW_MS)
        segment.first_timestamp_ms, segment.max_timestamp_ms, segment.max_timestamp_offset = NOW_MS, NOW_MS, 10**9
        logs[name] = Log(Disk(), tmp_path / name, SMALL, [segment], 10**9 + n, 10**9 + n + 500)
        logs[name].snapshot_offset = logs[name].end_offset
    data = summary.dump({name: summary.summarize(log, TOPIC_ID) for name, log in logs.items()})
    del logs
    tracemalloc.start()
    found = summary.parse(data)
    assert found is not None
    disk = Disk()
    opened = [summary.open_log(disk, tmp_path / name, SMALL, each) for name, each in found.items()]
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(opened) == LOGS
    assert held < 30e6
    began = time.process_time()
    found = summary.parse(data)
    assert found is not None
    opened = [summary.open_log(disk, tmp_path / name, SMALL, each) for name, each in found.items()]
    assert time.process_time() - began < 0.3 * slowness()
