"""InitProducerId that keeps what is open (KIP-939): who calls may say how it ends, and nothing else."""

from __future__ import annotations

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.transactions.commands import Kept, WriteMarkers
from penstock.transactions.config import TransactionConfig
from penstock.transactions.states import State
from penstock.transactions.transaction import EPOCH_MAX, NEVER_MS
from tests.transactions.engine import (
    BUMPING,
    CLASSIC,
    ID,
    NOBODY,
    ORDERS,
    START_MS,
    STOCK,
    TIMEOUT_MS,
    Stamp,
    TransactionEngine,
)

LAST_EPOCH = EPOCH_MAX - 1

both_ways = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
both_versions = pytest.mark.parametrize("version", [CLASSIC, BUMPING], ids=["classic", "bumping"])


@pytest.fixture
def engine() -> TransactionEngine:
    return TransactionEngine()


def keep(engine: TransactionEngine, *, two_phase: bool = True) -> Stamp:
    kept = engine.keep(two_phase=two_phase).value
    assert isinstance(kept, Kept)
    return kept.producer_id, kept.producer_epoch


# ---- what is kept


@both_versions
def test_what_is_open_stays_open_and_its_identity_is_told(engine: TransactionEngine, version: int) -> None:
    engine.prepared(ORDERS, STOCK, version=version, epoch=7)
    engine.now_ms += 5
    assert engine.keep().value == Kept(1000, 8, ongoing_producer_id=1000, ongoing_producer_epoch=7)
    assert (engine.states(), engine.effects) == (["EMPTY", "ONGOING", "ONGOING"], [])
    transaction = engine.transaction()
    assert (transaction.partitions, transaction.version) == ({ORDERS, STOCK}, version)
    assert (transaction.started_ms, transaction.updated_ms) == (START_MS, START_MS + 5)


def test_each_who_asks_gets_an_epoch_of_its_own_and_hears_of_the_same_transaction(engine: TransactionEngine) -> None:
    engine.prepared(epoch=7)
    answers = [engine.keep().value for _ in range(4)]
    assert answers == [Kept(1000, 8 + number, 1000, 7) for number in range(4)]


def test_it_is_told_after_a_restart_as_well(engine: TransactionEngine) -> None:
    engine.prepared(epoch=7)
    engine.keep()
    engine.reload()
    assert engine.keep().value == Kept(1000, 9, 1000, 7)
    engine.reload()
    assert engine.transaction().owner == (1000, 9)


@both_versions
def test_where_nothing_is_open_it_is_a_beginning_like_any_other(engine: TransactionEngine, version: int) -> None:
    assert engine.keep().value == (1000, 0)
    assert engine.keep().value == (1000, 1)
    engine.add((1000, 1), version=version)
    engine.end((1000, 1), version=version)
    engine.write_markers()
    assert engine.keep().value == (1000, engine.stamp()[1])
    assert engine.state() is State.EMPTY


@both_ways
@both_versions
def test_what_is_decided_is_not_kept_but_waited_for(engine: TransactionEngine, version: int, commit: bool) -> None:
    engine.end(engine.prepared(version=version), commit=commit, version=version)
    late = engine.keep()
    assert late.value is None
    (effect,) = engine.write_markers()
    assert effect.committed is commit
    assert late.value == (1000, effect.producer_epoch + 1)


def test_who_names_itself_does_not_take_over(engine: TransactionEngine) -> None:
    stamp = engine.prepared()
    assert engine.initialize(producer=stamp, two_phase=True, keeps=True).value is ErrorCode.INVALID_REQUEST
    assert engine.stamp() == stamp


def test_a_transaction_that_fills_its_record_can_be_kept_and_ended() -> None:
    """The records of its end are longer: up to three ids are in them."""
    wide = [("t" * 200, index) for index in range(3)]
    sizes = (TransactionConfig(append_max_bytes=size) for size in range(100, 1_000))
    engine = TransactionEngine(next(size for size in sizes if _may_add(TransactionEngine(size), *wide)))
    engine.prepared(*wide, epoch=LAST_EPOCH)
    assert keep(engine) == (1001, 0)
    engine.transaction().next_producer_epoch = LAST_EPOCH
    assert engine.end((1001, LAST_EPOCH)).value == (1002, 0)
    assert [effect.committed for effect in engine.write_markers()] == [True]


def _may_add(engine: TransactionEngine, *partitions: tuple[str, int]) -> bool:
    stamp = engine.initialize(two_phase=True).value
    return isinstance(stamp, tuple) and ErrorCode.NONE in engine.add(stamp, *partitions).value.values()


# ---- who is fenced


@both_versions
def test_who_has_written_can_do_no_more(engine: TransactionEngine, version: int) -> None:
    old = engine.prepared(ORDERS, version=version)
    owner = keep(engine)
    before = len(engine.log)
    for partition in (ORDERS, STOCK):
        assert engine.add(old, partition, version=version).value == {partition: ErrorCode.PRODUCER_FENCED}
        asked = engine.add(old, partition, version=version, verify_only=True)
        assert asked.value == {partition: ErrorCode.PRODUCER_FENCED}
    for commit in (True, False):
        assert engine.end(old, commit=commit, version=version).value is ErrorCode.PRODUCER_FENCED
    assert engine.initialize(producer=old).value is ErrorCode.PRODUCER_FENCED
    assert (len(engine.log), engine.transaction().owner) == (before, owner)


@both_versions
def test_who_has_kept_it_can_do_no_more_once_another_has(engine: TransactionEngine, version: int) -> None:
    engine.prepared(version=version)
    zombie, owner = keep(engine), keep(engine)
    assert engine.add(zombie, version=version).value == {ORDERS: ErrorCode.PRODUCER_FENCED}
    for commit in (True, False):
        assert engine.end(zombie, commit=commit, version=version).value is ErrorCode.PRODUCER_FENCED
    assert engine.initialize(producer=zombie).value is ErrorCode.PRODUCER_FENCED
    assert isinstance(engine.end(owner, version=version).value, tuple)


def test_who_lost_its_answer_before_that_is_fenced_too(engine: TransactionEngine) -> None:
    lost = engine.initialize(two_phase=True).value
    engine.add(engine.initialize(producer=lost, two_phase=True).value)
    keep(engine)
    assert engine.initialize(producer=lost, two_phase=True).value is ErrorCode.PRODUCER_FENCED
    assert engine.state() is State.ONGOING


@both_versions
@pytest.mark.parametrize("verify_only", [True, False])
@pytest.mark.parametrize("partition", [ORDERS, STOCK])
def test_nobody_adds_to_what_is_kept(
    engine: TransactionEngine, version: int, verify_only: bool, partition: tuple[str, int]
) -> None:
    engine.prepared(ORDERS, version=version)
    owner = keep(engine)
    asked = engine.add(owner, partition, version=version, verify_only=verify_only)
    assert asked.value == {partition: ErrorCode.INVALID_TXN_STATE}
    assert engine.transaction().partitions == {ORDERS}


def test_a_producer_of_an_id_that_nobody_had_is_unknown(engine: TransactionEngine) -> None:
    engine.prepared()
    keep(engine)
    assert engine.end((77, 1)).value is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert engine.end((77, 1), version=CLASSIC).value is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert engine.add((77, 1)).value == {ORDERS: ErrorCode.INVALID_PRODUCER_ID_MAPPING}


# ---- ending it


@both_ways
@both_versions
@pytest.mark.parametrize("times", [1, 3])
def test_who_has_kept_it_ends_it_under_the_identity_that_has_written(
    engine: TransactionEngine, version: int, commit: bool, times: int
) -> None:
    """The markers have the next epoch of who has written: whatever that one still sends is fenced in partitions too."""
    engine.prepared(ORDERS, STOCK, version=version, epoch=7)
    for _ in range(times):
        owner = keep(engine)
    following = (1000, 7 + times + 1) if version == BUMPING else owner
    assert engine.end(owner, commit=commit, version=version).value == following
    assert engine.write_markers() == [
        WriteMarkers(ID, 1000, 8, commit, frozenset({ORDERS, STOCK}), bumped=version == BUMPING)
    ]
    assert (engine.state().is_complete, engine.state().is_commit) == (True, commit)
    assert (engine.stamp(), engine.transaction().owner) == (following, following)
    assert engine.add(following, version=version).value == {ORDERS: ErrorCode.NONE}


@both_ways
@both_versions
@pytest.mark.parametrize("restarts", [True, False])
def test_an_end_that_is_repeated_is_told_the_same_and_no_other_is_taken(
    engine: TransactionEngine, version: int, commit: bool, restarts: bool
) -> None:
    engine.prepared(version=version)
    keep(engine)
    owner = keep(engine)
    first = engine.end(owner, commit=commit, version=version)
    if restarts:
        engine.reload()
    again, other = (engine.end(owner, commit=verdict, version=version) for verdict in (commit, not commit))
    engine.write_markers()
    assert (again.value, other.value) == (first.value, ErrorCode.INVALID_TXN_STATE)
    if restarts:
        engine.reload()
    assert engine.end(owner, commit=commit, version=version).value == first.value
    assert engine.end(owner, commit=not commit, version=version).value is ErrorCode.INVALID_TXN_STATE
    assert engine.states().count("PREPARE_COMMIT" if commit else "PREPARE_ABORT") == 1


def test_a_delayed_end_does_not_end_what_comes_next(engine: TransactionEngine) -> None:
    engine.prepared()
    owner = keep(engine)
    following = engine.end(owner).value
    engine.write_markers()
    engine.add(following)
    for commit in (True, False):
        assert engine.end(owner, commit=commit).value is ErrorCode.PRODUCER_FENCED
    assert engine.state() is State.ONGOING


@both_versions
def test_who_has_written_is_fenced_while_the_markers_are_on_their_way_and_after(
    engine: TransactionEngine, version: int
) -> None:
    old = engine.prepared(version=version)
    zombie = keep(engine)
    engine.end(keep(engine), version=version)
    for _ in range(2):
        for stamp in (old, zombie):
            assert engine.add(stamp, version=version).value == {ORDERS: ErrorCode.PRODUCER_FENCED}
            assert engine.end(stamp, version=version).value is ErrorCode.PRODUCER_FENCED
        engine.write_markers()


@both_versions
def test_the_next_transaction_waits_for_the_markers(engine: TransactionEngine, version: int) -> None:
    engine.prepared(version=version)
    following = engine.end(keep(engine), version=version).value
    adding = engine.add(following, STOCK, version=version)
    assert adding.value is None
    engine.write_markers()
    assert adding.value == {STOCK: ErrorCode.NONE}


def test_a_classic_transaction_may_be_ended_with_version_2_and_the_other_way_round(engine: TransactionEngine) -> None:
    engine.prepared(version=CLASSIC, epoch=7)
    following = engine.end(keep(engine)).value
    assert [(effect.producer_epoch, effect.bumped) for effect in engine.write_markers()] == [(8, True)]
    assert following == (1000, 9)
    engine.add(following)
    owner = keep(engine)
    assert engine.end(owner, version=CLASSIC).value == owner == (1000, 10)
    assert [effect.producer_epoch for effect in engine.write_markers()] == [10]
    assert engine.stamp() == (1000, 10)


# ---- aborting it without a word


@both_versions
def test_who_does_not_keep_it_aborts_it(engine: TransactionEngine, version: int) -> None:
    old = engine.prepared(version=version, epoch=7)
    owners = [keep(engine) for _ in range(3)]
    new = engine.initialize(two_phase=True)
    assert engine.write_markers() == [WriteMarkers(ID, 1000, 8, False, frozenset({ORDERS}), bumped=version == BUMPING)]
    assert new.value == (1000, 12), "an epoch that nobody had"
    for stamp in (old, *owners):
        assert engine.end(stamp, commit=False, version=version).value is ErrorCode.PRODUCER_FENCED


@both_versions
def test_its_owner_may_recover_and_lose_it(engine: TransactionEngine, version: int) -> None:
    """As with a transaction of its own (KIP-360)."""
    engine.prepared(version=version, epoch=7)
    owner = keep(engine)
    recovering = engine.initialize(producer=owner, two_phase=True)
    assert [effect.producer_epoch for effect in engine.write_markers()] == [8]
    assert recovering.value == (1000, 9)
    assert engine.initialize(producer=owner, two_phase=True).value == (1000, 9), "the answer may have been lost"


# ---- with a timeout


@both_versions
def test_what_has_a_timeout_is_aborted_although_it_was_kept(engine: TransactionEngine, version: int) -> None:
    engine.ongoing(ORDERS, version=version)
    engine.advance(TIMEOUT_MS - 1)
    owner = keep(engine, two_phase=False)
    assert engine.state() is State.ONGOING
    engine.advance(1)
    assert engine.write_markers() == [WriteMarkers(ID, 1000, 1, False, frozenset({ORDERS}), bumped=version == BUMPING)]
    assert engine.end(owner, version=version).value is not None
    assert not engine.state().is_commit
    assert engine.add(owner, version=version).value == {ORDERS: ErrorCode.PRODUCER_FENCED}


def test_who_comes_in_two_phases_ends_its_timeout(engine: TransactionEngine) -> None:
    engine.ongoing()
    keep(engine)
    assert engine.transaction().timeout_ms == NEVER_MS
    engine.advance(100 * TIMEOUT_MS)
    assert engine.state() is State.ONGOING


def test_who_comes_without_two_phases_does_not_give_it_one(engine: TransactionEngine) -> None:
    engine.prepared()
    keep(engine, two_phase=False)
    engine.advance(100 * TIMEOUT_MS)
    engine.reload()
    engine.advance(100 * TIMEOUT_MS)
    assert engine.state() is State.ONGOING


@pytest.mark.parametrize("timeout_ms", [0, -1, 15 * 60_000 + 1])
def test_without_two_phases_a_timeout_has_its_bounds(engine: TransactionEngine, timeout_ms: int) -> None:
    engine.prepared()
    asked = engine.initialize(timeout_ms=timeout_ms, keeps=True)
    assert asked.value is ErrorCode.INVALID_TRANSACTION_TIMEOUT


# ---- when the epochs of an id are used up


@both_ways
@both_versions
def test_the_last_epoch_is_followed_by_another_id_for_who_keeps_it(
    engine: TransactionEngine, version: int, commit: bool
) -> None:
    old = engine.prepared(version=version, epoch=LAST_EPOCH - 1)
    zombie = keep(engine)
    assert zombie == (1000, LAST_EPOCH)
    assert engine.keep().value == Kept(1001, 0, 1000, LAST_EPOCH - 1)
    for stamp in (old, zombie):
        assert engine.end(stamp, commit=commit, version=version).value is ErrorCode.PRODUCER_FENCED
        assert engine.add(stamp, version=version).value == {ORDERS: ErrorCode.PRODUCER_FENCED}
    engine.reload()
    following = (1001, 1) if version == BUMPING else (1001, 0)
    assert engine.end((1001, 0), commit=commit, version=version).value == following
    assert [(e.producer_id, e.producer_epoch) for e in engine.write_markers()] == [(1000, LAST_EPOCH)]
    assert engine.stamp() == following
    assert engine.end((1001, 0), commit=commit, version=version).value == following
    assert engine.add(following, version=version).value == {ORDERS: ErrorCode.NONE}


@both_ways
@pytest.mark.parametrize("restarts", [True, False])
def test_the_decision_brings_another_id_if_who_kept_it_has_the_last_epoch(
    engine: TransactionEngine, commit: bool, restarts: bool
) -> None:
    """Three ids: one for the markers, one whose owner may ask again, one for what comes next."""
    engine.prepared(epoch=LAST_EPOCH)
    assert keep(engine) == (1001, 0)
    engine.transaction().next_producer_epoch = LAST_EPOCH - 1
    owner = keep(engine)
    assert owner == (1001, LAST_EPOCH)
    first = engine.end(owner, commit=commit)
    assert first.value == (1002, 0)
    if restarts:
        engine.reload()
    again, other = engine.end(owner, commit=commit), engine.end(owner, commit=not commit)
    assert engine.write_markers() == [WriteMarkers(ID, 1000, EPOCH_MAX, commit, frozenset({ORDERS}), bumped=True)]
    assert (again.value, other.value) == ((1002, 0), ErrorCode.INVALID_TXN_STATE)
    if restarts:
        engine.reload()
    assert engine.end(owner, commit=commit).value == (1002, 0)
    assert engine.end(owner, commit=not commit).value is ErrorCode.INVALID_TXN_STATE
    engine.add((1002, 0))
    assert engine.end(owner, commit=commit).value is ErrorCode.PRODUCER_FENCED


def test_ids_may_be_used_up_one_after_the_other(engine: TransactionEngine) -> None:
    engine.prepared(epoch=5)
    for number in range(3):
        engine.keep()
        engine.transaction().next_producer_epoch = LAST_EPOCH
        assert engine.keep().value == Kept(1001 + number, 0, 1000, 5)
        assert engine.end((1000 + number, LAST_EPOCH)).value is ErrorCode.PRODUCER_FENCED, "who had the id before"


def test_at_the_last_epoch_there_is_one_left_to_abort_with(engine: TransactionEngine) -> None:
    engine.ongoing(epoch=LAST_EPOCH - 1)
    owner = keep(engine, two_phase=False)
    engine.advance(TIMEOUT_MS)
    assert [effect.producer_epoch for effect in engine.write_markers()] == [LAST_EPOCH]
    assert (owner, engine.stamp()) == ((1000, LAST_EPOCH), (1000, EPOCH_MAX))
    assert engine.initialize().value == (1001, 0)


# ---- what operators see


def test_a_kept_transaction_is_shown_under_the_identity_that_has_written(engine: TransactionEngine) -> None:
    engine.prepared(epoch=7)
    keep(engine)
    (shown,) = engine.describe()
    assert (shown.transaction_state, shown.producer_id, shown.producer_epoch) == ("Ongoing", 1000, 7)
    assert (shown.transaction_timeout_ms, shown.transaction_start_time_ms) == (NEVER_MS, START_MS)
    assert engine.listed() == [(ID, 1000, "Ongoing")]
    assert engine.initialize(producer=NOBODY).value is None
