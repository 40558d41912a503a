"""Rows to files of days, with real Parquet."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.archive import parquet
from penstock.pipeline.archive.layout import Archive
from penstock.pipeline.archive.parquet import DAYS_MAX, FILE_SCHEMA, RangeFiles, by_day, day_name
from tests.pipeline.archive.rows import DAY_MS, NOON_MS, archive_range, read_all, rows

TIMES_MS = st.integers(-(2**63 // 1000), 2**63 // 1000)


@given(times=st.lists(st.one_of(TIMES_MS, st.integers(-3 * DAY_MS, 3 * DAY_MS)), min_size=1, max_size=30))
def test_every_row_is_among_those_of_its_day_in_the_order_of_offsets(times: list[int]) -> None:
    found = by_day(rows(range(len(times)), times))
    assert [day for day, _ in found] == sorted({day for day, _ in found})
    seen = []
    for day, of_day in found:
        offsets = of_day.column("offset").to_pylist()
        assert offsets == sorted(offsets)
        for offset in offsets:
            assert day == max(parquet.DAY_FIRST, min(times[offset] // DAY_MS, parquet.DAY_LAST))
        seen += offsets
        assert len(day_name(day)) == 10
    assert sorted(seen) == list(range(len(times)))


def test_a_file_has_the_columns_of_a_record_and_statistics_of_offsets_and_times(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    archive_range(archive, "orders", 100, 300)
    (file,) = archive.files("orders")
    opened = pq.ParquetFile(file.path)
    assert opened.schema_arrow.equals(FILE_SCHEMA)
    assert opened.read().to_batches()[0].equals(rows(range(100, 300)))
    group = opened.metadata.row_group(0)
    columns = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    assert columns["offset"].statistics.min == 100
    assert columns["offset"].statistics.max == 299
    assert columns["timestamp"].statistics is not None
    assert columns["value"].compression == "ZSTD"


def test_row_groups_are_written_as_they_fill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 2000)
    archive = Archive(str(tmp_path))
    files = RangeFiles(archive, "t", 0)
    for start in range(0, 1000, 10):
        files.add(rows(range(start, start + 10)))
        assert sum(each.buffered_bytes for each in files._days.values()) < 4000
    assert files.publish(0, 1000) == 1
    opened = pq.ParquetFile(archive.files("t")[0].path)
    assert opened.num_row_groups > 10
    assert opened.read().column("offset").to_pylist() == list(range(1000))


def test_more_days_than_can_be_open_do_not_fit(tmp_path: Path) -> None:
    files = RangeFiles(Archive(str(tmp_path)), "t", 0)
    count = DAYS_MAX + 10
    many = rows(range(count), [NOON_MS + at * DAY_MS for at in range(count)])
    assert files.room(many) == DAYS_MAX
    files.add(many.slice(0, DAYS_MAX))
    assert files.room(many.slice(0, 5)) == 5
    assert files.room(many.slice(DAYS_MAX)) == 0
    files.abandon()
    assert not [each for each in tmp_path.rglob("*") if each.is_file()]


def test_what_is_abandoned_is_not_seen(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    files = RangeFiles(archive, "t", 0)
    files.add(rows(range(50)))
    files.abandon()
    assert archive.files("t") == []
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []


def test_the_same_range_written_again_has_the_same_name(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    times = [NOON_MS, NOON_MS + DAY_MS] * 5
    archive_range(archive, "t", 0, 10, times)
    before = [(each.path, each.size) for each in archive.files("t")]
    archive_range(archive, "t", 0, 10, times)
    assert [(each.path, each.size) for each in archive.files("t")] == before
    assert len(read_all(archive, "t")) == 10


@pytest.mark.parametrize("compression", ["snappy", "lz4", "none"])
def test_every_compression_can_be_read(tmp_path: Path, compression: str) -> None:
    archive = Archive(str(tmp_path))
    files = RangeFiles(archive, "t", 0, compression)
    files.add(rows(range(100)))
    files.publish(0, 100)
    assert pa.Table.from_pylist(read_all(archive, "t"), FILE_SCHEMA).to_batches()[0].equals(rows(range(100)))
