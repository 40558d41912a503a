"""InitProducerId under a transactional id: who calls last owns it, everyone before is fenced."""

from __future__ import annotations

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.transactions.commands import WriteMarkers
from penstock.transactions.config import TransactionConfig
from penstock.transactions.states import State
from penstock.transactions.transaction import EPOCH_MAX
from tests.transactions.engine import BUMPING, CLASSIC, ID, ORDERS, STOCK, TransactionEngine

LAST_EPOCH = EPOCH_MAX - 1  # behind which a producer gets another id


@pytest.fixture
def engine() -> TransactionEngine:
    return TransactionEngine()


def test_a_new_id_begins_at_epoch_0(engine: TransactionEngine) -> None:
    assert engine.initialize("a").value == (1000, 0)
    assert engine.initialize("b").value == (1001, 0)
    assert engine.states("a") == engine.states("b") == ["EMPTY"]


def test_each_call_bumps_the_epoch(engine: TransactionEngine) -> None:
    assert [engine.initialize().value for _ in range(4)] == [(1000, 0), (1000, 1), (1000, 2), (1000, 3)]
    assert engine.states() == ["EMPTY"] * 4


def test_what_was_over_is_forgotten(engine: TransactionEngine) -> None:
    engine.end(engine.ongoing(ORDERS))
    engine.write_markers()
    engine.initialize(timeout_ms=5)
    transaction = engine.transaction()
    assert (transaction.state, transaction.partitions, transaction.started_ms) == (State.EMPTY, frozenset(), -1)
    assert transaction.timeout_ms == 5


# ---- time-outs that may be asked for


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001, 2**31 - 1])
def test_a_timeout_out_of_bounds_is_refused(engine: TransactionEngine, timeout_ms: int) -> None:
    assert engine.initialize(timeout_ms=timeout_ms).value is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert not engine.log


@pytest.mark.parametrize("timeout_ms", [1, 900_000])
def test_a_timeout_within_bounds_is_taken(engine: TransactionEngine, timeout_ms: int) -> None:
    assert engine.initialize(timeout_ms=timeout_ms).value == (1000, 0)
    assert engine.transaction().timeout_ms == timeout_ms


def test_the_largest_timeout_is_a_setting() -> None:
    engine = TransactionEngine(TransactionConfig(max_timeout_ms=10))
    assert engine.initialize(timeout_ms=11).value is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert engine.initialize(timeout_ms=10).value == (1000, 0)


# ---- with a transaction open


@pytest.mark.parametrize("version", [CLASSIC, BUMPING])
def test_what_is_open_is_aborted_first_and_its_producer_fenced(engine: TransactionEngine, version: int) -> None:
    old = engine.ongoing(ORDERS, STOCK, version=version)
    new = engine.initialize()
    assert (new.value, engine.state()) == (None, State.PREPARE_ABORT)
    assert engine.write_markers() == [
        WriteMarkers(ID, 1000, 1, False, frozenset({ORDERS, STOCK}), bumped=version == BUMPING)
    ]
    assert new.value == (1000, 2)
    assert engine.states() == ["EMPTY", "ONGOING", "PREPARE_ABORT", "COMPLETE_ABORT", "EMPTY"]
    assert engine.add(old).value == {ORDERS: ErrorCode.PRODUCER_FENCED}
    assert engine.end(old, version=version).value is ErrorCode.PRODUCER_FENCED
    assert engine.initialize(producer=old).value is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("version", [CLASSIC, BUMPING])
@pytest.mark.parametrize("commit", [True, False])
def test_a_decision_stands_and_is_waited_for(engine: TransactionEngine, version: int, commit: bool) -> None:
    engine.end(engine.ongoing(version=version), commit=commit, version=version)
    new = engine.initialize()
    assert new.value is None
    (effect,) = engine.write_markers()
    assert effect.committed is commit
    assert new.value == (1000, effect.producer_epoch + 1)


def test_of_two_that_wait_both_get_an_epoch_of_their_own(engine: TransactionEngine) -> None:
    engine.ongoing()
    first, second = engine.initialize(), engine.initialize()
    engine.write_markers()
    assert (first.value, second.value) == ((1000, 2), (1000, 3))


# ---- a producer that recovers (KIP-360)


def test_a_producer_that_names_itself_gets_the_next_epoch(engine: TransactionEngine) -> None:
    assert engine.initialize(producer=engine.producer()).value == (1000, 1)


def test_a_call_that_is_repeated_because_its_answer_was_lost_gets_the_same_answer(engine: TransactionEngine) -> None:
    stamp = engine.producer(epoch=3)
    assert engine.initialize(producer=stamp).value == (1000, 4)
    assert engine.initialize(producer=stamp).value == (1000, 4)
    assert engine.initialize(producer=(1000, 4)).value == (1000, 5)


@pytest.mark.parametrize("epoch", [0, 2, 5])
def test_a_producer_of_another_epoch_is_fenced(engine: TransactionEngine, epoch: int) -> None:
    engine.producer(epoch=3)
    assert engine.initialize(producer=(1000, 3)).value == (1000, 4)
    assert engine.initialize(producer=(1000, epoch)).value is ErrorCode.PRODUCER_FENCED
    assert engine.stamp() == (1000, 4)


def test_a_producer_of_another_id_is_fenced(engine: TransactionEngine) -> None:
    stamp = engine.producer()
    assert engine.initialize(producer=(stamp[0] + 1, stamp[1])).value is ErrorCode.PRODUCER_FENCED
    assert engine.stamp() == stamp


def test_a_producer_that_was_replaced_can_not_recover(engine: TransactionEngine) -> None:
    old = engine.producer()
    assert engine.initialize().value == (1000, 1)
    assert engine.initialize(producer=old).value is ErrorCode.PRODUCER_FENCED


def test_a_producer_that_recovers_ends_its_own_transaction_and_goes_on(engine: TransactionEngine) -> None:
    """It is given the epoch that ended it, which is nobody else's. Kafka would fence it."""
    stamp = engine.ongoing()
    recovering = engine.initialize(producer=stamp)
    engine.write_markers()
    assert recovering.value == (stamp[0], stamp[1] + 1)


def test_a_producer_whose_id_was_forgotten_gets_another(engine: TransactionEngine) -> None:
    assert engine.initialize(producer=(77, 5)).value == (1000, 0)


def test_after_a_restart_who_has_not_heard_of_its_epoch_is_fenced(engine: TransactionEngine) -> None:
    stamp = engine.producer()
    assert engine.initialize(producer=stamp).value == (1000, 1)
    engine.reload()
    assert engine.initialize(producer=stamp).value is ErrorCode.PRODUCER_FENCED
    assert engine.initialize(producer=(1000, 1)).value == (1000, 2)


# ---- when the epochs of an id are used up


def test_the_last_epoch_is_followed_by_another_id(engine: TransactionEngine) -> None:
    engine.producer(epoch=LAST_EPOCH - 1)
    assert engine.initialize().value == (1000, LAST_EPOCH)
    assert engine.initialize().value == (1001, 0)
    assert engine.transaction().previous_producer_id == 1000


def test_a_producer_that_recovers_at_the_last_epoch_gets_another_id_and_may_ask_again(
    engine: TransactionEngine,
) -> None:
    stamp = engine.producer(epoch=LAST_EPOCH)
    assert engine.initialize(producer=stamp).value == (1001, 0)
    assert engine.initialize(producer=stamp).value == (1001, 0)
    assert engine.initialize(producer=(1001, 0)).value == (1001, 1)


def test_a_zombie_does_not_get_the_id_that_follows_the_last_epoch(engine: TransactionEngine) -> None:
    stamp = engine.producer(epoch=LAST_EPOCH)
    assert engine.initialize(producer=(1000, 3)).value is ErrorCode.PRODUCER_FENCED
    assert engine.stamp() == stamp


def test_the_producer_of_the_last_epoch_is_fenced_when_another_has_begun_since(engine: TransactionEngine) -> None:
    stamp = engine.producer(epoch=LAST_EPOCH)
    assert engine.initialize(producer=stamp).value == (1001, 0)
    assert engine.initialize().value == (1001, 1)
    assert engine.initialize(producer=stamp).value is ErrorCode.PRODUCER_FENCED


def test_the_producer_of_the_last_epoch_is_fenced_by_who_got_the_next_id(engine: TransactionEngine) -> None:
    stamp = engine.producer(epoch=LAST_EPOCH)
    assert engine.initialize().value == (1001, 0)
    assert engine.initialize(producer=stamp).value is ErrorCode.PRODUCER_FENCED


def test_the_last_epoch_of_all_is_left_for_fencing(engine: TransactionEngine) -> None:
    engine.ongoing(epoch=LAST_EPOCH)
    new = engine.initialize()
    (effect,) = engine.write_markers()
    assert (effect.producer_id, effect.producer_epoch) == (1000, EPOCH_MAX)
    assert new.value == (1001, 0)


@pytest.mark.parametrize("version", [CLASSIC, BUMPING])
def test_a_zombie_that_recovers_does_not_harm_what_is_open(engine: TransactionEngine, version: int) -> None:
    zombie = engine.producer()
    stamp = engine.ongoing(version=version)
    assert engine.initialize(producer=zombie).value is ErrorCode.PRODUCER_FENCED
    assert (engine.state(), engine.stamp()) == (State.ONGOING, stamp)
    engine.end(stamp, version=version)
    assert engine.initialize(producer=zombie).value is ErrorCode.PRODUCER_FENCED, "it does not wait for markers"
