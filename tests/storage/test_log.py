"""Appending to a log and reading from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.storage.log import LogSettings
from tests.storage.disks import FailingDisk, FullDisk
from tests.storage.logs import NOW_MS, append, batch_at, fill, new_log, offsets, read_all, stage


def test_a_consumer_at_the_end_goes_on_when_the_segment_is_rolled(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0")
    fill(log, 1)
    assert len(read_all(log)) == 2  # a fetch has ended at the end of the active segment
    log.roll(log.next_offset, NOW_MS)
    fill(log, 1)
    assert [r.offset for r in read_all(log, start=2)] == [2, 3]


def test_a_batch_larger_than_the_fetch_at_the_end_of_a_segment_does_not_stop_the_consumer(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0")
    append(log, batch_at(0, size=500))
    log.roll(1, NOW_MS)
    fill(log, 1)
    assert [r.offset for r in read_all(log, max_bytes=100)] == [0, 1, 2]


def test_a_fetch_of_less_than_one_batch_gets_it_whole_only_if_it_is_the_first(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0")
    append(log, batch_at(0, size=500))
    assert log.read(0, 10, log.end, at_least_one=False) is None
    found = log.read(0, 10, log.end)
    assert found is not None
    assert found.size > 500


def test_all_batches_of_a_turn_are_one_write(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = new_log(tmp_path / "t-0", disk=disk)
    append(log, batch_at(0))
    before = disk.writes
    append(log, batch_at(1), batch_at(2), batch_at(3))
    assert disk.writes == before + 1
    assert offsets(log) == [0, 1, 2, 3]


@pytest.mark.parametrize("disk", [FullDisk(500), FailingDisk(fail_write=3)], ids=["full", "failing"])
def test_what_could_not_be_written_is_not_in_the_log(tmp_path: Path, disk: FullDisk | FailingDisk) -> None:
    log = new_log(tmp_path / "t-0", LogSettings(index_interval_bytes=1), disk)
    append(log, batch_at(0, 2, producer=(7, 0, 0), timestamps=[NOW_MS, NOW_MS]))
    append(log, batch_at(2, 2, producer=(7, 0, 2), timestamps=[NOW_MS, NOW_MS + 1]))
    state = (
        log.end_offset,
        log.size,
        log.producers.dump(),
        list(log.segments[-1].index.positions),
        log.max_timestamp(),
    )
    stage(log, batch_at(4, 1, size=300, producer=(7, 0, 4), timestamps=[NOW_MS + 99]))
    stage(log, batch_at(5, 1, size=300, producer=(8, 0, 0), timestamps=[NOW_MS + 100]))
    with pytest.raises(OSError, match=r"No space|Input/output"):
        log.write_staged()
    assert log.next_offset == 4
    log.producers.entries.pop(8)  # an entry without batches says no more than none at all
    assert (log.end_offset, log.size, log.producers.dump()) == state[:3]
    assert list(log.segments[-1].index.positions) == state[3]
    assert log.max_timestamp() == state[4]
    assert (log.segments[-1].path("log")).stat().st_size == log.size
    if isinstance(disk, FullDisk):
        disk.free(10_000)
    else:
        disk.heal()
    append(log, batch_at(4, 1, producer=(7, 0, 4)))
    assert offsets(log) == [0, 1, 2, 3, 4]
    assert log.producers.entries[7].last_sequence == 4


def test_a_roll_on_a_full_disk_leaves_the_log_as_it_was_and_heals(tmp_path: Path) -> None:
    disk = FullDisk(1050)
    log = new_log(tmp_path / "t-0", disk=disk)
    fill(log, 10)
    assert len(log.segments) == 1
    with pytest.raises(OSError, match="No space"):
        append(log, batch_at(20, size=300))
    assert log.end_offset == log.next_offset == 20
    disk.free(1000)
    append(log, batch_at(20, size=300))
    assert offsets(log) == list(range(21))


def test_a_segment_is_rolled_by_size_by_time_and_by_the_span_of_its_offsets(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", LogSettings(segment_bytes=200, segment_ms=1000))
    append(log, batch_at(0), now_ms=NOW_MS)
    append(log, batch_at(1), now_ms=NOW_MS + 1000)
    assert len(log.segments) == 1
    append(log, batch_at(2), now_ms=NOW_MS + 1001)
    assert [s.base_offset for s in log.segments] == [0, 2]
    append(log, batch_at(3), batch_at(4), batch_at(5), now_ms=NOW_MS + 1001)
    assert [s.base_offset for s in log.segments] == [0, 2, 4]
    append(log, batch_at(5 + 2**31), now_ms=NOW_MS + 1001)
    assert [s.base_offset for s in log.segments] == [0, 2, 4, 5 + 2**31]


def test_a_compacted_log_rolls_in_time_for_the_largest_lag() -> None:
    assert LogSettings(compact=True, segment_ms=10_000, max_compaction_lag_ms=500).segment_ms == 500
    assert LogSettings(compact=False, segment_ms=10_000, max_compaction_lag_ms=500).segment_ms == 10_000


def test_an_index_that_lies_is_rebuilt(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0")
    fill(log, 8)
    segment = log.segments[0]
    segment.index.positions[-1] += 3
    log.forget_positions()
    assert [r.offset for r in read_all(log, start=14)] == [14, 15]
    assert segment.index.positions[-1] == 0


def test_the_index_of_a_reopened_segment_grows_on(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", LogSettings(index_interval_bytes=1))
    fill(log, 3)
    segment = log.segments[0]
    segment.seal()
    segment.close()
    fill(log, 3)
    assert len(segment.index) == 6
    assert offsets(log) == list(range(12))


def test_a_growing_segment_can_be_vouched_for_in_part(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", LogSettings(index_interval_bytes=1))
    fill(log, 2)
    segment = log.segments[0]
    covered = segment.size
    segment.sync()
    fill(log, 2)
    segment.save_index(covered)
    assert segment.sealed_to == covered
    assert len(segment.index) == 4
    fill(log, 1)
    assert offsets(log) == list(range(10))


def test_a_segment_that_holds_data_is_never_begun_anew(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0")
    fill(log, 3)
    forgetful = new_log(tmp_path / "t-0", epoch=None)
    with pytest.raises(FileExistsError):
        append(forgetful, batch_at(0))
    assert offsets(log) == [0, 1, 2, 3, 4, 5]


def test_the_first_epoch_has_all_of_the_log_and_later_ones_begin_behind_what_is_staged(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", epoch=None)
    stage(log, batch_at(0, 2, epoch=4))
    log.begin_epoch(4)
    stage(log, batch_at(2, 2, epoch=4))
    log.begin_epoch(6)
    log.write_staged()
    assert (log.epochs.epochs, log.epochs.starts) == ([4, 6], [0, 4])
