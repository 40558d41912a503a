"""Which pieces are planned: never one that is covered, and the same ones for the same batch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.archive.job import ArchiveJob
from penstock.pipeline.archive.layout import merge
from penstock.pipeline.archive.ranges import cut
from penstock.pipeline.archive.settings import ArchiveOptions, archive_options
from penstock.pipeline.brokers import TopicPartition
from penstock.pipeline.fetching import OffsetRange

PLACE = TopicPartition("orders", 3)
RANGES = st.lists(st.tuples(st.integers(0, 80), st.integers(1, 20)).map(lambda each: (each[0], each[0] + each[1])))


def offsets(pieces: list[OffsetRange]) -> list[int]:
    return [offset for each in pieces for offset in range(each.start, each.stop)]


@given(start=st.integers(0, 50), length=st.integers(0, 60), size=st.integers(1, 40), written=RANGES)
def test_pieces_are_what_nothing_covers_and_no_larger_than_wanted(
    start: int, length: int, size: int, written: list[tuple[int, int]]
) -> None:
    covered = merge(written)
    found = cut([OffsetRange(PLACE, start, start + length)], {PLACE: covered}, size)
    taken = {offset for a, b in covered for offset in range(a, b)}
    assert offsets(found) == [each for each in range(start, start + length) if each not in taken]
    assert all(0 < each.stop - each.start <= size for each in found)


@given(start=st.integers(0, 50), length=st.integers(1, 60), size=st.integers(1, 40), done=st.sets(st.integers(0, 70)))
def test_a_batch_that_is_planned_again_has_the_same_pieces_without_those_that_are_done(
    start: int, length: int, size: int, done: set[int]
) -> None:
    wanted = [OffsetRange(PLACE, start, start + length)]
    first = cut(wanted, {}, size)
    written = [each for at, each in enumerate(first) if at in done]
    again = cut(wanted, {PLACE: merge((each.start, each.stop) for each in written)}, size)
    assert again == [each for each in first if each not in written]


def test_a_job_that_lost_its_checkpoint_cuts_where_the_one_before_cut() -> None:
    """So that what a dying task still writes has a name that is planned too, but for the last piece."""
    before = cut([OffsetRange(PLACE, 130, 470)], {}, 100)
    after = cut([OffsetRange(PLACE, 200, 800)], {PLACE: [(0, 200)]}, 100)
    assert before == [OffsetRange(PLACE, *each) for each in ((130, 200), (200, 300), (300, 400), (400, 470))]
    assert set(before[1:-1]) <= set(after)


def test_options_travel_through_spark() -> None:
    options = ArchiveOptions("s3a://lake/a", "http://127.0.0.1:1", 5, "lz4", "g", "/tmp/report")
    found, others = archive_options({**options.as_options(), "subscribe": "orders"})
    assert found == options
    assert others == {"subscribe": "orders"}
    assert found.group_of("orders") == "g"
    plain, _ = archive_options({"archive.location": "/a"})
    assert plain.group_of("orders") == "penstock-archive-orders"


def test_a_checkpoint_is_beside_the_files_or_on_this_machine() -> None:
    def job(location: str, **subscription: str) -> ArchiveJob:
        options = ArchiveOptions(location, None, 1, "zstd", None, None)
        return ArchiveJob(options, subscription, {})

    assert job("/srv/a", subscribe="orders").checkpoint_path() == "file:///srv/a/_penstock/checkpoint/orders"
    two = job("hdfs://name/a", subscribe="orders,eu.x").checkpoint_path()
    assert two == "hdfs://name/a/_penstock/checkpoint/orders+eu.x"
    pattern = job("/srv/a", subscribePattern="a/../.*").checkpoint_path()
    assert pattern.startswith("file:///srv/a/_penstock/checkpoint/topics-")
    ours, theirs = (job(each, subscribe="t").checkpoint_path() for each in ("s3a://lake/a", "s3a://lake/b"))
    assert ours != theirs
    assert ours.startswith("file:///")
    assert "/penstock/archive/" in ours
