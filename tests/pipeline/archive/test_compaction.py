"""Merges: which files, and that no moment of theirs loses or doubles a record."""

from __future__ import annotations

import os
import random
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.archive import compaction, publishing
from penstock.pipeline.archive.job import tidy
from penstock.pipeline.archive.layout import Archive, ArchivedFile, Piece, coverage_of, resolve
from penstock.pipeline.problem import PipelineError
from tests.pipeline.archive.rows import DAY_MS, NOON_MS, archive_range, read_all

TOPIC = "orders"


class Killed(BaseException):
    """Nothing catches it, and nothing is cleared up that a process which was killed would leave."""


@st.composite
def partitions(draw: st.DrawFn) -> list[Piece]:
    """Pieces of one partition with gaps, days that advance, some of several days, some without records."""
    found = []
    at, today = draw(st.integers(0, 5)), 1
    for _ in range(draw(st.integers(0, 25))):
        at += draw(st.sampled_from([0, 0, 0, 0, 7]))
        stop = at + draw(st.integers(1, 10))
        days = range(today, today + draw(st.sampled_from([0, 1, 1, 1, 2])))
        size = st.integers(1, 60)
        files = tuple(
            ArchivedFile(f"{at}.{day}", TOPIC, f"2026-11-{day:02d}", 0, at, stop, draw(size), part, len(days))
            for part, day in enumerate(days, 1)
        )
        found.append(Piece(0, at, stop, files, None if files else f"{at}.empty"))
        at, today = stop, min(today + draw(st.sampled_from([0, 0, 0, 1])), 20)
    return found


@given(pieces=partitions(), target=st.integers(10, 200))
def test_merges_are_of_neighbours_and_make_fewer_files_of_no_more_than_the_wanted_size(
    pieces: list[Piece], target: int
) -> None:
    merges = compaction.plan(TOPIC, pieces, target)
    for each in merges:
        assert len(each.pieces) > 1
        assert all(a.stop == b.start for a, b in pairwise(each.pieces))
        assert each.size <= target
        assert len(each.days) < each.files or not each.files
    assert all(a.stop <= b.start for a, b in pairwise(merges))
    assert {(p.start, p.stop) for each in merges for p in each.pieces} <= {(p.start, p.stop) for p in pieces}


@given(pieces=partitions())
def test_merging_ends(pieces: list[Piece]) -> None:
    """What was merged is merged again at most until nothing is left to do."""
    for _ in range(len(pieces) + 1):
        merges = compaction.plan(TOPIC, pieces, 1000)
        if not merges:
            return
        for each in merges:
            files = tuple(
                ArchivedFile(f"{each.start}.{day}", TOPIC, day, 0, each.start, each.stop, each.size // len(each.days))
                for day in each.days
            )
            merged = Piece(0, each.start, each.stop, files, None if files else "empty")
            pieces = sorted([p for p in pieces if p not in each.pieces] + [merged], key=lambda p: p.start)
    raise AssertionError("it goes on for ever")


def fill(archive: Archive) -> list[dict[str, object]]:
    """Pieces of one day, of two, without records, and a gap; what is in them."""
    for start in range(0, 60, 10):
        archive_range(archive, TOPIC, start, start + 10)
    archive_range(archive, TOPIC, 60, 70, [])
    archive_range(archive, TOPIC, 70, 80, [NOON_MS + (at % 2) * DAY_MS for at in range(10)])
    archive_range(archive, TOPIC, 80, 90, [NOON_MS + DAY_MS] * 10)
    archive_range(archive, TOPIC, 100, 110)
    archive_range(archive, TOPIC, 110, 120)
    archive_range(archive, TOPIC, 0, 10, partition=1)
    return read_all(archive, TOPIC)


def merge_all(archive: Archive) -> None:
    for each in compaction.plan(TOPIC, archive.pieces(TOPIC)):
        compaction.execute(archive, each, "zstd")


def seen_by_others(folder: Path) -> list[dict[str, object]]:
    """As DuckDB reads it, which looks everywhere."""
    rows = [row for each in folder.rglob("*.parquet") for row in pq.ParquetFile(each).read().to_pylist()]
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def files_in(folder: Path) -> list[Path]:
    """Also those that only we see."""
    return sorted(each for each in folder.rglob("*") if each.suffix in (".parquet", ".merged"))


def age(folder: Path) -> None:
    for each in folder.rglob("*"):
        os.utime(each, (0, 0))  # an hour later


def test_merged_files_have_the_same_records_and_others_see_each_once_all_the_time(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    before = fill(archive)
    covered = archive.coverage(TOPIC)
    merge_all(archive)
    for step in range(4):
        assert read_all(archive, TOPIC) == seen_by_others(tmp_path) == before, step
        assert archive.coverage(TOPIC) == covered == {0: [(0, 90), (100, 120)], 1: [(0, 10)]}
        assert len(archive.files(TOPIC)) == 4
        assert compaction.plan(TOPIC, archive.pieces(TOPIC)) == []
        age(tmp_path)
        compaction.clear(archive, TOPIC)
    assert len(files_in(tmp_path)) == 4
    assert not [each for each in (tmp_path / "_penstock" / "empty").rglob("*") if each.is_file()]


def test_what_somebody_may_read_stays_for_an_hour(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    fill(archive)
    small = archive.files(TOPIC)
    merge_all(archive)
    assert compaction.clear(archive, TOPIC) == 0
    assert all(Path(each.path).exists() for each in small)

    age(tmp_path)
    merged = [each for each in archive.files(TOPIC) if each.is_ours]
    compaction.clear(archive, TOPIC)
    assert {each.path for each in small if Path(each.path).exists()} == {each.path for each in small[-1:]}
    assert all(Path(each.path).exists() for each in merged)
    assert not any(each.is_ours for each in archive.files(TOPIC))
    assert compaction.clear(archive, TOPIC) == 0
    assert all(Path(each.path).exists() for each in merged)

    age(tmp_path)
    assert compaction.clear(archive, TOPIC) == len(merged)
    assert not any(Path(each.path).exists() for each in merged)


@pytest.mark.parametrize("seed", range(16))
def test_a_merge_or_a_clearing_that_is_killed_anywhere_leaves_every_record_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    archive = Archive(str(tmp_path))
    before = fill(archive)
    left = random.Random(seed).randrange(1, 28)

    def dying(step: object) -> object:
        def take(*args: object) -> object:
            nonlocal left
            left -= 1
            if left <= 0:
                raise Killed
            return step(*args)  # type: ignore[operator]

        return take

    with monkeypatch.context() as patched:
        patched.setattr(publishing, "publish", dying(publishing.publish))
        patched.setattr(publishing, "discard", dying(publishing.discard))
        try:
            merge_all(archive)
            compaction.clear(archive, TOPIC, grace_s=0)
            compaction.clear(archive, TOPIC, grace_s=0)
        except Killed:
            pass
    assert read_all(archive, TOPIC) == before
    assert resolve(archive.files(TOPIC)).overlaps == []
    for _ in range(3):
        age(tmp_path)
        compaction.clear(archive, TOPIC)
        assert seen_by_others(tmp_path) == before
        merge_all(archive)
        assert read_all(archive, TOPIC) == before
    assert len(files_in(tmp_path)) == 4
    assert not [each for each in (tmp_path / "_penstock" / "tmp").rglob("*") if each.is_file()]


def test_the_generation_changes_before_anything_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive(str(tmp_path))
    fill(archive)
    merge_all(archive)
    before, seen = archive.generation(TOPIC), []
    plain = publishing.discard

    def discard(where: Archive, path: str) -> None:
        seen.append(where.generation(TOPIC))
        plain(where, path)

    monkeypatch.setattr(publishing, "discard", discard)
    compaction.clear(archive, TOPIC, grace_s=0)
    assert seen
    assert before not in seen


def test_a_job_that_starts_clears_up_unless_a_compaction_is_at_it(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    before = fill(archive)
    merge_all(archive)
    age(tmp_path)
    everything = files_in(tmp_path)
    with compaction.alone(archive):
        tidy(archive, [TOPIC])
        assert files_in(tmp_path) == everything
    tidy(archive, [TOPIC])
    assert len(files_in(tmp_path)) < len(everything)
    assert seen_by_others(tmp_path) == before


def test_a_file_that_can_not_be_read_stops_its_merge_and_nothing_is_deleted(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    archive_range(archive, TOPIC, 0, 10)
    archive_range(archive, TOPIC, 10, 20)
    path = Path(archive.files(TOPIC)[1].path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(PipelineError, match="can't be read"):
        merge_all(archive)
    assert coverage_of(archive.pieces(TOPIC)) == {0: [(0, 20)]}
    assert len(archive.files(TOPIC)) == 2


def test_two_compactions_at_a_time_are_refused(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    with compaction.alone(archive), pytest.raises(PipelineError, match="by another process"), compaction.alone(archive):
        pass
    with compaction.alone(archive):
        pass


def test_a_listing_that_a_merge_overtakes_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The merge happens between the listing of the files and its end."""
    archive = Archive(str(tmp_path))
    fill(archive)
    merging = Archive(str(tmp_path))
    listings = 0
    plain = Archive._list

    def listing(self: Archive, folder: str, **how: bool) -> object:
        nonlocal listings
        found = plain(self, folder, **how)
        if self is archive and folder.endswith(f"topic={TOPIC}") and "_penstock" not in folder:
            listings += 1
            if listings == 1:
                merge_all(merging)
                compaction.clear(merging, TOPIC, grace_s=0)
                compaction.clear(merging, TOPIC, grace_s=0)
        return found

    monkeypatch.setattr(Archive, "_list", listing)
    files = archive.files(TOPIC)
    assert listings == 2
    assert all(Path(each.path).exists() for each in files)
    assert coverage_of(archive.pieces(TOPIC))[0] == [(0, 90), (100, 120)]
