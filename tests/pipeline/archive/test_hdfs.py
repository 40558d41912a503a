"""An archive where files can't be copied by the store, nor moved over others, as on HDFS."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow.fs import PyFileSystem

from penstock.pipeline.archive import compaction, publishing
from penstock.pipeline.archive.layout import Archive
from penstock.pipeline.archive.location import Location
from tests.pipeline.archive.hdfs import HadoopLike
from tests.pipeline.archive.rows import archive_range, read_all

TOPIC = "orders"


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    monkeypatch.setattr(Location, "open", lambda _: PyFileSystem(HadoopLike(tmp_path)))
    return Archive("hdfs://name:8020/srv/archive")


def test_a_range_that_is_written_again_changes_nothing(archive: Archive, tmp_path: Path) -> None:
    for _ in range(2):
        archive_range(archive, TOPIC, 0, 10)
        archive_range(archive, TOPIC, 10, 20)
    assert archive.coverage(TOPIC) == {0: [(0, 20)]}
    assert [each["offset"] for each in read_all(archive, TOPIC)] == list(range(20))
    temporary = tmp_path / publishing.temporary_folder(archive, TOPIC).lstrip("/")
    assert list(temporary.iterdir()) == [], "what could not be moved over it is gone"


def test_merged_files_are_shown_by_copies_that_the_store_does_not_make(archive: Archive, tmp_path: Path) -> None:
    for start in range(0, 40, 10):
        archive_range(archive, TOPIC, start, start + 10)
    before = read_all(archive, TOPIC)
    for each in compaction.plan(TOPIC, archive.pieces(TOPIC)):
        compaction.execute(archive, each, "zstd")
    compaction.clear(archive, TOPIC, grace_s=-1.0)
    shown = list((tmp_path / "srv" / "archive").rglob("*.parquet"))
    assert len(shown) == len(archive.files(TOPIC)) == 1
    assert read_all(archive, TOPIC) == before
