"""Who asks while markers are on their way waits for them, but not for ever."""

from __future__ import annotations

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.transactions.commands import WriteMarkers
from penstock.transactions.config import TransactionConfig
from penstock.transactions.states import State
from tests.transactions.engine import CLASSIC, ORDERS, TIMEOUT_MS, TransactionEngine

WAIT_MS = TransactionConfig().wait_for_markers_ms


@pytest.fixture
def engine() -> TransactionEngine:
    return TransactionEngine()


def test_who_waits_goes_on_when_the_markers_are_written(engine: TransactionEngine) -> None:
    stamp = engine.ongoing(version=CLASSIC)
    engine.end(stamp, version=CLASSIC)
    adding = engine.add(stamp, version=CLASSIC)
    ending = engine.end(stamp, version=CLASSIC)
    engine.advance(WAIT_MS - 1)
    assert adding.value is ending.value is None
    engine.write_markers()
    assert adding.value == {ORDERS: ErrorCode.NONE}
    assert ending.value == stamp, "in the order in which they came, this ends what the one before has begun"
    assert engine.state() is State.PREPARE_COMMIT


def test_who_has_waited_long_enough_is_told_to_come_again(engine: TransactionEngine) -> None:
    stamp = engine.ongoing(version=CLASSIC)
    engine.end(stamp, version=CLASSIC)
    waiting = [engine.add(stamp), engine.end(stamp, version=CLASSIC), engine.initialize()]
    engine.advance(WAIT_MS)
    assert [each.value for each in waiting] == [
        {ORDERS: ErrorCode.CONCURRENT_TRANSACTIONS},
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    ]
    engine.write_markers()
    assert engine.states()[-1] == "COMPLETE_COMMIT", "what was answered is not carried out any more"


@pytest.mark.parametrize("verify_only", [True, False])
def test_another_broker_is_told_at_once_to_come_again(engine: TransactionEngine, verify_only: bool) -> None:
    """It asks for many producers at a time: one whose markers are on their way must not hold up the others."""
    stamp = engine.end(engine.ongoing()).value
    asked = engine.add(stamp, verify_only=verify_only, waits=False)
    assert asked.value == {ORDERS: ErrorCode.CONCURRENT_TRANSACTIONS}
    engine.write_markers()
    assert engine.add(stamp, waits=False).value == {ORDERS: ErrorCode.NONE}


def test_each_waits_for_its_own_time(engine: TransactionEngine) -> None:
    engine.end(engine.ongoing())
    first = engine.initialize()
    engine.advance(WAIT_MS // 2)
    second = engine.initialize()
    engine.advance(WAIT_MS // 2)
    assert (first.value, second.value) == (ErrorCode.CONCURRENT_TRANSACTIONS, None)
    engine.advance(WAIT_MS // 2)
    assert second.value is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_short_wait_does_not_keep_a_long_timeout_from_its_time(engine: TransactionEngine) -> None:
    stamp = engine.end(engine.ongoing()).value
    adding = engine.add(stamp)
    engine.write_markers()
    assert adding.value == {ORDERS: ErrorCode.NONE}
    engine.advance(TIMEOUT_MS - 1)
    assert engine.state() is State.ONGOING
    engine.advance(1)
    assert engine.state() is State.PREPARE_ABORT


def test_no_more_wait_than_there_is_room_for() -> None:
    engine = TransactionEngine(TransactionConfig(waiting_max=2))
    engine.end(engine.ongoing())
    first, second, third = (engine.initialize() for _ in range(3))
    assert (first.value, second.value, third.value) == (None, None, ErrorCode.CONCURRENT_TRANSACTIONS)
    engine.write_markers()
    assert (first.value, second.value) == ((1000, 2), (1000, 3))


def test_nobody_waits_for_the_markers_of_another_id(engine: TransactionEngine) -> None:
    engine.end(engine.ongoing())
    other = engine.producer("other")
    assert engine.add(other, name="other").value == {ORDERS: ErrorCode.NONE}


def test_markers_that_are_reported_twice_complete_once(engine: TransactionEngine) -> None:
    engine.end(engine.ongoing())
    (effect,) = engine.write_markers()
    states = engine.states()
    engine.markers_written(effect)
    assert engine.states() == states
    engine.add(engine.stamp())
    engine.markers_written(effect)
    assert engine.state() is State.ONGOING


@pytest.mark.parametrize("change", [{"producer_epoch": 0}, {"producer_id": 7}, {"transactional_id": "other"}])
def test_markers_of_another_decision_complete_nothing(engine: TransactionEngine, change: dict[str, object]) -> None:
    engine.end(engine.ongoing())
    (effect,) = engine.effects
    told = {name: getattr(effect, name) for name in effect.__slots__} | change
    engine.markers_written(WriteMarkers(**told))
    assert engine.state() is State.PREPARE_COMMIT


def test_late_markers_of_the_last_transaction_do_not_complete_the_next(engine: TransactionEngine) -> None:
    """A coordinator before this one has written them as well, and reports late."""
    stamp = engine.end(engine.ongoing()).value
    (late,) = engine.write_markers()
    engine.add(stamp)
    engine.end(stamp)
    engine.markers_written(late)
    assert engine.state() is State.PREPARE_COMMIT
    engine.write_markers()
    assert engine.state() is State.COMPLETE_COMMIT
