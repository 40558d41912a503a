"""Ranges of offsets from the archive and the log, while both change. No Spark is needed for that."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from penstock.pipeline import archived_rows
from penstock.pipeline.archive import compaction
from penstock.pipeline.archive.layout import Archive, Piece
from penstock.pipeline.archived_rows import OrderedFile, Window, piece_rows
from penstock.pipeline.brokers import Brokers, TopicPartition
from penstock.pipeline.fetching import OffsetRange, RangeFetcher
from penstock.pipeline.history import History, RangeReader
from penstock.pipeline.problem import DataLost, OptionError, PipelineError
from penstock.pipeline.replaying import plan_replay
from penstock.pipeline.seams import Span
from penstock.pipeline.survey import Survey, find_archive, late_enough, survey
from penstock.pipeline.tables import chosen_files
from tests.brokers import BrokerProcess
from tests.pipeline.archive.producing import produce_everything
from tests.pipeline.archive.rows import archive_range
from tests.pipeline.conftest import create_topic
from tests.pipeline.histories import DAY_MS, NOON_MS, Record, TopicHistory, make, of_batches, settings_of

COUNT = 240


@pytest.fixture
def history(broker: BrokerProcess, new_topic: Callable[..., str], tmp_path: Path) -> Callable[[int], TopicHistory]:
    def make_one(partitions: int = 1) -> TopicHistory:
        return make(broker.bootstrap, new_topic(partitions), tmp_path)

    return make_one


def reader(of: TopicHistory, start: int, stop: int, pieces: tuple[Piece, ...] = (), **more: object) -> RangeReader:
    where = History(settings_of(of.bootstrap), of.topic, of.archive, **more)  # type: ignore[arg-type]
    return RangeReader(where, OffsetRange(TopicPartition(of.topic, 0), start, stop), pieces)


def pieces_of(of: TopicHistory) -> tuple[Piece, ...]:
    return tuple(of.archive.pieces(of.topic))


def test_a_range_is_read_from_files_and_log_in_the_order_of_offsets(history: Callable[..., TopicHistory]) -> None:
    one = history()
    one.produce(COUNT)
    everything = one.records()
    one.archive_range(0, 50)
    one.archive_range(50, 100)
    one.archive_range(150, 180)
    assert of_batches(reader(one, 0, COUNT, pieces_of(one)).rows()) == everything
    assert of_batches(reader(one, 30, 170, pieces_of(one)).rows()) == everything[30:170]


def test_files_of_several_days_are_read_side_by_side_where_times_go_back_and_forth(
    history: Callable[..., TopicHistory],
) -> None:
    one = history()
    for number in range(40):  # of which each is in the day before or after the last
        one.produce(1, first=number * (DAY_MS // 1000) * (number % 3) or number)
    everything = one.records()
    one.archive_range(0, 40)
    assert len(one.archive.files(one.topic)) > 3
    one.delete_before(40)
    assert of_batches(reader(one, 0, 40, pieces_of(one)).rows()) == everything
    window = Window(NOON_MS + DAY_MS, NOON_MS + 20 * DAY_MS)
    inside = [each for each in everything if NOON_MS + DAY_MS <= each[2] < NOON_MS + 20 * DAY_MS]
    assert 0 < len(inside) < 40
    assert of_batches(reader(one, 0, 40, pieces_of(one), window=window).rows()) == inside


def test_what_retention_deletes_after_the_plan_is_found_in_the_archive(history: Callable[..., TopicHistory]) -> None:
    one = history()
    one.produce(COUNT)
    everything = one.records()
    one.archive_range(0, 60)
    planned = pieces_of(one)
    one.archive_range(60, 200)
    one.delete_before(150)
    assert of_batches(reader(one, 0, COUNT, planned).rows()) == everything
    assert of_batches(reader(one, 60, COUNT).rows()) == everything[60:]


def test_what_retention_deletes_while_it_is_read_is_found_in_the_archive(
    history: Callable[..., TopicHistory], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.pipeline.history.ROWS_PER_BATCH", 20)
    slow = functools.partial(RangeFetcher, fetch_bytes=1)  # a batch an answer
    monkeypatch.setattr("penstock.pipeline.history.RangeFetcher", slow)
    one = history()
    one.produce(COUNT)
    everything = one.records()
    rows = reader(one, 0, COUNT).rows()
    found = [next(rows)]
    one.archive_range(0, 220)
    one.delete_before(220)
    assert of_batches([*found, *rows]) == everything


def test_files_that_a_compaction_replaced_are_looked_for_again(history: Callable[..., TopicHistory]) -> None:
    one = history()
    one.produce(COUNT)
    everything = one.records()
    for start in range(0, 200, 40):
        one.archive_range(start, start + 40)
    one.delete_before(200)
    planned = pieces_of(one)
    merge_and_delete(one.archive, one.topic)
    assert len(pieces_of(one)) < len(planned)
    assert of_batches(reader(one, 0, COUNT, planned).rows()) == everything


def merge_and_delete(archive: Archive, topic: str) -> None:
    """And nobody is waited for."""
    for merge in compaction.plan(topic, archive.pieces(topic)):
        compaction.execute(archive, merge, "zstd")
    for _ in range(2):
        compaction.clear(archive, topic, grace_s=0)


@pytest.mark.parametrize("failure", [FileNotFoundError(2, "no such file"), OSError("AWS Error NO_SUCH_KEY")])
def test_a_file_that_goes_while_it_is_read_is_looked_for_again_and_no_row_comes_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: OSError
) -> None:
    """HDFS and S3 open nothing for good: what is deleted fails at its next byte, each in its own words."""
    archive = Archive(str(tmp_path))
    archive_range(archive, "orders", 0, 100)
    archive_range(archive, "orders", 100, 200)
    monkeypatch.setattr(archived_rows, "ROWS_PER_BATCH", 30)
    plain = OrderedFile.batches

    def batches(self: OrderedFile) -> Iterator[object]:
        for at, rows in enumerate(plain(self)):
            if at == 2 and len(archive.pieces("orders")) == 2:
                merge_and_delete(archive, "orders")
                raise failure
            yield rows

    monkeypatch.setattr(OrderedFile, "batches", batches)
    where = History(settings_of("127.0.0.1:1"), "orders", archive)
    wanted = OffsetRange(TopicPartition("orders", 0), 0, 200)
    rows = RangeReader(where, wanted, archive.pieces("orders")).rows()
    assert [each[1] for each in of_batches(rows)] == list(range(200))
    assert len(archive.pieces("orders")) == 1


def test_a_file_that_is_there_and_can_not_be_read_is_told_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Archive(str(tmp_path))
    archive_range(archive, "orders", 0, 10)

    def batches(self: OrderedFile) -> Iterator[object]:
        raise OSError("the disk is broken")

    monkeypatch.setattr(OrderedFile, "batches", batches)
    where = History(settings_of("127.0.0.1:1"), "orders", archive)
    wanted = OffsetRange(TopicPartition("orders", 0), 0, 10)
    with pytest.raises(OSError, match="the disk is broken"):
        list(RangeReader(where, wanted, archive.pieces("orders")).rows())


def test_what_neither_has_is_an_error_that_says_which_offset(history: Callable[..., TopicHistory]) -> None:
    one = history()
    one.produce(COUNT)
    everything = one.records()
    one.archive_range(0, 60)
    one.delete_before(150)
    with pytest.raises(DataLost, match=f"{one.topic}-0: offset 60 .* does not have offset 60 either"):
        of_batches(reader(one, 0, COUNT, pieces_of(one)).rows())
    put_up_with = reader(one, 0, COUNT, pieces_of(one), fail_on_data_loss=False)
    assert of_batches(put_up_with.rows()) == everything[:60] + everything[150:]


# ---- the survey, in every state that archive and log may be in


def read_table(of: TopicHistory, found: Survey) -> list[Record]:
    """What a table has: whole files, files without their beginning, and the rest of the log."""
    whole, cut = chosen_files(found)
    batches: list[Record] = []
    for piece in pieces_of(of):
        if set(piece.files) <= set(whole):
            batches += of_batches(reader(of, piece.start, piece.stop, (piece,)).rows())
    for span, files in cut:
        piece = next(each for each in pieces_of(of) if list(each.files) == files)
        batches += of_batches(reader(of, span.start, span.stop, (piece,)).rows())
    for span in found.division[0].live:
        batches += of_batches(reader(of, span.start, span.stop).rows())
    return sorted(batches, key=lambda each: each[:2])


def states(chance: random.Random) -> Iterator[tuple[int, int]]:
    """Ranges that were archived, as jobs leave them: one after the other, with holes where somebody deleted a file."""
    at = 0
    while at < COUNT - 20 and chance.random() < 0.85:
        stop = min(COUNT, at + chance.randrange(10, 60))
        if chance.random() < 0.85:
            yield at, stop
        at = stop


@pytest.mark.parametrize("seed", range(12))
def test_each_record_is_there_once_or_it_is_said_that_some_are_lost(
    history: Callable[..., TopicHistory], seed: int
) -> None:
    chance = random.Random(seed)
    one = history()
    one.produce(COUNT)
    everything = one.records()
    ranges = list(states(chance))
    for start, stop in ranges:
        one.archive_range(start, stop)
    deleted = chance.choice([0, chance.randrange(COUNT), max((stop for _, stop in ranges), default=0)])
    one.delete_before(deleted)
    kept = {offset for start, stop in ranges for offset in range(start, stop)} | set(range(deleted, COUNT))
    lost = [offset for offset in range(min(kept), COUNT) if offset not in kept]
    with Brokers(settings_of(one.bootstrap)) as brokers:
        if lost:
            with pytest.raises(DataLost, match=f"{one.topic}-0: offsets {lost[0]} to"):
                survey(brokers, one.topic, one.archive)
        found = survey(brokers, one.topic, one.archive, fail_on_data_loss=False)
    assert read_table(one, found) == [each for each in everything if each[1] in kept]


def test_a_topic_that_was_made_anew_is_not_taken_for_the_one_that_was_archived(
    history: Callable[..., TopicHistory], broker: BrokerProcess
) -> None:
    one, other = history(), history()
    one.produce(100)
    one.archive_range(0, 100)
    other.produce(10)
    for file in one.archive.files(one.topic):  # as if they had been archived under the other's name
        target = Path(file.path.replace(one.topic, other.topic))
        target.parent.mkdir(parents=True)
        Path(file.path).rename(target)
    with Brokers(settings_of(broker.bootstrap)) as brokers, pytest.raises(DataLost, match="made anew"):
        survey(brokers, other.topic, one.archive)


def test_a_topic_that_was_made_anew_and_has_a_longer_log_is_refused_by_its_id(
    history: Callable[..., TopicHistory],
) -> None:
    one = history()
    one.produce(50)
    one.archive_range(0, 50)
    with Brokers(settings_of(one.bootstrap)) as brokers:
        one.archive.set_topic_id(one.topic, brokers.topics([one.topic])[one.topic].topic_id)
        planned = survey(brokers, one.topic, one.archive)
        make_anew(one)
        one.produce(80)
        for strict in (True, False):
            with pytest.raises(PipelineError, match=f"holds another topic '{one.topic}', which was deleted since"):
                survey(brokers, one.topic, one.archive, fail_on_data_loss=strict)
    # Nor does a task read it that was planned before.
    assert planned.topic_id is not None
    with pytest.raises(DataLost, match="made anew after this was planned"):
        of_batches(reader(one, 0, 50, topic_id=planned.topic_id).rows())


def make_anew(of: TopicHistory) -> None:
    admin = AdminClient({"bootstrap.servers": of.bootstrap, "log_level": 0})
    admin.delete_topics([of.topic])[of.topic].result(30)
    create_topic(of.bootstrap, of.topic)


def test_an_archive_is_read_though_its_topic_is_gone(history: Callable[..., TopicHistory]) -> None:
    one = history()
    one.produce(COUNT)
    everything = one.records()
    one.archive_range(0, 100)
    admin = AdminClient({"bootstrap.servers": one.bootstrap, "log_level": 0})
    admin.delete_topics([one.topic])[one.topic].result(30)
    with Brokers(settings_of(one.bootstrap)) as brokers:
        found = survey(brokers, one.topic, one.archive)
        with pytest.raises(OptionError, match="there is no topic"):
            survey(brokers, one.topic, None)
    assert read_table(one, found) == everything[:100]


def test_transactions_that_were_aborted_leave_nothing_and_no_gap(history: Callable[..., TopicHistory]) -> None:
    one = history()
    produce_everything(one.bootstrap, one.topic, 1)
    everything = one.records()
    end = everything[-1][1] + 1
    for start in range(0, end, 7):  # some of which have no record at all
        one.archive_range(start, min(start + 7, end))
    one.delete_before(end - 40)
    assert any(not piece.files for piece in pieces_of(one))
    with Brokers(settings_of(one.bootstrap)) as brokers:
        found = survey(brokers, one.topic, one.archive)
    assert read_table(one, found) == everything
    assert of_batches(reader(one, 0, end, pieces_of(one)).rows()) == everything


def test_times_that_no_calendar_has_are_read_too(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    times = [NOON_MS, (1 << 63) // 1000 - 1, NOON_MS + 1, -(1 << 63) // 1000 + 1]
    archive_range(archive, "odd", 0, 4, times)

    def found(window: Window) -> list[int]:
        batches = piece_rows(archive, archive.pieces("odd")[0], 0, 4, window)
        return [offset for batch in batches for offset in batch.column("offset").to_pylist()]

    assert found(Window()) == [0, 1, 2, 3]
    assert found(Window(NOON_MS, None)) == [0, 1, 2]
    assert found(Window(None, NOON_MS + 1)) == [0, 3]
    assert found(Window(NOON_MS + 1, 1 << 62)) == [1, 2]


def test_a_log_that_lost_its_beginning_is_not_asked_for_times_in_it(history: Callable[..., TopicHistory]) -> None:
    one = history()
    one.produce(COUNT)
    with Brokers(settings_of(one.bootstrap)) as brokers:
        span, early, late = Span(10, COUNT), NOON_MS + 60_000, NOON_MS + 10**9
        assert late_enough(brokers, one.topic, {0: span}, early) == {0: 60}
        assert late_enough(brokers, one.topic, {0: span}, late) == {}
        one.delete_before(100)
        assert late_enough(brokers, one.topic, {0: span}, early) == {0: 10}
        assert late_enough(brokers, one.topic, {0: span}, late) == {0: 10}
        assert late_enough(brokers, one.topic, {0: Span(150, COUNT)}, early) == {0: 150}
        assert late_enough(brokers, one.topic, {0: Span(150, COUNT)}, -1) == {0: 150}, "-1 is no time there"


def test_a_replay_reads_no_more_than_may_be_in_its_window(history: Callable[..., TopicHistory]) -> None:
    one = history()
    one.produce(COUNT, step_ms=DAY_MS // 24)  # ten days
    one.archive_range(0, 60)
    one.archive_range(60, 120)
    one.archive_range(120, 160)
    one.delete_before(160)
    with Brokers(settings_of(one.bootstrap)) as brokers:
        early = Window(NOON_MS, NOON_MS + DAY_MS)
        assert plan_replay(brokers, one.topic, one.archive, early) == ({0: 0}, {0: 240}, 1)
        middle = Window(NOON_MS + 4 * DAY_MS, NOON_MS + 6 * DAY_MS)
        assert plan_replay(brokers, one.topic, one.archive, middle)[0] == {0: 60}
        late = Window(NOON_MS + 9 * DAY_MS, None)
        assert plan_replay(brokers, one.topic, one.archive, late) == ({0: 216}, {0: 240}, 1)
        assert plan_replay(brokers, one.topic, one.archive, Window(NOON_MS + 99 * DAY_MS)) == ({}, {}, 1)


def test_an_archive_is_found_by_what_its_group_has_committed(history: Callable[..., TopicHistory]) -> None:
    from penstock.pipeline.group_offsets import commit

    one = history()
    place = TopicPartition(one.topic, 0)
    with Brokers(settings_of(one.bootstrap)) as brokers:
        assert find_archive(brokers, one.topic) is None
        commit(brokers, f"penstock-archive-{one.topic}", {place: 0}, '{"archive": "/somewhere"}')
        assert find_archive(brokers, one.topic) == "/somewhere"
        commit(brokers, f"mine-{one.topic}", {place: 0}, "no json")
        with pytest.raises(OptionError, match="names an archive"):
            find_archive(brokers, one.topic, f"mine-{one.topic}")
        assert find_archive(brokers, "no-such-topic") is None
