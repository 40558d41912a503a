"""What time does: transactions that take too long are aborted, ids that nobody uses are forgotten."""

from __future__ import annotations

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.transactions.commands import WriteMarkers
from penstock.transactions.config import TransactionConfig
from penstock.transactions.machine import EXPIRED_PER_TURN
from penstock.transactions.states import State
from penstock.transactions.transaction import EPOCH_MAX
from tests.transactions.engine import BUMPING, CLASSIC, ID, ORDERS, STOCK, TIMEOUT_MS, TransactionEngine

DAY_MS = 24 * 3600 * 1000
WEEK_MS = 7 * DAY_MS
HOUR_MS = 3600 * 1000

both_versions = pytest.mark.parametrize("version", [CLASSIC, BUMPING], ids=["classic", "bumping"])


@pytest.fixture
def engine() -> TransactionEngine:
    return TransactionEngine()


# ---- transactions that take too long


@both_versions
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(
    engine: TransactionEngine, version: int
) -> None:
    stamp = engine.ongoing(ORDERS, STOCK, version=version)
    engine.advance(TIMEOUT_MS - 1)
    assert engine.state() is State.ONGOING
    engine.advance(1)
    assert engine.write_markers() == [
        WriteMarkers(ID, 1000, 1, False, frozenset({ORDERS, STOCK}), bumped=version == BUMPING)
    ]
    assert engine.state() is State.COMPLETE_ABORT
    assert engine.add(stamp, version=version).value == {ORDERS: ErrorCode.PRODUCER_FENCED}


def test_the_time_runs_from_the_first_partition_and_not_from_the_last(engine: TransactionEngine) -> None:
    stamp = engine.producer()
    engine.advance(TIMEOUT_MS)
    engine.add(stamp, ORDERS)
    engine.advance(TIMEOUT_MS - 1)
    engine.add(stamp, STOCK)
    assert engine.state() is State.ONGOING
    engine.advance(1)
    assert engine.state() is State.PREPARE_ABORT


def test_each_transaction_has_its_own_time(engine: TransactionEngine) -> None:
    stamp = engine.ongoing()
    engine.advance(TIMEOUT_MS - 1)
    stamp = engine.end(stamp).value
    engine.write_markers()
    engine.add(stamp)
    engine.advance(TIMEOUT_MS - 1)
    assert engine.state() is State.ONGOING
    engine.advance(1)
    assert engine.state() is State.PREPARE_ABORT


def test_a_commit_before_the_time_is_over_stands(engine: TransactionEngine) -> None:
    engine.end(engine.ongoing())
    engine.advance(10 * TIMEOUT_MS)
    assert engine.state() is State.PREPARE_COMMIT
    assert [effect.committed for effect in engine.write_markers()] == [True]


def test_a_classic_producer_that_comes_too_late_is_fenced(engine: TransactionEngine) -> None:
    stamp = engine.ongoing(version=CLASSIC)
    engine.advance(TIMEOUT_MS)
    for _ in range(2):
        assert engine.end(stamp, version=CLASSIC).value is ErrorCode.PRODUCER_FENCED
        engine.write_markers()


def test_with_version_2_who_comes_too_late_can_not_commit_but_may_abort_and_go_on(engine: TransactionEngine) -> None:
    stamp = engine.ongoing()
    engine.advance(TIMEOUT_MS)
    assert engine.end(stamp).value is ErrorCode.INVALID_TXN_STATE
    abort = engine.end(stamp, commit=False)
    engine.write_markers()
    assert engine.end(stamp).value is ErrorCode.INVALID_TXN_STATE
    assert abort.value == (1000, 1)
    assert engine.add((1000, 1)).value == {ORDERS: ErrorCode.NONE}


def test_at_the_last_epoch_there_is_one_left_to_abort_with(engine: TransactionEngine) -> None:
    stamp = engine.ongoing(epoch=EPOCH_MAX - 1)
    engine.advance(TIMEOUT_MS)
    (effect,) = engine.write_markers()
    assert (effect.producer_epoch, effect.committed) == (EPOCH_MAX, False)
    following = engine.end(stamp, commit=False).value
    assert following == (1000, EPOCH_MAX)
    engine.add(following)
    engine.advance(TIMEOUT_MS)
    assert [each.committed for each in engine.write_markers()] == [False]
    assert engine.initialize().value == (1001, 0)


def test_time_runs_on_through_a_restart(engine: TransactionEngine) -> None:
    engine.ongoing()
    engine.advance(TIMEOUT_MS - 10)
    engine.reload()
    engine.advance(9)
    assert engine.state() is State.ONGOING
    engine.advance(1)
    assert engine.state() is State.PREPARE_ABORT


def test_what_became_due_while_there_was_no_coordinator_is_aborted_by_the_next(engine: TransactionEngine) -> None:
    engine.ongoing()
    engine.now_ms += TIMEOUT_MS + 5
    engine.reload()
    engine.advance()
    assert engine.state() is State.PREPARE_ABORT


def test_many_that_are_due_at_once_are_aborted_in_as_many_appends_as_it_takes() -> None:
    engine = TransactionEngine(TransactionConfig(append_max_bytes=3_000))
    names = [f"id-{number}" for number in range(100)]
    for name in names:
        engine.add(engine.producer(name), *((name, index) for index in range(20)), name=name)
    engine.now_ms += TIMEOUT_MS
    before = len(engine.log)
    engine.carry_out(engine.machine.tick(engine.now_ms))
    assert 0 < len(engine.log) - before < len(names), "one append must not hold them all"
    due = engine.machine.next_deadline_ms()
    assert due is not None
    assert due <= engine.now_ms + 1
    engine.advance(len(names))
    assert {engine.state(name) for name in names} == {State.PREPARE_ABORT}


def test_without_anything_open_nothing_is_due_but_expiry(engine: TransactionEngine) -> None:
    engine.producer()
    assert engine.machine.next_deadline_ms() == engine.now_ms + HOUR_MS


# ---- ids that nobody uses


def test_an_id_that_nobody_has_used_for_a_week_is_forgotten(engine: TransactionEngine) -> None:
    stamp = engine.producer()
    engine.advance(WEEK_MS)
    assert engine.states() == ["EMPTY"]
    engine.advance(HOUR_MS)
    assert engine.states() == ["EMPTY", "gone"]
    assert engine.add(stamp).value == {ORDERS: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    engine.reload()
    assert ID not in engine.machine.transactions
    assert engine.initialize().value == (1001, 0)


@both_versions
@pytest.mark.parametrize("commit", [True, False])
def test_an_id_whose_last_transaction_is_over_is_forgotten_too(
    engine: TransactionEngine, version: int, commit: bool
) -> None:
    engine.end(engine.ongoing(version=version), commit=commit, version=version)
    engine.write_markers()
    engine.advance(WEEK_MS + HOUR_MS)
    assert ID not in engine.machine.transactions


def test_use_counts_from_the_last_time(engine: TransactionEngine) -> None:
    stamp = engine.producer()
    engine.advance(6 * DAY_MS)
    engine.initialize(producer=stamp)
    engine.advance(6 * DAY_MS)
    assert ID in engine.machine.transactions


def test_what_is_decided_and_not_complete_is_never_forgotten(engine: TransactionEngine) -> None:
    engine.end(engine.ongoing())
    engine.advance(3 * WEEK_MS)
    assert engine.state() is State.PREPARE_COMMIT
    engine.write_markers()
    assert engine.state() is State.COMPLETE_COMMIT


def test_ids_are_forgotten_after_a_restart_as_well(engine: TransactionEngine) -> None:
    engine.producer()
    engine.now_ms += 2 * WEEK_MS
    engine.reload()
    engine.advance(HOUR_MS)
    assert ID not in engine.machine.transactions


def test_a_bounded_number_is_forgotten_at_a_time(engine: TransactionEngine) -> None:
    count = EXPIRED_PER_TURN + 10
    for number in range(count):
        engine.producer(f"id-{number}")
    engine.now_ms += WEEK_MS + HOUR_MS
    outcome = engine.machine.tick(engine.now_ms)
    assert len(outcome.records) == EXPIRED_PER_TURN
    engine.carry_out(outcome)
    engine.advance(5)
    assert not engine.machine.transactions


def test_how_long_ids_live_is_a_setting() -> None:
    engine = TransactionEngine(TransactionConfig(id_expiration_ms=1_000, expiration_check_ms=100))
    engine.producer()
    engine.advance(1_000)
    assert ID in engine.machine.transactions
    engine.advance(100)
    assert ID not in engine.machine.transactions
