"""Transactions that two phases commit (KIP-939): nothing but a decision ends them, and no clock."""

from __future__ import annotations

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.transactions.commands import WriteMarkers
from penstock.transactions.config import TransactionConfig
from penstock.transactions.states import State
from penstock.transactions.transaction import NEVER_MS
from tests.transactions.engine import BUMPING, CLASSIC, ID, ORDERS, STOCK, TIMEOUT_MS, TransactionEngine

DAY_MS = 24 * 3600 * 1000
YEAR_MS = 365 * DAY_MS

both_ways = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
both_versions = pytest.mark.parametrize("version", [CLASSIC, BUMPING], ids=["classic", "bumping"])


@pytest.fixture
def engine() -> TransactionEngine:
    return TransactionEngine()


# ---- time


@both_versions
def test_it_is_open_for_as_long_as_nobody_decides(engine: TransactionEngine, version: int) -> None:
    stamp = engine.prepared(ORDERS, STOCK, version=version)
    before = len(engine.log)
    engine.advance(YEAR_MS)
    assert (engine.state(), len(engine.log), engine.effects) == (State.ONGOING, before, [])
    engine.end(stamp, version=version)
    assert [effect.committed for effect in engine.write_markers()] == [True]


@both_versions
def test_the_next_coordinator_does_not_abort_it_either(engine: TransactionEngine, version: int) -> None:
    stamp = engine.prepared(version=version)
    for _ in range(3):
        engine.now_ms += YEAR_MS
        engine.reload()
        engine.advance(YEAR_MS)
    assert (engine.state(), engine.stamp()) == (State.ONGOING, stamp)
    assert engine.keep().value.ongoing_producer_epoch == stamp[1]


def test_nothing_is_due_because_of_it(engine: TransactionEngine) -> None:
    engine.prepared()
    assert engine.machine.next_deadline_ms() == engine.now_ms + engine.config.expiration_check_ms


@pytest.mark.parametrize("timeout_ms", [-1, 0, 1, 15 * 60_000 + 1, NEVER_MS])
def test_whatever_timeout_is_asked_for_does_not_matter(engine: TransactionEngine, timeout_ms: int) -> None:
    assert engine.initialize(timeout_ms=timeout_ms, two_phase=True).value == (1000, 0)
    assert engine.transaction().timeout_ms == NEVER_MS, "as Kafka stores it"


def test_its_id_is_not_forgotten_while_it_is_open_but_later(engine: TransactionEngine) -> None:
    stamp = engine.prepared()
    engine.advance(YEAR_MS)
    assert engine.state() is State.ONGOING
    engine.end(stamp)
    engine.write_markers()
    engine.advance(8 * DAY_MS)
    assert ID not in engine.machine.transactions


def test_all_transactions_of_the_producer_are_such(engine: TransactionEngine) -> None:
    stamp = engine.end(engine.prepared()).value
    engine.write_markers()
    engine.add(stamp)
    engine.advance(YEAR_MS)
    assert engine.state() is State.ONGOING


def test_who_comes_without_two_phases_has_a_timeout_again(engine: TransactionEngine) -> None:
    engine.prepared()
    new = engine.initialize()
    assert [effect.committed for effect in engine.write_markers()] == [False], "it was not asked to be kept"
    engine.add(new.value)
    engine.advance(TIMEOUT_MS)
    assert engine.state() is State.PREPARE_ABORT


def test_without_two_phases_the_longest_timeout_of_all_is_a_time() -> None:
    engine = TransactionEngine(TransactionConfig(max_timeout_ms=NEVER_MS))
    engine.add(engine.initialize(timeout_ms=NEVER_MS).value)
    engine.advance(NEVER_MS)
    assert engine.state() is State.PREPARE_ABORT


# ---- the setting


def test_where_it_is_switched_off_nobody_may() -> None:
    engine = TransactionEngine(TransactionConfig(two_phase_commit=False))
    assert engine.initialize(two_phase=True).value is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert engine.keep().value is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert engine.log == []
    assert engine.initialize().value == (1000, 0)


@both_ways
def test_what_is_open_when_it_is_switched_off_is_not_lost(engine: TransactionEngine, commit: bool) -> None:
    engine.prepared()
    engine.config = TransactionConfig(two_phase_commit=False)
    engine.reload()
    engine.advance(YEAR_MS)
    kept = engine.keep(two_phase=False).value
    engine.advance(YEAR_MS)
    engine.end((kept.producer_id, kept.producer_epoch), commit=commit)
    assert [effect.committed for effect in engine.write_markers()] == [commit]


# ---- deciding without taking over


@both_ways
@both_versions
def test_its_producer_decides_as_ever(engine: TransactionEngine, version: int, commit: bool) -> None:
    stamp = engine.prepared(ORDERS, version=version)
    epoch = 1 if version == BUMPING else 0
    assert engine.end(stamp, commit=commit, version=version).value == (1000, epoch)
    assert engine.write_markers() == [
        WriteMarkers(ID, 1000, epoch, commit, frozenset({ORDERS}), bumped=version == BUMPING)
    ]
    assert engine.state().is_commit is commit
    assert engine.transaction().timeout_ms == NEVER_MS
