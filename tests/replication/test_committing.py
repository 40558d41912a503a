"""When data is committed, who is told, and what happens when the disk can't."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.protocol.record_batch import Record
from penstock.replication.partition_settings import Flush, PartitionSettings
from penstock.storage import truncation
from penstock.storage.log import LogSettings
from tests.replication.leading import OS, Led, batch
from tests.storage.disks import FailingDisk, ForgetfulDisk, FullDisk
from tests.storage.logs import NOW_MS, read_all, recovered

EIO = OSError(errno.EIO, "Input/output error")
COMMIT, INTERVAL = {"flush": Flush.COMMIT}, {"flush": Flush.INTERVAL}
SMALL = LogSettings(segment_bytes=300)

# ---- the high watermark


def test_under_commit_nothing_is_visible_or_acknowledged_before_it_is_on_the_device(tmp_path: Path) -> None:
    led = Led(tmp_path, **COMMIT)
    answers = led.await_all(led.append())
    led.end_turn()
    assert (led.partition.high_watermark, led.partition.log.end_offset) == (0, 1)
    assert (answers, led.visible()) == ([], [])
    led.committer.end_one()
    assert led.partition.high_watermark == 1
    assert answers == ["0 stored"]
    assert len(led.visible()) == 1


@pytest.mark.parametrize("flush", [Flush.OS, Flush.INTERVAL])
def test_otherwise_it_is_when_it_is_written(tmp_path: Path, flush: Flush) -> None:
    led = Led(tmp_path, flush=flush)
    answers = led.await_all(led.append())
    assert (answers, led.visible()) == ([], [])
    led.end_turn()
    assert answers == ["0 stored"]
    assert len(led.visible()) == 1
    assert not led.committer.begun


def test_what_is_only_staged_is_not_visible(tmp_path: Path) -> None:
    led = Led(tmp_path, **OS)
    led.write()
    led.append()
    assert [offset for offset, _ in led.visible()] == [0]


def test_one_sync_at_a_time_and_what_arrives_meanwhile_shares_the_next(tmp_path: Path) -> None:
    led = Led(tmp_path, **COMMIT)
    answers = led.await_all(*led.write())
    for _ in range(5):
        answers_then = led.await_all(*led.write(batch(), batch()))
        assert not answers_then
    assert len(led.committer.under_way) == 1
    led.committer.end_one()
    assert (led.partition.high_watermark, answers) == (1, ["0 stored"])
    assert len(led.committer.under_way) == 1
    led.committer.end_one()
    assert led.partition.high_watermark == 11
    assert (led.committer.begun, len(led.committer.under_way)) == (2, 0)


def test_a_sync_covers_what_was_written_before_it_and_no_more(tmp_path: Path) -> None:
    led = Led(tmp_path, **COMMIT)
    led.write(batch(3))
    led.write(batch(4))
    led.committer.end_one()
    assert led.partition.high_watermark == 3
    assert [offset for offset, _ in led.visible()] == [0, 1, 2]
    led.committer.end_one()
    assert len(led.visible()) == 7


def test_all_segments_that_were_written_to_are_synced(tmp_path: Path) -> None:
    led = Led(tmp_path, log=SMALL, **COMMIT)
    led.write(batch(size=100))
    led.write(*(batch(size=100) for _ in range(5)))
    segments = led.partition.log.segments
    assert len(segments) == 6
    assert led.committer.under_way[0][0][2:] == segments[:1]
    led.committer.end_one()
    assert led.committer.under_way[0][0] == segments
    led.committer.end_one()
    assert all(segment.name_is_durable for segment in segments)
    assert led.partition.high_watermark == 6


def test_waiters_are_woken_in_the_order_of_their_offsets(tmp_path: Path) -> None:
    led = Led(tmp_path, **COMMIT)
    first = led.append(batch(producer=(7, 0, 0)))
    second = led.append(batch(producer=(7, 0, 1)))
    third = led.append(batch(producer=(7, 0, 2)))
    again = led.append(batch(producer=(7, 0, 0)))  # waits for less than those before it
    answers = led.await_all(first, third, second, again)
    led.end_turn()
    led.committer.end_one()
    assert answers == ["0 stored", "0 stored", "1 stored", "2 stored"]


def test_who_waits_for_what_is_committed_is_called_at_once(tmp_path: Path) -> None:
    led = Led(tmp_path, **OS)
    appended = led.write()
    assert led.await_all(*appended) == ["0 stored"]


def test_fetchers_are_called_whenever_the_high_watermark_moves(tmp_path: Path) -> None:
    led = Led(tmp_path, **COMMIT)
    seen: list[int] = []
    fetcher = lambda: seen.append(led.partition.high_watermark)  # noqa: E731
    led.partition.fetchers[fetcher] = None
    led.write()
    led.write()
    assert seen == []
    led.committer.end_all()
    assert seen == [1, 2]
    del led.partition.fetchers[fetcher]
    led.write()
    led.committer.end_all()
    assert seen == [1, 2]


@pytest.mark.parametrize("later", [Flush.OS, Flush.INTERVAL])
def test_the_high_watermark_never_moves_back(tmp_path: Path, later: Flush) -> None:
    """A sync ends behind a segment that was rolled meanwhile, while writes alone move the high watermark."""
    led = Led(tmp_path, log=SMALL, **COMMIT)
    led.write(batch(size=200))
    led.partition.use_settings(PartitionSettings(flush=later))
    led.write(batch(size=200))
    led.write(batch(size=200))
    assert led.partition.high_watermark == 3
    led.committer.end_all()
    assert led.partition.high_watermark == 3
    assert len(led.visible()) == 3


# ---- from one flush to another


@pytest.mark.parametrize(("before", "after"), [("os", "commit"), ("interval", "commit"), ("os", "interval")])
def test_what_was_left_to_the_system_is_synced_when_more_is_promised(tmp_path: Path, before: str, after: str) -> None:
    disk = ForgetfulDisk(tmp_path)
    led = Led(tmp_path, disk=disk, log=SMALL, flush=Flush(before))
    for _ in range(3):
        led.write(batch(size=200))
    led.partition.use_settings(PartitionSettings(flush=Flush(after)))
    assert led.partition.high_watermark == 3, "what was promised stays so"
    assert led.partition.unsynced
    led.committer.end_all()
    assert led.partition.unsynced == (after != "commit")
    disk.crash()
    assert recovered(tmp_path / "t-0").log.end_offset == 3


@pytest.mark.parametrize("later", [Flush.COMMIT, Flush.INTERVAL, Flush.OS])
def test_nothing_is_synced_where_nothing_was_left_or_nothing_more_is_promised(tmp_path: Path, later: Flush) -> None:
    led = Led(tmp_path, **COMMIT)
    led.write()
    led.committer.end_all()
    begun = led.committer.begun
    led.partition.use_settings(PartitionSettings(flush=later))
    assert led.committer.begun == begun
    empty = Led(tmp_path / "empty", **OS)
    empty.partition.use_settings(PartitionSettings(flush=later))
    assert (empty.committer.begun, empty.partition.unsynced) == (0, later is not Flush.COMMIT)


def test_a_sync_that_began_before_the_settings_changed_does_not_speak_for_them(tmp_path: Path) -> None:
    led = Led(tmp_path, log=SMALL, **COMMIT)
    led.write(batch(size=200))
    led.partition.use_settings(PartitionSettings(**OS))
    led.write(batch(size=200))
    led.partition.use_settings(PartitionSettings(**COMMIT))
    led.committer.end_one()
    assert led.partition.unsynced
    led.committer.end_all()
    assert not led.partition.unsynced


# ---- flush=interval


def test_under_interval_a_sync_is_begun_when_it_is_due_and_only_if_there_is_something(tmp_path: Path) -> None:
    led = Led(tmp_path, flush_ms=1000, **INTERVAL)
    led.partition.flush_if_due(NOW_MS)
    assert led.committer.begun == 0
    led.write()
    led.partition.flush_if_due(NOW_MS)
    assert led.committer.begun == 1
    led.write()
    led.partition.flush_if_due(NOW_MS + 999)
    assert led.committer.begun == 1
    led.committer.end_all()
    led.partition.flush_if_due(NOW_MS + 1000)
    assert led.committer.begun == 2
    led.committer.end_all()
    led.partition.flush_if_due(NOW_MS + 5000)
    assert led.committer.begun == 2


def test_under_interval_so_many_messages_begin_a_sync_too(tmp_path: Path) -> None:
    led = Led(tmp_path, flush_messages=10, **INTERVAL)
    led.write(batch(4))
    led.write(batch(5))
    assert led.committer.begun == 0
    led.write(batch(1))
    assert led.committer.begun == 1
    led.committer.end_all()
    led.write(batch(9))
    assert led.committer.begun == 1


def test_a_sync_that_fails_under_interval_stops_the_partition(tmp_path: Path) -> None:
    led = Led(tmp_path, flush_messages=1, **INTERVAL)
    led.write()
    led.committer.end_one(EIO)
    assert led.refused(batch()) is ErrorCode.KAFKA_STORAGE_ERROR


# ---- writes that fail


@pytest.mark.parametrize("settings", [COMMIT, OS])
def test_a_full_disk_gives_errors_to_what_was_not_stored_and_heals(tmp_path: Path, settings: dict[str, Flush]) -> None:
    disk = FullDisk(600)
    led = Led(tmp_path, disk=disk, **settings)
    stored = led.await_all(*led.write(batch(size=100, producer=(7, 0, 0))))
    led.committer.end_all()
    lost = led.await_all(
        led.append(batch(size=300, producer=(7, 0, 1))), led.append(batch(size=300, producer=(8, 0, 0)))
    )
    led.end_turn()
    assert (stored, sorted(lost)) == (["0 stored"], ["1 lost", "2 lost"])
    assert led.partition.log.end_offset == led.partition.log.next_offset == 1
    disk.free(10_000)
    after = led.write(batch(size=300, producer=(7, 0, 1)), batch(size=300, producer=(8, 0, 0)))
    answers = led.await_all(*after)
    led.committer.end_all()
    assert [a[0] for a in after] == [1, 2]
    assert answers == ["1 stored", "2 stored"]
    assert [offset for offset, _ in led.visible()] == [0, 1, 2]
    assert [r.offset for r in _recovered(tmp_path)] == [0, 1, 2]


def test_those_who_wait_for_what_could_not_be_written_learn_it(tmp_path: Path) -> None:
    disk = FailingDisk()
    led = Led(tmp_path, disk=disk, **COMMIT)
    first = led.await_all(*led.write(batch(2)))
    disk.fail_write = 0
    failures = led.partition.failures
    lost = led.await_all(led.append(batch(3)), led.append(batch(1)))
    led.end_turn()
    assert sorted(lost) == ["2 lost", "5 lost"]
    assert led.partition.failures == failures + 1
    assert first == []
    disk.heal()
    after = led.await_all(*led.write(batch(1)))
    led.committer.end_all()
    assert (first, after) == (["0 stored"], ["2 stored"])
    assert [offset for offset, _ in led.visible()] == [0, 1, 2]


def test_when_the_first_write_fails_nothing_of_it_is_written_later(tmp_path: Path) -> None:
    """The files beside the log come first. If one of them fails, the memory of the batch is soon another's."""
    for fail_at in range(6):
        disk = FailingDisk(fail_write=fail_at)
        led = Led(tmp_path / str(fail_at), disk=disk, **OS)
        data = batch(2, producer=(7, 0, 0))
        try:
            led.write(data)
        except Exception as error:
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR  # noqa: PT017
        data[:] = b"\xee" * len(data)
        led.end_turn()
        disk.heal()
        led.write(batch(2, producer=(7, 0, 0)), batch(1))
        assert [offset for offset, _ in led.visible()] == [0, 1, 2], f"failed write {fail_at}"
        assert (led.partition.log.directory / "topic-id").exists()
        assert led.partition.log.epochs.epochs == [0]
        again = recovered(led.partition.log.directory)
        assert (again.log.end_offset, again.damaged, again.bytes_cut) == (3, False, 0)


@pytest.mark.parametrize("settings", [COMMIT, OS])
def test_what_a_roll_wrote_before_it_failed_is_committed(tmp_path: Path, settings: dict[str, Flush]) -> None:
    """The batches before the one that needed a new segment are in the log: nobody may wait for them for ever."""
    disk = FailingDisk()
    led = Led(tmp_path, disk=disk, log=SMALL, **settings)
    led.write(batch(size=10))
    led.committer.end_all()
    answers = led.await_all(led.append(batch(size=20)))
    disk.fail_write = disk.writes + 1  # the write of what was staged succeeds, the snapshot of the producers fails
    assert led.refused(batch(size=250)) is ErrorCode.KAFKA_STORAGE_ERROR
    led.end_turn()
    led.committer.end_all()
    assert answers == ["1 stored"]
    assert [offset for offset, _ in led.visible()] == [0, 1]
    disk.heal()
    led.write(batch(size=250))
    led.committer.end_all()
    assert [offset for offset, _ in led.visible()] == [0, 1, 2]
    assert len(led.partition.log.segments) == 2


def test_what_was_written_before_a_later_batch_of_the_turn_failed_is_committed(tmp_path: Path) -> None:
    disk = FailingDisk()
    led = Led(tmp_path, disk=disk, log=SMALL, **COMMIT)
    led.write(batch(size=10))
    led.committer.end_all()
    first = led.append(batch(size=20))
    second = led.append(batch(size=250))  # rolls, which writes the first
    disk.fail_write = disk.writes
    answers = led.await_all(first, second)
    led.end_turn()
    assert answers == ["2 lost"]
    led.committer.end_all()
    assert answers == ["2 lost", "1 stored"]


# ---- syncs that fail


def test_a_failed_sync_stops_the_partition_for_good(tmp_path: Path) -> None:
    led = Led(tmp_path, **COMMIT)
    stored = led.await_all(*led.write())
    led.committer.end_one()
    first = led.await_all(*led.write())
    second = led.await_all(*led.write())
    led.committer.end_one(EIO)
    assert (stored, first, second) == (["0 stored"], ["1 lost"], ["2 lost"])
    assert not led.committer.under_way, "a failed sync must not be tried again"
    assert led.refused(batch()) is ErrorCode.KAFKA_STORAGE_ERROR
    assert led.partition.high_watermark == 1
    assert [offset for offset, _ in led.visible()] == [0]


def test_what_was_staged_when_the_sync_failed_is_neither_synced_nor_seen(tmp_path: Path) -> None:
    led = Led(tmp_path, **COMMIT)
    led.write()
    answers = led.await_all(led.append())
    failures = led.partition.failures
    led.committer.end_one(EIO)
    led.end_turn()
    led.committer.end_all()
    assert answers == ["1 lost"]
    assert led.partition.failures > failures, "acks=1 would be told that it was stored"
    assert led.partition.high_watermark == 0
    assert led.committer.begun == 1


def test_who_asks_a_stopped_partition_is_told_at_once(tmp_path: Path) -> None:
    led = Led(tmp_path, **COMMIT)
    appended = led.write()
    led.committer.end_one(EIO)
    assert led.await_all(*appended) == ["0 lost"]


def test_fetchers_are_called_when_the_partition_stops(tmp_path: Path) -> None:
    led = Led(tmp_path, **COMMIT)
    seen: list[OSError | None] = []
    led.partition.fetchers[lambda: seen.append(led.partition.error)] = None
    led.write()
    led.committer.end_one(EIO)
    assert seen == [EIO]


# ---- the topic is deleted


def test_deletion_wakes_everyone_and_nothing_more_is_written(tmp_path: Path) -> None:
    led = Led(tmp_path, **COMMIT)
    written = led.await_all(*led.write())
    staged = led.await_all(led.append())
    fetched: list[bool] = []
    led.partition.fetchers[lambda: fetched.append(led.partition.deleted)] = None
    failures = led.partition.failures
    led.partition.delete(led.partition.log.directory)
    assert (written, staged, fetched) == (["0 lost"], ["1 lost"], [True])
    assert led.partition.failures > failures
    size = (tmp_path / "t-0" / f"{0:020d}.log").stat().st_size
    led.end_turn()
    assert (tmp_path / "t-0" / f"{0:020d}.log").stat().st_size == size
    assert led.refused(batch()) is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_sync_that_ends_after_the_deletion_is_no_failure_of_the_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    led = Led(tmp_path, **COMMIT)
    led.write()
    led.write()
    led.partition.delete(led.partition.log.directory)
    (tmp_path / "t-0").rename(tmp_path / "gone")  # so the sync of its names fails
    led.committer.end_all()
    assert not [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert led.committer.begun == 1


# ---- taking away


def test_deleting_all_records_leaves_an_empty_partition_that_goes_on(tmp_path: Path) -> None:
    led = Led(tmp_path, **OS)
    led.write(batch(5))
    led.partition.log.advance_start(5)
    dropped = led.partition.begin_at(5, NOW_MS)
    led.partition.log.discard(dropped)
    assert (led.visible(), led.partition.high_watermark) == ([], 5)
    led.write(batch(2))
    assert [offset for offset, _ in led.visible()] == [5, 6]
    assert [r.offset for r in _recovered(tmp_path)] == [5, 6]


def test_dropped_segments_are_no_longer_retired_and_the_rest_is_read_on(tmp_path: Path) -> None:
    led = Led(tmp_path, log=SMALL, **OS)
    for _ in range(4):
        led.write(batch(size=200))
    dropped = led.partition.begin_at(2, NOW_MS)
    assert [segment.base_offset for segment in dropped] == [0, 1]
    assert [segment.base_offset for segment in led.partition.retired] == [2]
    assert [offset for offset, _ in led.visible()] == [2, 3]


def _recovered(folder: Path) -> list[Record]:
    return read_all(recovered(folder / "t-0").log)


def test_a_log_that_begins_anew_has_nothing_to_flush(tmp_path: Path) -> None:
    led = Led(tmp_path, flush=Flush.INTERVAL, flush_messages=1000, flush_ms=10)
    led.write(batch())
    led.partition.follow(1)
    truncation.restart_at(led.partition.log, 5)
    led.partition.was_cut()
    led.partition.flush_if_due(10_000)
    assert not led.partition.syncs.under_way
