"""AddPartitionsToTxn and its kin: nothing is written to a partition of which the coordinator does not know."""

from __future__ import annotations

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.transactions.config import TransactionConfig
from penstock.transactions.states import State
from tests.transactions.engine import BUMPING, CLASSIC, ORDERS, START_MS, STOCK, TransactionEngine


@pytest.fixture
def engine() -> TransactionEngine:
    return TransactionEngine()


@pytest.mark.parametrize("version", [CLASSIC, BUMPING])
def test_the_first_partition_begins_the_transaction(engine: TransactionEngine, version: int) -> None:
    stamp = engine.producer()
    engine.now_ms += 7
    assert engine.add(stamp, ORDERS, STOCK, version=version).value == dict.fromkeys((ORDERS, STOCK), ErrorCode.NONE)
    transaction = engine.transaction()
    assert (transaction.state, transaction.partitions) == (State.ONGOING, {ORDERS, STOCK})
    assert (transaction.started_ms, transaction.version) == (START_MS + 7, version)


def test_more_partitions_join_what_is_open_since_it_began(engine: TransactionEngine) -> None:
    stamp = engine.ongoing(ORDERS)
    engine.now_ms += 50
    engine.add(stamp, STOCK)
    transaction = engine.transaction()
    assert transaction.partitions == {ORDERS, STOCK}
    assert (transaction.started_ms, transaction.updated_ms) == (START_MS, START_MS + 50)


def test_partitions_that_are_known_cost_no_record(engine: TransactionEngine) -> None:
    stamp = engine.ongoing(ORDERS, STOCK)
    before = len(engine.log)
    assert engine.add(stamp, STOCK).value == {STOCK: ErrorCode.NONE}
    assert engine.add(stamp, ORDERS, STOCK).value == dict.fromkeys((ORDERS, STOCK), ErrorCode.NONE)
    assert len(engine.log) == before


@pytest.mark.parametrize("commit", [True, False])
def test_the_next_transaction_begins_with_no_partition_of_the_last(engine: TransactionEngine, commit: bool) -> None:
    stamp = engine.end(engine.ongoing(ORDERS), commit=commit).value
    engine.write_markers()
    engine.now_ms += 9
    engine.add(stamp, STOCK)
    transaction = engine.transaction()
    assert (transaction.partitions, transaction.started_ms) == ({STOCK}, START_MS + 9)


def test_an_id_that_nobody_has_begun_maps_to_no_producer(engine: TransactionEngine) -> None:
    assert engine.add((1000, 0)).value == {ORDERS: ErrorCode.INVALID_PRODUCER_ID_MAPPING}


@pytest.mark.parametrize("verify_only", [True, False])
@pytest.mark.parametrize(
    ("stamp", "code"),
    [
        ((999, 4), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ((1000, 3), ErrorCode.PRODUCER_FENCED),
        ((1000, 5), ErrorCode.PRODUCER_FENCED),
    ],
)
def test_another_producer_or_epoch_is_refused_for_every_partition(
    engine: TransactionEngine, stamp: tuple[int, int], code: ErrorCode, verify_only: bool
) -> None:
    engine.producer(epoch=4)
    engine.add((1000, 4), ORDERS)
    before = len(engine.log)
    answer = engine.add(stamp, ORDERS, STOCK, verify_only=verify_only).value
    assert answer == dict.fromkeys((ORDERS, STOCK), code)
    assert len(engine.log) == before


@pytest.mark.parametrize("commit", [True, False])
def test_another_producer_does_not_wait_for_markers(engine: TransactionEngine, commit: bool) -> None:
    stamp = engine.ongoing()
    engine.end(stamp, commit=commit)
    assert engine.add(stamp).value == {ORDERS: ErrorCode.PRODUCER_FENCED}
    assert engine.add((1, 1)).value == {ORDERS: ErrorCode.INVALID_PRODUCER_ID_MAPPING}


# ---- verifying (KIP-890)


def test_what_was_added_is_verified_and_nothing_else(engine: TransactionEngine) -> None:
    stamp = engine.ongoing(ORDERS, version=CLASSIC)
    before = len(engine.log)
    assert engine.add(stamp, ORDERS, STOCK, verify_only=True).value == {
        ORDERS: ErrorCode.NONE,
        STOCK: ErrorCode.TRANSACTION_ABORTABLE,
    }
    assert len(engine.log) == before


def test_before_a_transaction_nothing_is_verified(engine: TransactionEngine) -> None:
    stamp = engine.producer()
    assert engine.add(stamp, verify_only=True).value == {ORDERS: ErrorCode.TRANSACTION_ABORTABLE}
    assert engine.state() is State.EMPTY


@pytest.mark.parametrize("commit", [True, False])
def test_behind_a_transaction_nothing_is_verified(engine: TransactionEngine, commit: bool) -> None:
    stamp = engine.ongoing(ORDERS, version=CLASSIC)
    engine.end(stamp, commit=commit, version=CLASSIC)
    waiting = engine.add(stamp, verify_only=True)
    assert waiting.value is None
    engine.write_markers()
    assert waiting.value == {ORDERS: ErrorCode.TRANSACTION_ABORTABLE}
    assert engine.add(stamp, verify_only=True).value == {ORDERS: ErrorCode.TRANSACTION_ABORTABLE}


# ---- bounds


def test_a_transaction_has_so_many_partitions_and_stays_as_it_was() -> None:
    engine = TransactionEngine(TransactionConfig(partitions_max=3))
    stamp = engine.ongoing(ORDERS, STOCK)
    more = [("more", index) for index in range(2)]
    assert engine.add(stamp, *more).value == dict.fromkeys(more, ErrorCode.POLICY_VIOLATION)
    assert engine.transaction().partitions == {ORDERS, STOCK}
    assert engine.add(stamp, more[0]).value == {more[0]: ErrorCode.NONE}


def test_a_transaction_must_fit_in_one_append_and_can_be_ended_when_it_does() -> None:
    engine = TransactionEngine(TransactionConfig(append_max_bytes=2_000))
    stamp = engine.ongoing(ORDERS)
    much = [("t" * 249, 0), *(("u" * 249, index) for index in range(1_000))]
    assert set(engine.add(stamp, *much).value.values()) == {ErrorCode.POLICY_VIOLATION}
    assert engine.end(stamp).value == (1000, 1)
    assert engine.write_markers()[0].partitions == {ORDERS}
