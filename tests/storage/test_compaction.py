"""Compaction: what is kept of a log, and what the log is after each step of it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol.compression import Compression
from penstock.protocol.record_batch import read_batches, read_records
from penstock.storage import compaction
from penstock.storage.compaction import CompactionResult
from penstock.storage.log import Log, LogSettings
from penstock.storage.recovery import recover
from tests.storage.disks import ForgetfulDisk, HastyDisk, PowerFailure
from tests.storage.logs import (
    NOW_MS,
    append,
    batch_at,
    describe,
    end_transaction,
    new_log,
    offsets,
    read_all,
    seal_all,
)

COMPACT = LogSettings(
    segment_bytes=400, index_interval_bytes=100, compact=True, delete=False, min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
)  # fmt: skip
HOUR_MS = 3600 * 1000


def compact(log: Log, now_ms: int = NOW_MS, keys_max: int | None = None) -> CompactionResult | None:
    """All three steps, with everything below the active segment committed and sealed."""
    seal_all(log)
    plan = compaction.plan(log, now_ms, log.end_offset)
    if plan is None:
        return None
    if keys_max is not None:
        plan = pickle.loads(pickle.dumps(plan))
        object.__setattr__(plan, "keys_max", keys_max)
    result = compaction.run(plan, log.disk)
    compaction.install(log, pickle.loads(pickle.dumps(result)))
    return result


def put(log: Log, *pairs: tuple[str | None, str | None], **kwargs: Any) -> None:
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    append(log, batch_at(log.next_offset, len(pairs), keys=keys, values=values, **kwargs))


def table(log: Log) -> dict[bytes, bytes]:
    """What someone who reads the log from its beginning ends up with."""
    found: dict[bytes, bytes] = {}
    for record in read_all(log):
        assert record.key is not None
        if record.value is None:
            found.pop(record.key, None)
        else:
            found[record.key] = record.value
    return found


def headers(log: Log) -> list[tuple[int, int, int]]:
    return [(b.base_offset, b.last_offset, b.record_count) for s in log.segments for b in s.batches(0)]


def test_only_the_last_record_of_a_key_is_kept_and_offsets_do_not_change(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", COMPACT)
    put(log, ("a", "1"), ("b", "1"), ("c", "1"))
    put(log, ("a", "2"), ("b", "2"))
    log.roll(5, NOW_MS)
    put(log, ("a", "3"))
    compact(log)
    assert describe(read_all(log)) == [
        (2, b"c", b"1"),
        (3, b"a", b"2"),  # the active segment is not looked at
        (4, b"b", b"2"),
        (5, b"a", b"3"),
    ]
    log.roll(6, NOW_MS)
    compact(log)
    assert describe(read_all(log)) == [(2, b"c", b"1"), (4, b"b", b"2"), (5, b"a", b"3")]
    assert log.cleaner_offset == 6


def test_a_batch_that_loses_nothing_keeps_its_bytes(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", COMPACT)
    put(log, ("a", "1"))
    put(log, ("b", "1"), ("c", "1"), compression=Compression.GZIP)
    put(log, ("a", "2"))
    log.roll(4, NOW_MS)
    before = (log.directory / "00000000000000000000.log").read_bytes()
    compact(log)
    after = (log.directory / "00000000000000000000.log").read_bytes()
    assert before.endswith(after)
    assert headers(log) == [(1, 2, 2), (3, 3, 1)]


@pytest.mark.parametrize("codec", list(Compression))
def test_a_batch_that_loses_records_keeps_its_compression_and_its_range(tmp_path: Path, codec: Compression) -> None:
    log = new_log(tmp_path / "t-0", COMPACT)
    put(log, ("a", "1"), ("b", "1" * 50), ("c", "1"), compression=codec, producer=(9, 0, 0))
    put(log, ("a", "2"), ("c", "2"))
    log.roll(5, NOW_MS)
    compact(log)
    first = next(log.segments[0].batches(0))
    assert (first.base_offset, first.last_offset, first.record_count) == (0, 2, 1)
    assert first.attributes == codec
    assert (first.producer_id, first.base_sequence) == (9, 0)
    assert describe(read_all(log))[0] == (1, b"b", b"1" * 50)


def test_a_tombstone_stays_until_its_horizon_and_then_goes(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", COMPACT)
    put(log, ("a", "1"), ("b", "1"), timestamps=[NOW_MS - 5, NOW_MS - 4])
    put(log, ("a", None), ("c", "1"), timestamps=[NOW_MS - 3, NOW_MS - 2])
    log.roll(4, NOW_MS)
    compact(log, NOW_MS)
    assert describe(read_all(log)) == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
    assert [r.timestamp_ms for r in read_all(log)] == [NOW_MS - 4, NOW_MS - 3, NOW_MS - 2]
    marked = list(log.segments[0].batches(0))[1]
    assert marked.attributes & 0x40
    assert marked.base_timestamp == NOW_MS + 1000

    put(log, ("d", "1"))
    log.roll(5, NOW_MS)
    compact(log, NOW_MS + 999)
    assert (2, b"a", None) in describe(read_all(log))

    put(log, ("e", "1"))
    log.roll(6, NOW_MS)
    compact(log, NOW_MS + 1000)
    assert describe(read_all(log)) == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"d", b"1"), (5, b"e", b"1")]


def test_the_last_batch_of_a_producer_stays_so_that_repetitions_are_known(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", COMPACT)
    put(log, ("a", "1"), producer=(9, 0, 0))
    put(log, ("a", "2"), producer=(9, 0, 1))
    put(log, ("a", "3"))
    put(log, ("b", "1"))
    log.roll(4, NOW_MS)
    compact(log)
    assert headers(log) == [(1, 1, 0), (2, 2, 1), (3, 3, 1)]
    assert offsets(log) == [2, 3]
    for path in log.directory.glob("*.snapshot"):
        path.unlink()
    again = recover(log.disk, log.directory, COMPACT, NOW_MS).log
    known = again.producers.check(9, 0, 1, 1)
    assert known is not None
    assert known.base_offset == 1


def test_the_last_offset_of_what_was_compacted_is_not_lost(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", COMPACT)
    put(log, ("a", "1"))
    put(log, (None, "no key"))
    log.roll(2, NOW_MS)
    compact(log)
    assert headers(log) == [(0, 0, 1), (1, 1, 0)]
    log.roll(2, NOW_MS) if log.active is None else None
    put(log, ("b", "1"))
    log.roll(3, NOW_MS)
    compact(log)
    assert headers(log) == [(0, 0, 1), (2, 2, 1)]


def records_with_keys(log: Log) -> list[tuple[int, bytes | None]]:
    return [(o, k) for o, k, _ in describe(read_all(log)) if k in (b"a", b"b")]


def test_what_was_aborted_goes_and_hides_nothing_older(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", COMPACT)
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", "aborted"), transactional=True, producer=(9, 0, 0))
    put(log, ("b", "committed"), transactional=True, producer=(8, 0, 0))
    end_transaction(log, 9, committed=False)
    end_transaction(log, 8, committed=True)
    log.roll(6, NOW_MS)
    compact(log)
    assert records_with_keys(log) == [(0, b"a"), (3, b"b")]
    assert headers(log) == [(0, 1, 1), (2, 2, 0), (3, 3, 1), (4, 4, 1), (5, 5, 1)]  # 2 has its producer's last sequence
    assert [(each.producer_id, each.first_offset) for each in log.aborted_between(0, 6)] == [(9, 2)]


def test_a_marker_stays_as_long_as_its_transaction_and_then_its_horizon(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", COMPACT)
    put(log, ("a", "1"), transactional=True, producer=(8, 0, 0))
    end_transaction(log, 8, committed=True)
    put(log, ("a", "aborted"), transactional=True, producer=(9, 0, 0))
    end_transaction(log, 9, committed=False)
    put(log, ("b", "1"))
    log.producers.expire(NOW_MS + HOUR_MS)
    log.roll(5, NOW_MS)
    compact(log)
    assert [base for base, _, _ in headers(log)] == [0, 1, 3, 4]
    put(log, ("a", "2"))
    log.roll(6, NOW_MS)
    compact(log, NOW_MS + 2000)  # the abort marker has had its time; the commit marker begins its own
    assert [base for base, _, _ in headers(log)] == [1, 4, 5]
    assert log.aborted_between(0, 6) == []
    put(log, ("b", "2"))
    log.roll(7, NOW_MS)
    compact(log, NOW_MS + 4000)
    assert [base for base, _, _ in headers(log)] == [5, 6]
    again = recover(log.disk, log.directory, COMPACT, NOW_MS).log
    assert again.producers.first_unstable_offset() is None
    assert again.aborted_between(0, 7) == []


def test_a_batch_that_cannot_be_opened_is_left_alone(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", COMPACT)
    put(log, ("a", "1"))
    put(log, ("b", "1"), compression=Compression.GZIP)
    put(log, ("a", "2"))
    path = log.segments[0].path("log")
    data = bytearray(path.read_bytes())
    second = list(log.segments[0].batches(0))[1]
    data[second.end - 3] ^= 1
    path.write_bytes(data)
    log.segments[0].close()
    log.roll(3, NOW_MS)
    compact(log)
    assert headers(log) == [(1, 1, 1), (2, 2, 1)]
    assert path.read_bytes()[: second.size] == data[second.position : second.end]


def test_small_segments_are_merged_up_to_the_size_of_one(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", COMPACT)
    for n in range(12):
        put(log, (f"key-{n}", "x" * 20))
        log.roll(log.next_offset, NOW_MS)
    assert len(log.segments) == 13
    result = compact(log)
    assert result is not None
    assert [s.size <= 400 for s in log.segments] == [True] * len(log.segments)
    assert len(log.segments) == 4
    assert offsets(log) == list(range(12))
    again = recover(log.disk, log.directory, COMPACT, NOW_MS)
    assert again.bytes_read == 0
    assert offsets(again.log) == list(range(12))


def test_a_segment_that_stays_as_it_is_is_not_written_again(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", COMPACT)
    for n in range(8):
        put(log, (f"key-{n}", "x" * 100))
    log.roll(8, NOW_MS)
    inode = (log.directory / "00000000000000000000.log").stat().st_ino
    result = compact(log)
    assert result is not None
    assert (result.segments, result.bytes_written) == ([], 0)
    assert (log.directory / "00000000000000000000.log").stat().st_ino == inode
    assert log.cleaner_offset == 8


def test_a_run_with_little_memory_goes_as_far_as_it_can_and_the_next_goes_on(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", COMPACT)
    for n in range(20):
        put(log, (f"key-{n % 10}", f"{n}"))
    log.roll(20, NOW_MS)
    ends = []
    while (result := compact(log, keys_max=4)) is not None:
        ends.append(result.first_dirty_offset)
        assert table(log) == {f"key-{n}".encode(): f"{n + 10}".encode() for n in range(10)}
    assert ends == [4, 8, 12, 16, 20]
    assert offsets(log) == list(range(10, 20))


def test_readers_of_the_old_files_go_on_reading_them(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", COMPACT)
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    log.roll(2, NOW_MS)
    put(log, ("b", "1"))
    old = log.read(0, 1000, log.end)
    assert old is not None
    compact(log)
    assert [h.base_offset for h, _ in read_batches(old.read())] == [0, 1]
    assert offsets(log) == [1, 2]


def test_between_the_two_halves_of_the_last_step_the_log_is_read_and_grows(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", COMPACT)
    for n in range(12):
        put(log, (f"key-{n % 3}", "x" * 50))
    log.roll(12, NOW_MS)
    seal_all(log)
    plan = compaction.plan(log, NOW_MS, 12)
    assert plan is not None
    result = compaction.run(plan, log.disk)
    taken = compaction.take_over(log, result)
    for segment in log.segments:
        segment.close()  # files without their names stay open
    put(log, ("key-0", "more"))
    assert offsets(log) == [9, 10, 11, 12]
    log.roll(13, NOW_MS)
    log.segments[-2].seal()
    assert compaction.plan(log, NOW_MS, 13) is None  # first things first
    compaction.settle(log, result, taken)
    for segment in log.segments:
        segment.close()
    assert offsets(log) == [9, 10, 11, 12]
    assert compaction.plan(log, NOW_MS, 13) is not None
    assert offsets(recover(log.disk, log.directory, COMPACT, NOW_MS).log) == [9, 10, 11, 12]


def test_what_was_deleted_meanwhile_is_not_brought_back(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", COMPACT)
    for n in range(12):
        put(log, (f"key-{n % 3}", "x" * 50))
    log.roll(12, NOW_MS)
    seal_all(log)
    plan = compaction.plan(log, NOW_MS, 12)
    assert plan is not None
    result = compaction.run(plan, log.disk)
    log.discard(log.delete_before(log.segments[1].base_offset))
    start = log.start_offset
    compaction.install(log, result)
    assert offsets(log)[-3:] == [9, 10, 11]
    assert log.start_offset == start
    assert not list(log.directory.glob("*.cleaned"))
    assert recover(log.disk, log.directory, COMPACT, NOW_MS).log.start_offset == start


def test_a_log_is_compacted_when_enough_of_it_is_dirty_or_it_has_waited_too_long(tmp_path: Path) -> None:
    def planned(now_ms: int = NOW_MS, high_watermark: int = 100, **settings: object) -> int | None:
        log.settings = LogSettings(segment_bytes=400, compact=True, **settings)
        plan = compaction.plan(log, now_ms, high_watermark)
        return None if plan is None else plan.end_offset

    log = new_log(tmp_path / "t-0", COMPACT)
    for n in range(8):
        put(log, (f"{n}", "x" * 100), timestamps=[NOW_MS + n])
    bases = [s.base_offset for s in log.segments]
    assert bases == [0, 2, 4, 6]
    assert planned() is None  # nothing is sealed yet
    seal_all(log)
    assert planned() == 6
    assert planned(high_watermark=5) == 4
    assert planned(now_ms=NOW_MS + 1000, min_compaction_lag_ms=997) == 4
    assert planned(now_ms=NOW_MS + 1000, min_compaction_lag_ms=1000) is None
    log.cleaner_offset = 4
    assert planned(min_cleanable_dirty_ratio=0.5) is None
    assert planned(min_cleanable_dirty_ratio=0.3) == 6
    assert planned(now_ms=NOW_MS + HOUR_MS, min_cleanable_dirty_ratio=0.5, max_compaction_lag_ms=HOUR_MS) is None
    assert planned(now_ms=NOW_MS + HOUR_MS + 5, min_cleanable_dirty_ratio=0.5, max_compaction_lag_ms=HOUR_MS) == 6
    log.settings = LogSettings(compact=False)
    assert compaction.plan(log, NOW_MS, 100) is None


def test_a_crash_at_any_step_leaves_the_log_as_it_was_or_as_it_should_be(tmp_path: Path) -> None:
    def make(disk: ForgetfulDisk) -> Log:
        log = new_log(disk.root / "t-0", COMPACT, disk)
        for n in range(14):
            put(log, (f"key-{n % 5}", "x" * (10 + n)), producer=(n % 2, 0, n // 2))
        log.roll(14, NOW_MS)
        put(log, ("last", "1"))
        for segment in log.segments:
            segment.seal()
        return log

    steps = survived = 0
    for keep_names in (0.0, 0.5, 1.0):
        for step in range(1000):
            folder = tmp_path / f"{keep_names}-{step}"
            folder.mkdir()
            disk = ForgetfulDisk(folder, seed=step)
            log = make(disk)
            before, expected = describe(read_all(log)), table(log)
            disk.stop_after(step)
            try:
                compact(log)
            except PowerFailure:
                steps += 1
            else:
                break
            finally:
                disk.crash(keep_names)
            again = recover(disk, log.directory, COMPACT, NOW_MS)
            assert not again.damaged
            assert table(again.log) == expected
            after = describe(read_all(again.log))
            assert set(after) <= set(before)
            survived += after != before
            assert sorted(o for o, _, _ in after) == [o for o, _, _ in after]
            assert again.log.producers.check(0, 0, 6, 1) is not None
            put(again.log, ("more", "1"))
            assert describe(read_all(again.log))[-1] == (15, b"more", b"1")
    assert steps > 30
    assert survived > 3


keys = st.sampled_from(["a", "b", "c", "d", "key-longer-than-a-digest-would-be-of-it"])
turns = st.lists(
    st.tuples(
        st.lists(st.tuples(keys, st.none() | st.integers(0, 99).map(str)), min_size=1, max_size=4),
        st.sampled_from(list(Compression)),
        st.sampled_from(["", "roll", "compact", "restart"]),
    ),
    max_size=25,
)


@given(turns=turns, keys_max=st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_a_compacted_log_holds_the_table_that_its_records_make(
    tmp_path_factory: pytest.TempPathFactory,
    turns: list[tuple[list[tuple[str, str | None]], Compression, str]],
    keys_max: int,
) -> None:
    directory = tmp_path_factory.mktemp("compacted") / "t-0"
    log = new_log(directory, COMPACT, HastyDisk())
    model: dict[bytes, bytes] = {}
    written: set[tuple[int, bytes | None, bytes | None]] = set()
    now_ms, sequence = NOW_MS, 0
    for pairs, codec, then in turns:
        now_ms += 300
        first = log.next_offset
        put(log, *pairs, compression=codec, producer=(5, 0, sequence), timestamps=[now_ms] * len(pairs))
        sequence += len(pairs)
        for slot, (key, value) in enumerate(pairs):
            written.add((first + slot, key.encode(), None if value is None else value.encode()))
            model.pop(key.encode(), None)
            if value is not None:
                model[key.encode()] = value.encode()
        if then in ("roll", "compact"):
            log.roll(log.next_offset, now_ms)
        if then == "compact":
            compact(log, now_ms, keys_max)
        if then == "restart":
            result = recover(log.disk, directory, COMPACT, now_ms)
            assert not result.damaged
            log = result.log
        assert table(log) == model
        assert set(describe(read_all(log))) <= written
        assert log.producers.entries[5].last_sequence == sequence - 1
        for segment in log.segments:
            for batch in segment.batches(0):
                data = segment.file.read(batch.size, batch.position)
                assert len(list(read_records(data, 1 << 20, check_crc=True, compacted=True))) == batch.record_count
