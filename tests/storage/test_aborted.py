"""Transactions in a log: which are open, which were aborted, and what of that a restart or a cut brings back."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.protocol.errors import ApiError, ErrorCode
from penstock.storage.aborted import AbortedTransaction, Marker, build_marker, read_marker
from penstock.storage.disk import Disk
from penstock.storage.log import Log, LogSettings
from penstock.storage.recovery import recover
from penstock.storage.truncation import truncate_to
from tests.storage.disks import FailingDisk, ForgetfulDisk
from tests.storage.logs import NOW_MS, SMALL, append, batch_at, end_transaction, fill, new_log, seal_all, stage, sync

ONE_SEGMENT = LogSettings()


def write(log: Log, producer_id: int, sequence: int = 0, *, epoch: int = 0) -> None:
    append(log, batch_at(log.next_offset, producer=(producer_id, epoch, sequence), transactional=True))


def story(log: Log) -> None:
    """0-1 of producer 1 aborted by 4, 2 of producer 2 committed by 5, 6 of producer 3 open, 7 of 1 aborted by 8."""
    write(log, 1)
    write(log, 1, 1)
    write(log, 2)
    fill(log, 1, count=1)
    end_transaction(log, 1, committed=False)
    end_transaction(log, 2, committed=True)
    write(log, 3)
    write(log, 1, 2)
    end_transaction(log, 1, committed=False)


STORY = [AbortedTransaction(1, 0, 4, 2), AbortedTransaction(1, 7, 8, 6)]


@pytest.mark.parametrize("settings", [ONE_SEGMENT, SMALL, LogSettings(segment_bytes=100)], ids=["one", "some", "many"])
@pytest.mark.parametrize("how", ["stays", "unclean", "sealed", "file lost"])
def test_aborted_and_open_transactions_survive_whatever_happens(
    tmp_path: Path, settings: LogSettings, how: str
) -> None:
    log = new_log(tmp_path / "t-0", settings)
    story(log)
    if how != "stays":
        if how != "unclean":
            seal_all(log)
        if how == "file lost":
            for path in (tmp_path / "t-0").glob("*.aborted"):
                path.unlink()
        log = recover(Disk(), tmp_path / "t-0", settings, NOW_MS).log
    assert log.aborted_between(0, 9) == STORY
    assert log.aborted_between(5, 9) == STORY[1:]
    assert log.aborted_between(0, 7) == STORY[:1]
    assert log.aborted_between(5, 7) == []
    log.producers.committed_to(9)
    assert log.producers.first_unstable_offset() == 6
    end_transaction(log, 3, committed=False)
    assert log.aborted_between(0, 10)[-1] == AbortedTransaction(3, 6, 9, 9)


def test_what_was_not_synced_is_learnt_from_the_log(tmp_path: Path) -> None:
    disk = ForgetfulDisk(tmp_path)
    log = new_log(tmp_path / "t-0", ONE_SEGMENT, disk)
    story(log)
    sync(log)
    disk.crash()
    again = recover(Disk(), tmp_path / "t-0", ONE_SEGMENT, NOW_MS).log
    assert again.aborted_between(0, 9) == STORY


def test_a_saved_part_and_what_came_behind_it(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", ONE_SEGMENT)
    write(log, 1)
    end_transaction(log, 1, committed=False)
    write(log, 2)
    segment = log.segments[0]
    segment.sync()
    segment.save_index(segment.size)
    log.save_producers(log.end_offset)
    end_transaction(log, 2, committed=False)
    again = recover(Disk(), tmp_path / "t-0", ONE_SEGMENT, NOW_MS).log
    assert again.aborted_between(0, 4) == [AbortedTransaction(1, 0, 1, 1), AbortedTransaction(2, 2, 3, 3)]


def test_a_marker_that_could_not_be_written_leaves_the_transaction_open(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = new_log(tmp_path / "t-0", ONE_SEGMENT, disk)
    write(log, 1)
    disk.fail_write = 0
    with pytest.raises(OSError, match="Input/output error"):
        end_transaction(log, 1, committed=False)
    disk.heal()
    assert log.producers.first_unstable_offset() == 0
    assert log.aborted_between(0, 10) == []
    end_transaction(log, 1, committed=False)
    assert log.aborted_between(0, 10) == [AbortedTransaction(1, 0, 1, 1)]


def test_a_transaction_that_could_not_be_begun_is_not_open(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = new_log(tmp_path / "t-0", ONE_SEGMENT, disk)
    disk.fail_write = 0
    stage(log, batch_at(0, producer=(1, 0, 0), transactional=True))
    with pytest.raises(OSError, match="Input/output error"):
        log.write_staged()
    assert log.producers.first_unstable_offset() is None
    assert not log.producers.has_open(1)


def test_a_cut_takes_back_what_lies_behind_it(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", SMALL)
    story(log)
    seal_all(log)
    truncate_to(log, 8)
    assert log.aborted_between(0, 8) == STORY[:1]
    assert log.producers.is_open(1, 0)
    truncate_to(log, 4)
    assert log.aborted_between(0, 4) == []
    assert log.producers.first_unstable_offset() == 0


def test_readers_wait_until_the_decision_is_committed(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", ONE_SEGMENT)
    fill(log, 1, count=1)
    write(log, 1)
    end_transaction(log, 1, committed=True)
    assert log.producers.first_unstable_offset() == 1
    assert not log.producers.committed_to(2)
    assert log.producers.committed_to(3)
    assert log.producers.first_unstable_offset() is None


def test_markers_of_older_epochs_are_refused(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", ONE_SEGMENT)
    write(log, 1, epoch=3)
    with pytest.raises(ApiError) as refused:
        log.producers.check_marker(1, 2, 0)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    log.end_transaction(1, 3, Marker(True, coordinator_epoch=7), 1, NOW_MS)
    with pytest.raises(ApiError) as refused:
        log.producers.check_marker(1, 3, 6)
    assert refused.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_is_read_as_it_was_built(committed: bool) -> None:
    marker = Marker(committed, 12)
    assert read_marker(build_marker(5, 6, marker, NOW_MS)) == marker
    assert read_marker(batch_at(0)) is None
