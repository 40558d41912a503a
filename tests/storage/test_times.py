"""Finding records by their timestamps."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.protocol.compression import Compression
from penstock.protocol.record_batch import TimestampType, build_batch
from penstock.storage.log import LogSettings
from tests.storage.logs import NOW_MS, append, batch_at, new_log, record, stage


@pytest.mark.parametrize("codec", list(Compression))
def test_the_exact_record_inside_a_batch_is_found(tmp_path: Path, codec: Compression) -> None:
    log = new_log(tmp_path / "t-0")
    append(log, batch_at(0, 4, timestamps=[10, 30, 20, 40], compression=codec, epoch=0))
    append(log, batch_at(4, 2, timestamps=[35, 50], compression=codec, epoch=2))
    assert log.offset_for_timestamp(0) == (0, 10, 0)
    assert log.offset_for_timestamp(11) == (1, 30, 0)
    assert log.offset_for_timestamp(31) == (3, 40, 0)
    assert log.offset_for_timestamp(41) == (5, 50, 2)
    assert log.offset_for_timestamp(51) is None
    assert log.max_timestamp() == (5, 50, 2)


def test_an_empty_log_has_no_times(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0")
    assert log.offset_for_timestamp(0) is None
    assert log.max_timestamp() is None


def test_records_below_the_start_do_not_count(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0")
    append(log, batch_at(0, 3, timestamps=[10, 99, 20]))
    append(log, batch_at(3, 2, timestamps=[15, 15]))
    log.advance_start(2)
    assert log.offset_for_timestamp(12) == (2, 20, 0)
    assert log.max_timestamp() == (2, 20, 0)
    log.advance_start(3)
    assert log.offset_for_timestamp(12) == (3, 15, 0)
    assert log.max_timestamp() == (3, 15, 0)


def test_with_the_brokers_time_the_whole_batch_has_it(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0")
    times = [NOW_MS - 5, NOW_MS]
    records = [record(slot, timestamp_ms=time) for slot, time in enumerate(times)]
    append(log, build_batch(records, timestamp_type=TimestampType.LOG_APPEND_TIME, partition_leader_epoch=0))
    assert log.offset_for_timestamp(NOW_MS) == (0, NOW_MS, 0)
    assert log.max_timestamp() == (0, NOW_MS, 0)


def test_what_is_only_staged_is_not_found(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", LogSettings(index_interval_bytes=1))
    append(log, batch_at(0, timestamps=[10]))
    stage(log, batch_at(1, timestamps=[20]))
    assert log.offset_for_timestamp(15) is None
    assert log.max_timestamp() == (0, 10, 0)
    log.write_staged()
    assert log.offset_for_timestamp(15) == (1, 20, 0)
    assert log.max_timestamp() == (1, 20, 0)


def test_a_batch_that_cannot_be_opened_stands_for_its_first_record(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0")
    append(log, batch_at(0, timestamps=[10]))
    broken = bytearray(batch_at(1, 2, timestamps=[20, 30], compression=Compression.GZIP))
    broken[70:80] = bytes(10)
    append(log, bytes(broken))
    assert log.offset_for_timestamp(11) == (1, 30, 0)


def test_the_first_of_equal_times_is_the_newest(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0")
    append(log, batch_at(0, 2, timestamps=[10, 50]))
    log.roll(2, NOW_MS)
    append(log, batch_at(2, 2, timestamps=[50, 50]))
    assert log.max_timestamp() == (1, 50, 0)
