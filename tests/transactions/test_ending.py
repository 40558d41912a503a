"""EndTxn in every state, of both versions: a decision is made once, and told to whoever made it."""

from __future__ import annotations

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.transactions.commands import WriteMarkers
from penstock.transactions.states import State, may_follow
from penstock.transactions.transaction import EPOCH_MAX
from tests.transactions.engine import BUMPING, CLASSIC, ID, ORDERS, START_MS, STOCK, TransactionEngine

LAST_EPOCH = EPOCH_MAX - 1

both_ways = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
both_versions = pytest.mark.parametrize("version", [CLASSIC, BUMPING], ids=["classic", "bumping"])


@pytest.fixture
def engine() -> TransactionEngine:
    return TransactionEngine()


@both_ways
def test_a_classic_transaction_ends_under_its_own_epoch(engine: TransactionEngine, commit: bool) -> None:
    stamp = engine.ongoing(ORDERS, STOCK, version=CLASSIC)
    assert engine.end(stamp, commit=commit, version=CLASSIC).value == (1000, 0)
    assert engine.write_markers() == [WriteMarkers(ID, 1000, 0, commit, frozenset({ORDERS, STOCK}))]
    how = "COMMIT" if commit else "ABORT"
    assert engine.states() == ["EMPTY", "ONGOING", f"PREPARE_{how}", f"COMPLETE_{how}"]


@both_ways
def test_with_version_2_a_transaction_ends_under_the_next_epoch(engine: TransactionEngine, commit: bool) -> None:
    stamp = engine.ongoing(ORDERS, STOCK)
    assert engine.end(stamp, commit=commit).value == (1000, 1)
    assert engine.write_markers() == [WriteMarkers(ID, 1000, 1, commit, frozenset({ORDERS, STOCK}), bumped=True)]
    how = "COMMIT" if commit else "ABORT"
    assert engine.states() == ["EMPTY", "ONGOING", f"PREPARE_{how}", f"COMPLETE_{how}"]
    assert engine.stamp() == (1000, 1)


@both_versions
def test_the_books_of_an_ended_transaction(engine: TransactionEngine, version: int) -> None:
    stamp = engine.ongoing(ORDERS, version=version)
    engine.now_ms += 5
    engine.end(stamp, version=version)
    transaction = engine.transaction()
    assert (transaction.partitions, transaction.started_ms, transaction.updated_ms) == (
        {ORDERS}, START_MS, START_MS + 5,
    )  # fmt: skip
    engine.now_ms += 6
    engine.write_markers()
    transaction = engine.transaction()
    assert (transaction.partitions, transaction.started_ms, transaction.updated_ms) == (
        frozenset(), START_MS, START_MS + 11,
    )  # fmt: skip


# ---- who may


@both_versions
def test_an_id_that_nobody_has_begun_has_nothing_to_end(engine: TransactionEngine, version: int) -> None:
    assert engine.end((1000, 0), version=version).value is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@both_ways
@both_versions
@pytest.mark.parametrize("place", ["empty", "ongoing", "prepared", "complete"])
@pytest.mark.parametrize("offset", [-3, 2])
def test_another_epoch_is_fenced_in_every_state(
    engine: TransactionEngine, version: int, commit: bool, place: str, offset: int
) -> None:
    stamp = at(engine, place, version)
    before = len(engine.log)
    other = (stamp[0], stamp[1] + offset)
    assert engine.end(other, commit=commit, version=version).value is ErrorCode.PRODUCER_FENCED
    assert len(engine.log) == before


@both_ways
@both_versions
@pytest.mark.parametrize("place", ["empty", "ongoing", "prepared", "complete"])
def test_another_producer_is_refused_in_every_state(
    engine: TransactionEngine, version: int, commit: bool, place: str
) -> None:
    stamp = at(engine, place, version)
    before = len(engine.log)
    other = (stamp[0] + 1, stamp[1])
    assert engine.end(other, commit=commit, version=version).value is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert len(engine.log) == before


def at(engine: TransactionEngine, place: str, version: int) -> tuple[int, int]:
    """A producer of epoch 4, or with version 2 one that has become 5 by ending its transaction."""
    stamp = engine.producer(epoch=4)
    if place != "empty":
        engine.add(stamp, version=version)
    if place in ("prepared", "complete"):
        stamp = engine.end(stamp, version=version).value
    if place == "complete":
        engine.write_markers()
    return stamp


# ---- where there is nothing to end


@both_ways
def test_a_classic_producer_can_not_end_what_it_has_not_begun(engine: TransactionEngine, commit: bool) -> None:
    stamp = engine.producer()
    assert engine.end(stamp, commit=commit, version=CLASSIC).value is ErrorCode.INVALID_TXN_STATE
    assert engine.states() == ["EMPTY"]


def test_with_version_2_nothing_can_be_committed_that_was_not_begun(engine: TransactionEngine) -> None:
    stamp = engine.producer()
    assert engine.end(stamp).value is ErrorCode.INVALID_TXN_STATE
    assert engine.states() == ["EMPTY"]


def test_with_version_2_an_abort_of_nothing_bumps_the_epoch(engine: TransactionEngine) -> None:
    """A batch that would have begun the transaction may still be on its way."""
    stamp = engine.producer()
    assert engine.end(stamp, commit=False).value == (1000, 1)
    assert engine.write_markers() == [WriteMarkers(ID, 1000, 1, False, frozenset(), bumped=True)]
    assert engine.state() is State.COMPLETE_ABORT
    assert engine.add(stamp).value == {ORDERS: ErrorCode.PRODUCER_FENCED}


@both_ways
def test_with_version_2_the_next_one_may_be_aborted_before_it_began_but_not_committed(
    engine: TransactionEngine, commit: bool
) -> None:
    stamp = engine.end(engine.ongoing(), commit=commit).value
    engine.write_markers()
    assert engine.end(stamp).value is ErrorCode.INVALID_TXN_STATE
    assert engine.end(stamp, commit=False).value == (1000, 2)
    assert engine.write_markers() == [WriteMarkers(ID, 1000, 2, False, frozenset(), bumped=True)]


# ---- calls that are repeated


@both_ways
@both_versions
def test_a_call_that_is_repeated_waits_for_the_markers_and_is_told_the_same(
    engine: TransactionEngine, version: int, commit: bool
) -> None:
    stamp = engine.ongoing(version=version)
    first = engine.end(stamp, commit=commit, version=version)
    again = engine.end(stamp, commit=commit, version=version)
    assert again.value is None
    engine.write_markers()
    assert again.value == first.value
    assert engine.end(stamp, commit=commit, version=version).value == first.value
    assert len(engine.states()) == 4, "decided once"


@both_ways
@both_versions
@pytest.mark.parametrize("complete", [True, False])
def test_nobody_changes_a_decision(engine: TransactionEngine, version: int, commit: bool, complete: bool) -> None:
    stamp = engine.ongoing(version=version)
    engine.end(stamp, commit=commit, version=version)
    if complete:
        engine.write_markers()
    assert engine.end(stamp, commit=not commit, version=version).value is ErrorCode.INVALID_TXN_STATE
    assert engine.state().is_commit is commit


def test_a_call_that_was_delayed_into_the_next_transaction_is_fenced(engine: TransactionEngine) -> None:
    old = engine.ongoing()
    new = engine.end(old).value
    engine.write_markers()
    engine.add(new)
    for commit in (True, False):
        assert engine.end(old, commit=commit).value is ErrorCode.PRODUCER_FENCED
    assert engine.state() is State.ONGOING


def test_a_classic_call_that_was_delayed_ends_the_next_transaction(engine: TransactionEngine) -> None:
    """Why the epoch rises now (KIP-890): with the classic version nothing tells the two apart."""
    stamp = engine.ongoing(version=CLASSIC)
    engine.end(stamp, version=CLASSIC)
    engine.write_markers()
    engine.add(stamp, version=CLASSIC)
    assert engine.end(stamp, version=CLASSIC).value == stamp
    assert engine.state() is State.PREPARE_COMMIT


def test_with_version_2_the_next_transaction_waits_for_the_markers_of_the_last(engine: TransactionEngine) -> None:
    stamp = engine.end(engine.ongoing()).value
    adding = engine.add(stamp, STOCK)
    assert adding.value is None
    engine.write_markers()
    assert adding.value == {STOCK: ErrorCode.NONE}


@pytest.mark.parametrize(("commit", "answer"), [(False, (1000, 2)), (True, ErrorCode.INVALID_TXN_STATE)])
def test_with_version_2_an_end_right_behind_an_end_waits_for_its_markers(
    engine: TransactionEngine, commit: bool, answer: object
) -> None:
    """Kafka says that its owner is fenced."""
    again = engine.end(engine.end(engine.ongoing()).value, commit=commit)
    assert again.value is None
    engine.write_markers()
    assert again.value == answer


def test_a_repetition_is_known_after_a_restart(engine: TransactionEngine) -> None:
    stamp = engine.ongoing()
    engine.end(stamp)
    engine.reload()
    again = engine.end(stamp)
    engine.write_markers()
    engine.reload()
    assert again.value == engine.end(stamp).value == (1000, 1)


@both_ways
def test_who_was_replaced_is_not_told_that_it_has_ended_the_transaction_of_another(
    engine: TransactionEngine, commit: bool
) -> None:
    """The other one is classic: its epoch is the next one without anything having been ended by the first."""
    old, stamp = engine.producer(), engine.producer()
    engine.add(stamp, version=CLASSIC)
    engine.end(stamp, commit=commit, version=CLASSIC)
    engine.write_markers()
    assert engine.end(old, commit=commit).value is ErrorCode.PRODUCER_FENCED


# ---- when the epochs of an id are used up


@both_ways
def test_the_last_epoch_ends_with_another_id(engine: TransactionEngine, commit: bool) -> None:
    stamp = engine.ongoing(ORDERS, epoch=LAST_EPOCH)
    first = engine.end(stamp, commit=commit)
    assert first.value == (1001, 0)
    assert engine.stamp() == (1000, EPOCH_MAX), "until the markers are written"
    again = engine.end(stamp, commit=commit)
    assert engine.write_markers() == [WriteMarkers(ID, 1000, EPOCH_MAX, commit, frozenset({ORDERS}), bumped=True)]
    assert engine.stamp() == again.value == (1001, 0)
    assert engine.end(stamp, commit=commit).value == (1001, 0)
    assert engine.end(stamp, commit=not commit).value is ErrorCode.INVALID_TXN_STATE
    assert engine.add((1001, 0)).value == {ORDERS: ErrorCode.NONE}
    assert engine.end(stamp, commit=commit).value is ErrorCode.PRODUCER_FENCED


def test_the_id_that_was_handed_out_is_known_after_a_restart(engine: TransactionEngine) -> None:
    stamp = engine.ongoing(epoch=LAST_EPOCH)
    engine.end(stamp)
    engine.reload()
    engine.write_markers()
    assert engine.stamp() == (1001, 0)
    engine.reload()
    assert engine.end(stamp).value == (1001, 0)


def test_an_abort_of_nothing_at_the_last_epoch_gives_another_id(engine: TransactionEngine) -> None:
    assert engine.end(engine.producer(epoch=LAST_EPOCH), commit=False).value == (1001, 0)
    engine.write_markers()
    assert engine.stamp() == (1001, 0)


def test_a_classic_transaction_ends_at_the_last_epoch_as_at_any_other(engine: TransactionEngine) -> None:
    stamp = engine.ongoing(version=CLASSIC, epoch=LAST_EPOCH)
    assert engine.end(stamp, version=CLASSIC).value == stamp
    engine.write_markers()
    assert engine.initialize().value == (1001, 0)


# ---- the table


def test_what_is_decided_can_only_be_completed() -> None:
    assert [state for state in State if may_follow(State.PREPARE_COMMIT, state)] == [State.COMPLETE_COMMIT]
    assert [state for state in State if may_follow(State.PREPARE_ABORT, state)] == [State.COMPLETE_ABORT]
    for state in State:
        assert may_follow(state, State.PREPARE_COMMIT) == (state is State.ONGOING)


def test_a_step_that_the_table_does_not_have_is_a_defect(engine: TransactionEngine) -> None:
    engine.producer()
    with pytest.raises(AssertionError):
        engine.transaction().becoming(State.PREPARE_COMMIT, START_MS)
