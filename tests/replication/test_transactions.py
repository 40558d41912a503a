"""Transactions in one partition: who may begin one, how far readers of decided data may go, and how one ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.record_batch import read_batches
from penstock.replication.partition_settings import Flush
from penstock.storage import producer_state
from penstock.storage.aborted import Marker
from penstock.storage.log import Log, LogSettings
from penstock.storage.producer_state import Producers
from tests.replication.leading import Led, batch
from tests.storage.disks import FailingDisk
from tests.storage.logs import NOW_MS

COMMIT, ABORT = Marker(True, 0), Marker(False, 0)


class Transactional(Led):
    """Producers are let in as if their coordinator knew of them; sequences are counted."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self._sequences: dict[tuple[int, int], int] = {}

    def admit(self, producer: int, epoch: int = 0) -> bool:
        partition = self.partition
        return partition.admission.verified(producer, epoch, partition.admission.begin(producer))

    def batch(self, producer: int, epoch: int = 0, count: int = 1, *, transactional: bool = True) -> memoryview:
        sequence = self._sequences.get((producer, epoch), 0)
        self._sequences[producer, epoch] = sequence + count
        return batch(count, producer=(producer, epoch, sequence), transactional=transactional)

    def begin(self, *producers: int, epoch: int = 0) -> None:
        """Each writes one record, in this order."""
        for producer in producers:
            self.admit(producer, epoch)
            self.append(self.batch(producer, epoch))
        self.end_turn()

    def end(self, producer: int, marker: Marker = COMMIT, epoch: int = 0) -> int:
        next_offset = self.partition.append_marker(producer, epoch, marker, NOW_MS)
        self.end_turn()
        return next_offset

    def commit(self) -> None:
        self.end_turn()
        self.committer.end_all()

    def stable(self) -> tuple[int, int]:
        return self.partition.last_stable_offset, self.partition.high_watermark

    def read_stable(self) -> list[int]:
        """Offsets of batches that a reader of decided data is given."""
        partition, found = self.partition, []
        offset = partition.log.start_offset
        while (piece := partition.log.read(offset, 1 << 20, partition.stable)) is not None:
            for header, _ in read_batches(piece.read()):
                found.append(header.base_offset)
                offset = header.last_offset + 1
        return found


@pytest.fixture
def led(tmp_path: Path) -> Transactional:
    return Transactional(tmp_path)


def code(call: Any, *arguments: Any) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        call(*arguments)
    return ErrorCode(refused.value.code)


# ---- who may begin


def test_a_batch_begins_a_transaction_only_if_its_producer_was_let_in(led: Transactional) -> None:
    assert led.partition.admission.needs_verification(7, 0)
    assert led.refused(batch(producer=(7, 0, 0), transactional=True)) is ErrorCode.INVALID_TXN_STATE
    assert led.admit(7)
    assert led.refused(batch(producer=(7, 1, 0), transactional=True)) is ErrorCode.INVALID_TXN_STATE
    assert led.admit(7)
    led.append(led.batch(7))
    assert not led.partition.admission.needs_verification(7, 0)
    led.append(led.batch(7))
    assert led.partition.admission.needs_verification(7, 1)


def test_a_marker_between_the_question_and_the_answer_voids_the_answer(led: Transactional) -> None:
    """The coordinator said yes before it ended the transaction, and the batch comes behind the marker."""
    asked = led.partition.admission.begin(7)
    led.end(7, ABORT)
    assert not led.partition.admission.verified(7, 0, asked)
    assert led.refused(batch(producer=(7, 0, 0), transactional=True)) is ErrorCode.INVALID_TXN_STATE
    led.commit()
    assert led.stable() == (0, 0)  # where nothing was ever written, a marker has nothing to end


def test_a_marker_between_the_answer_and_the_batch_voids_the_answer(led: Transactional) -> None:
    assert led.admit(7)
    led.end(7, ABORT)
    assert led.refused(batch(producer=(7, 0, 0), transactional=True)) is ErrorCode.INVALID_TXN_STATE


def test_a_marker_for_another_producer_voids_nothing(led: Transactional) -> None:
    asked = led.partition.admission.begin(7)
    led.end(8, ABORT)
    assert led.partition.admission.verified(7, 0, asked)
    led.append(led.batch(7))


def test_requests_that_ask_at_once_share_the_answer(led: Transactional) -> None:
    partition = led.partition
    first, second = partition.admission.begin(7), partition.admission.begin(7)
    assert partition.admission.verified(7, 0, first)
    assert partition.admission.verified(7, 0, second)
    led.append(led.batch(7))


def test_the_second_of_two_that_ask_at_once_is_let_in_behind_the_batch_of_the_first(led: Transactional) -> None:
    partition = led.partition
    first, second = partition.admission.begin(7), partition.admission.begin(7)
    assert partition.admission.verified(7, 0, first)
    led.append(led.batch(7))
    assert partition.admission.verified(7, 0, second), "the transaction is open here"
    led.append(led.batch(7))


def test_an_answer_from_before_the_marker_does_not_void_the_question_behind_it(led: Transactional) -> None:
    partition = led.partition
    old = partition.admission.begin(7)
    led.end(7, ABORT)
    new = partition.admission.begin(7)
    assert not partition.admission.verified(7, 0, old)
    assert partition.admission.verified(7, 1, new)


def test_a_question_that_was_given_up_leaves_nothing(led: Transactional) -> None:
    partition = led.partition
    partition.admission.abandon(7, partition.admission.begin(7))
    assert led.refused(batch(producer=(7, 0, 0), transactional=True)) is ErrorCode.INVALID_TXN_STATE
    assert led.admit(7)


def test_a_batch_of_no_transaction_is_refused_while_its_producer_has_one_open(led: Transactional) -> None:
    led.begin(7)
    assert led.refused(batch(producer=(7, 0, 1))) is ErrorCode.INVALID_TXN_STATE
    led.end(7)
    led.append(batch(producer=(7, 0, 1)))


# ---- the last stable offset


def test_readers_of_decided_data_stop_where_the_first_open_transaction_begins(led: Transactional) -> None:
    led.write(batch(2))
    led.begin(1, 2, 3)
    led.commit()
    assert led.stable() == (2, 5)
    assert led.read_stable() == [0]
    led.end(2)
    led.commit()
    assert led.stable() == (2, 6), "the second is decided, the first is not"
    led.end(1, ABORT)
    led.commit()
    assert led.stable() == (4, 7)
    assert led.read_stable() == [0, 2, 3]
    led.end(3)
    led.commit()
    assert led.stable() == (8, 8)
    assert led.read_stable() == [0, 2, 3, 4, 5, 6, 7]


def test_a_decision_counts_when_its_marker_is_committed(led: Transactional) -> None:
    led.begin(1)
    led.commit()
    led.end(1)
    assert led.stable() == (0, 1), "the marker is written, and not on the device yet"
    led.commit()
    assert led.stable() == (2, 2)


def test_what_is_not_committed_is_not_stable_either(led: Transactional) -> None:
    led.write(batch(3))
    led.begin(1)
    assert led.stable() == (0, 0)
    led.commit()
    assert led.stable() == (3, 4)


def test_the_next_transaction_of_a_producer_begins_anew(led: Transactional) -> None:
    led.begin(1)
    led.end(1)
    led.begin(1)
    led.commit()
    assert led.stable() == (2, 3)


def test_a_marker_of_nothing_holds_up_nobody(led: Transactional) -> None:
    led.begin(1)
    led.end(9, ABORT)
    led.end(1)
    led.end(1)
    led.commit()
    assert led.stable() == (4, 4)


def test_deleting_the_beginning_of_an_open_transaction_moves_what_is_stable(tmp_path: Path) -> None:
    led = Transactional(tmp_path, log=LogSettings(segment_bytes=150))
    led.begin(1)
    for _ in range(10):
        led.write(batch(1))
    led.commit()
    assert led.stable()[0] == 0
    led.partition.begin_at(5, NOW_MS)
    assert led.stable()[0] == 5


@pytest.mark.parametrize("flush", list(Flush))
def test_however_data_is_flushed_a_transaction_becomes_stable(tmp_path: Path, flush: Flush) -> None:
    led = Transactional(tmp_path, flush=flush)
    led.begin(1, 2)
    led.end(1)
    led.end(2, ABORT)
    led.commit()
    assert led.stable() == (4, 4)


def test_the_aborted_ones_are_known_and_no_others(led: Transactional) -> None:
    led.begin(1, 2, 3)
    led.end(2, ABORT)
    led.end(1)
    led.end(3, ABORT)
    led.commit()
    found = led.partition.log.aborted_between(0, led.partition.high_watermark)
    assert [(each.producer_id, each.first_offset, each.last_offset) for each in found] == [(2, 1, 3), (3, 2, 5)]


# ---- who may end


def test_a_marker_of_an_older_epoch_is_refused(led: Transactional) -> None:
    led.begin(1, epoch=5)
    before = led.partition.log.next_offset
    assert code(led.partition.append_marker, 1, 4, COMMIT, NOW_MS) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert led.partition.log.next_offset == before
    assert led.stable()[0] == 0


def test_a_marker_of_an_older_coordinator_is_refused(led: Transactional) -> None:
    led.begin(1)
    led.end(1, Marker(True, 5))
    led.begin(1)
    assert code(led.partition.append_marker, 1, 0, Marker(True, 4), NOW_MS) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    led.end(1, Marker(True, 5))


def test_a_marker_of_a_later_epoch_ends_what_is_open_and_fences_its_producer(led: Transactional) -> None:
    led.begin(1)
    led.end(1, ABORT, epoch=1)
    led.commit()
    assert led.stable() == (2, 2)
    assert led.refused(led.batch(1)) is ErrorCode.INVALID_PRODUCER_EPOCH


# ---- what is sent again


def again(sequence: int, count: int = 2, producer: int = 1) -> memoryview:
    return batch(count, producer=(producer, 0, sequence), transactional=True)


def test_a_batch_sent_again_in_its_transaction_is_stored_once(led: Transactional) -> None:
    for sequence, marker in ((0, COMMIT), (4, ABORT), (8, COMMIT)):
        led.admit(1)
        stored = [led.append(again(sequence))[:2], led.append(again(sequence + 2))[:2]]
        assert [led.append(again(sequence))[:2], led.append(again(sequence + 2))[:2]] == stored
        led.end(1, marker)


@pytest.mark.parametrize("marker", [COMMIT, ABORT])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_sequences_of_a_transaction_that_has_ended_are_no_repetition(
    tmp_path: Path, marker: Marker, count: int
) -> None:
    """librdkafka gives up on unanswered messages when it aborts, and has their sequences for others (decision 23). What
    those hold would be lost if they were answered with the offsets of the former."""
    led = Transactional(tmp_path)
    led.write(*(led.batch(1, transactional=False) for _ in range(3)))
    led.admit(1)
    led.append(again(3))
    led.end(1, marker)
    led.admit(1)
    assert led.refused(again(3, count)) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert led.refused(again(2, 1)) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert led.refused(again(7)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER  # a gap is nothing new
    led.append(again(5))
    assert led.refused(again(3, count)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    led.end(1)
    led.admit(1, epoch=1)
    led.append(led.batch(1, epoch=1))  # which is how clients go on


def test_a_log_that_is_opened_again_knows_which_batches_are_of_the_open_transaction(tmp_path: Path) -> None:
    led = Transactional(tmp_path)
    for producer in (1, 2):
        led.admit(producer)
        led.append(again(0, producer=producer))
    led.end(1, ABORT)
    for known in (producer_state.load(led.partition.log.producers.dump()), _replayed(led.partition.log)):
        assert known is not None
        with pytest.raises(ApiError, match="a transaction that has ended"):
            known.check(1, 0, 0, 2, True)
        assert known.check(2, 0, 0, 2, True) is not None


def _replayed(log: Log) -> Producers:
    producers = Producers()
    for segment in log.segments:
        producers.replay(segment.batches(0), 0, lambda _: ABORT)
    return producers


def test_where_the_marker_could_not_be_written_a_repetition_is_one(tmp_path: Path) -> None:
    disk = FailingDisk()
    led = Transactional(tmp_path, disk=disk)
    led.admit(1)
    stored = led.append(again(0))
    led.commit()
    disk.fail_write = 0
    led.end(1, ABORT)
    disk.heal()
    assert led.append(again(0))[:2] == stored[:2]


# ---- those who wait


@pytest.mark.parametrize("marker", [COMMIT, ABORT])
def test_fetchers_are_woken_when_a_transaction_ends(led: Transactional, marker: Marker) -> None:
    """However many bytes they wait for: a marker is small, but what it decides may be much."""
    led.begin(1)
    led.commit()
    woken: list[tuple[int, int]] = []
    led.partition.fetchers[lambda: woken.append(led.stable())] = None
    seen = led.partition.committed_bytes
    led.end(1, marker)
    assert woken == []
    led.commit()
    assert woken == [(2, 2)]
    assert led.partition.committed_bytes - seen > 1 << 30


# ---- a disk that fails


def test_a_marker_that_could_not_be_written_leaves_the_transaction_open(tmp_path: Path) -> None:
    disk = FailingDisk()
    led = Transactional(tmp_path, disk=disk)
    led.begin(1, 2)
    led.commit()
    disk.fail_write = 0
    next_offset = led.partition.append_marker(1, 0, COMMIT, NOW_MS)
    answers = led.await_all((next_offset - 1, next_offset, -1))
    led.end_turn()
    assert answers == [f"{next_offset - 1} lost"]
    assert led.stable() == (0, 2)
    assert not led.partition.admission.needs_verification(1, 0)
    disk.heal()
    led.end(1)
    led.commit()
    assert led.stable() == (1, 3)
    led.end(2, ABORT)
    led.commit()
    assert led.stable() == (4, 4)
    found = led.partition.log.aborted_between(0, 4)
    assert [(each.producer_id, each.first_offset) for each in found] == [(2, 1)]


def test_a_first_batch_that_could_not_be_written_begins_nothing(tmp_path: Path) -> None:
    disk = FailingDisk()
    led = Transactional(tmp_path, disk=disk)
    led.write(batch(1))
    led.commit()
    disk.fail_write = 0
    led.admit(1)
    led.append(batch(producer=(1, 0, 0), transactional=True))
    led.end_turn()
    disk.heal()
    assert led.partition.admission.needs_verification(1, 0)
    led.admit(1)
    led.append(batch(producer=(1, 0, 0), transactional=True))
    led.end(1)
    led.commit()
    assert led.stable() == (3, 3)


def test_a_partition_that_has_stopped_takes_no_marker(led: Transactional) -> None:
    led.begin(1)
    led.committer.end_one(OSError(5, "Input/output error"))
    assert code(led.partition.append_marker, 1, 0, COMMIT, NOW_MS) is ErrorCode.KAFKA_STORAGE_ERROR
