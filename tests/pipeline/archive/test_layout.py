"""Names and what they cover, for every order in which files may come and go."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.archive.layout import (
    Archive,
    ArchivedFile,
    Marker,
    coverage_of,
    file_name,
    first_uncovered,
    merge,
    parse_file,
    parse_marker,
    resolve,
    stem,
    uncovered,
)
from penstock.pipeline.archive.location import parse_location
from penstock.pipeline.problem import OptionError
from tests.pipeline.archive.rows import DAY_MS, NOON_MS, archive_range, read_all

NAMES = st.from_regex(r"[a-zA-Z0-9._-]{1,40}", fullmatch=True)
OFFSETS = st.integers(0, 2**63 - 2)
RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)).map(lambda each: (each[0], each[0] + each[1])))


def file(
    start: int,
    stop: int,
    part: int = 1,
    parts: int = 1,
    partition: int = 0,
    topic: str = "t",
    *,
    modified_s: float = 0,
    is_ours: bool = False,
) -> ArchivedFile:
    name = file_name(topic, partition, start, stop, part, parts, is_ours=is_ours)
    base = "/a/_penstock/merged" if is_ours else "/a"
    found = parse_file(f"{base}/topic={topic}/day=2026-11-{part:02d}/{name}", 10, modified_s)
    assert found is not None
    return found


def marker(start: int, stop: int) -> Marker:
    return Marker(f"/a/_penstock/empty/topic=t/{stem('t', 0, start, stop)}", 0, start, stop)


@given(topic=NAMES, partition=st.integers(0, 10**9), start=OFFSETS, size=st.integers(1, 2**20), parts=st.integers(1, 9))
def test_a_name_says_topic_partition_and_range_whatever_the_topic_is_called(
    topic: str, partition: int, start: int, size: int, parts: int
) -> None:
    name = file_name(topic, partition, start, start + size, parts, parts)
    found = parse_file(f"bucket/x/topic={topic}/day=2026-11-16/{name}", 5)
    assert found is not None
    assert (found.topic, found.partition, found.start, found.stop) == (topic, partition, start, start + size)
    assert (found.part, found.parts, found.day, found.size) == (parts, parts, "2026-11-16", 5)
    empty = parse_marker(f"x/{stem(topic, partition, start, start + size)}")
    assert empty is not None
    assert (empty.partition, empty.start, empty.stop) == (partition, start, start + size)


@pytest.mark.parametrize(
    "path",
    [
        "/a/topic=t/day=2026-11-16/part-0001.parquet",
        "/a/topic=t/day=yesterday/" + file_name("t", 0, 1, 2),
        "/a/topic=t/day=2026-11-16/" + file_name("t", 0, 1, 2) + ".crc",
        "/a/topic=t/day=2026-11-16/" + stem("t", 0, 1, 2) + ".3of2.parquet",
        "/a/topic=t/day=2026-11-16/" + "t-00000-00000000000000000002-00000000000000000002.parquet",
    ],
)
def test_files_of_others_are_passed_over(path: str) -> None:
    assert parse_file(path, 1) is None


def test_a_range_of_several_days_counts_when_all_its_files_are_there() -> None:
    whole = resolve([file(0, 10, 1, 2), file(0, 10, 2, 2), file(10, 20, 1, 3), file(10, 20, 3, 3)])
    assert [(each.start, each.stop, len(each.files)) for each in whole.pieces] == [(0, 10, 2)]
    assert {each.part for each in whole.incomplete} == {1, 3}


def test_a_range_within_another_is_superseded_and_a_range_that_overlaps_is_told() -> None:
    found = resolve([file(0, 10), file(10, 20), file(0, 20), file(15, 25)], [marker(3, 5), marker(25, 30)])
    assert [(each.start, each.stop) for each in found.pieces] == [(0, 20), (15, 25), (25, 30)]
    assert len(found.superseded) == 3
    assert [(a.start, b.start) for a, b in found.overlaps] == [(0, 15)]


def test_a_merged_file_among_our_own_counts_until_its_copy_is_there() -> None:
    """And says since when what it replaces is not needed."""
    small = [file(0, 10, modified_s=1), file(10, 20, modified_s=2)]
    ours = [file(0, 20, part, 2, modified_s=5 + part, is_ours=True) for part in (1, 2)]
    half = [file(0, 20, 1, 2, modified_s=8)]
    found = resolve([*small, *half, *ours])
    assert [(each.is_ours, len(each.files)) for each in found.pieces] == [(True, 2)]
    assert {(each.path, each.since_s) for each in found.superseded} == {(each.path, 7) for each in small}
    found = resolve([*small, *half, file(0, 20, 2, 2, modified_s=9), *ours])
    assert [(each.is_ours, len(each.files)) for each in found.pieces] == [(False, 2)]
    since = {each.path: each.since_s for each in found.superseded}
    assert since == {**{each.path: 7 for each in small}, **{each.path: 9 for each in ours}}


def test_partitions_have_nothing_to_do_with_each_other() -> None:
    found = resolve([file(0, 10, partition=0), file(2, 5, partition=1)])
    assert coverage_of(found.pieces) == {0: [(0, 10)], 1: [(2, 5)]}
    assert found.superseded == []


@given(cuts=st.sets(st.integers(1, 99), max_size=8), merged=st.lists(st.integers(0, 9), max_size=3), seed=st.integers())
def test_each_offset_counts_once_while_pieces_are_merged_in_any_order(
    cuts: set[int], merged: list[int], seed: int
) -> None:
    """Files that were merged may still be there or not: what counts is the same."""
    bounds = [0, *sorted(cuts), 100]
    files = [file(a, b) for a, b in pairwise(bounds)]
    chance = random.Random(seed)
    for at in merged:
        counting = [each.files[0] for each in resolve(files).pieces]
        run = counting[at : at + 3]
        if len(run) > 1:
            files.append(file(run[0].start, run[-1].stop))
            files = [each for each in files if each not in run or chance.random() < 0.5]
    chance.shuffle(files)
    found = resolve(files)
    offsets = [offset for each in found.pieces for offset in range(each.start, each.stop)]
    assert offsets == list(range(100))
    assert found.overlaps == []


@given(ranges=RANGES, start=st.integers(0, 90), size=st.integers(0, 30))
def test_coverage_is_the_set_of_offsets_that_it_covers(ranges: list[tuple[int, int]], start: int, size: int) -> None:
    merged = merge(ranges)
    covered = {offset for a, b in ranges for offset in range(a, b)}
    assert {offset for a, b in merged for offset in range(a, b)} == covered
    assert all(a[1] < b[0] for a, b in pairwise(merged))
    holes = {offset for a, b in uncovered(start, start + size, merged) for offset in range(a, b)}
    assert holes == set(range(start, start + size)) - covered
    first = first_uncovered(start, merged)
    assert first not in covered
    assert set(range(start, first)) <= covered


def test_an_archive_in_a_folder_tells_what_it_has(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    assert archive.topics() == []
    assert archive.coverage("orders") == {}
    assert archive_range(archive, "orders", 0, 10) == 1
    assert archive_range(archive, "orders", 10, 14, [NOON_MS, NOON_MS + DAY_MS, NOON_MS, NOON_MS - DAY_MS]) == 3
    assert archive_range(archive, "orders", 14, 20, []) == 0
    assert archive_range(archive, "orders", 5, 7, partition=3) == 1
    assert archive_range(archive, "orders-eu", 0, 3) == 1
    assert archive.topics() == ["orders", "orders-eu"]
    assert archive.coverage("orders") == {0: [(0, 20)], 3: [(5, 7)]}
    files = archive.files("orders")
    assert [(each.partition, each.start, each.part, each.parts) for each in files] == [
        (0, 0, 1, 1),
        (0, 10, 1, 3),
        (0, 10, 2, 3),
        (0, 10, 3, 3),
        (3, 5, 1, 1),
    ]
    assert [each.day for each in files[1:4]] == ["2024-10-03", "2024-10-04", "2024-10-05"]
    assert [each["offset"] for each in read_all(archive, "orders")] == [*range(14), 5, 6]
    assert archive.spark_path(files[0]) == f"file://{files[0].path}"
    assert not list((tmp_path / "_penstock" / "tmp").rglob("*.parquet"))


@pytest.mark.parametrize(
    ("given", "scheme", "root", "as_spark"),
    [
        ("/srv/a/", "file", "/srv/a", "file:///srv/a/x"),
        ("file:///srv/a", "file", "/srv/a", "file:///srv/a/x"),
        ("s3://lake/topics/", "s3", "lake/topics", "s3a://lake/topics/x"),
        ("s3a://lake", "s3", "lake", "s3a://lake/x"),
        ("hdfs://name:8020/a/b", "hdfs", "/a/b", "hdfs://name:8020/a/b/x"),
    ],
)
def test_locations_are_folders_hdfs_and_s3(given: str, scheme: str, root: str, as_spark: str) -> None:
    found = parse_location(given)
    assert (found.scheme, found.root) == (scheme, root)
    assert found.spark_path(f"{root}/x") == as_spark


@pytest.mark.parametrize("given", ["", "s3://", "ftp://host/x", "s3a:///x"])
def test_a_location_that_means_nothing_is_refused(given: str) -> None:
    with pytest.raises(OptionError):
        parse_location(given)
