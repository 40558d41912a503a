"""A coordinator that finds the log goes on where the last one stood, wherever that was."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.transactions.commands import Kept, WriteMarkers
from penstock.transactions.states import State
from penstock.transactions.transaction import EPOCH_MAX
from tests.transactions.engine import BUMPING, CLASSIC, ID, ORDERS, STOCK, TIMEOUT_MS, TransactionEngine

both_versions = pytest.mark.parametrize("version", [CLASSIC, BUMPING], ids=["classic", "bumping"])


def committing(engine: TransactionEngine, version: int) -> None:
    stamp = engine.ongoing(ORDERS, version=version)
    engine.add(stamp, STOCK, version=version)
    engine.end(stamp, version=version)
    engine.write_markers()


def aborting(engine: TransactionEngine, version: int) -> None:
    engine.end(engine.ongoing(ORDERS, version=version), commit=False, version=version)
    engine.write_markers()


def fencing(engine: TransactionEngine, version: int) -> None:
    engine.ongoing(ORDERS, version=version)
    engine.initialize()
    engine.write_markers()


def running_out_of_time(engine: TransactionEngine, version: int) -> None:
    engine.ongoing(ORDERS, version=version)
    engine.advance(TIMEOUT_MS)
    engine.write_markers()


def running_out_of_epochs(engine: TransactionEngine, version: int) -> None:
    engine.end(engine.ongoing(ORDERS, version=version, epoch=EPOCH_MAX - 1), version=version)
    engine.write_markers()
    engine.initialize()


def keeping(engine: TransactionEngine, version: int) -> None:
    engine.ongoing(ORDERS, version=version)
    for _ in range(2):
        kept = engine.keep(two_phase=False).value
    engine.end((kept.producer_id, kept.producer_epoch), version=version)
    engine.write_markers()


def keeping_at_the_last_epoch(engine: TransactionEngine, version: int) -> None:
    engine.ongoing(ORDERS, version=version, epoch=EPOCH_MAX - 1)
    kept = engine.keep(two_phase=False).value
    engine.end((kept.producer_id, kept.producer_epoch), commit=False, version=version)
    engine.write_markers()


def keeping_and_aborting(engine: TransactionEngine, version: int) -> None:
    engine.ongoing(ORDERS, version=version)
    engine.keep(two_phase=False)
    engine.initialize()
    engine.write_markers()


def keeping_for_too_long(engine: TransactionEngine, version: int) -> None:
    engine.ongoing(ORDERS, version=version)
    engine.keep(two_phase=False)
    engine.advance(TIMEOUT_MS)
    engine.write_markers()


stories = pytest.mark.parametrize(
    "story",
    [
        committing,
        aborting,
        fencing,
        running_out_of_time,
        running_out_of_epochs,
        keeping,
        keeping_at_the_last_epoch,
        keeping_and_aborting,
        keeping_for_too_long,
    ],
    ids=lambda story: story.__name__,
)


@both_versions
@stories
def test_a_log_that_ends_anywhere_leads_to_a_decided_end(
    story: Callable[[TransactionEngine, int], None], version: int
) -> None:
    told = TransactionEngine()
    story(told, version)
    for length in range(1, len(told.log) + 1):
        engine = TransactionEngine()
        engine.log, engine.now_ms, engine.ids = list(told.log), told.now_ms, told.ids
        engine.reload(length)
        before = engine.transaction()
        if before.state.is_prepared:
            assert engine.effects == [
                WriteMarkers(
                    ID, before.producer_id, before.producer_epoch, before.state.is_commit, before.partitions,
                    bumped=version == BUMPING,
                )
            ]  # fmt: skip
        else:
            assert engine.effects == []
        engine.advance(TIMEOUT_MS)
        engine.write_markers()
        after = engine.state()
        assert after is State.EMPTY or after.is_complete
        if before.state.is_prepared:
            assert after.is_commit is before.state.is_commit
        stamp = engine.initialize().value
        assert stamp > before.owner, "an id or an epoch that nobody had"


@both_versions
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_prepared_transaction_ends_as_it_was_decided_wherever_the_log_ends(version: int, commit: bool) -> None:
    """Two phases: whoever is to tell the decision asks again and again, of a coordinator that dies at each record."""
    told = TransactionEngine()
    told.prepared(ORDERS, STOCK, version=version, epoch=EPOCH_MAX - 3)
    for _ in range(4):
        kept = told.keep().value
    told.end((kept.producer_id, kept.producer_epoch), commit=commit, version=version)
    told.write_markers()
    assert len(told.log) == 8
    for length in range(2, len(told.log) + 1):
        engine = TransactionEngine()
        engine.log, engine.now_ms, engine.ids = list(told.log), told.now_ms, told.ids
        engine.reload(length)
        engine.advance(1_000 * TIMEOUT_MS)
        answer = engine.keep()
        if isinstance(answer.value, Kept):
            assert (answer.value.ongoing_producer_id, answer.value.ongoing_producer_epoch) == (1000, EPOCH_MAX - 3)
            engine.end((answer.value.producer_id, answer.value.producer_epoch), commit=commit, version=version)
        elif engine.effects:
            assert answer.value is None, "it is decided, and waits"
        for effect in engine.write_markers():
            stamp = (effect.producer_id, effect.producer_epoch)
            assert (stamp, effect.committed, effect.partitions) == ((1000, EPOCH_MAX - 2), commit, {ORDERS, STOCK})
        assert [name for name in engine.states() if name.startswith("COMPLETE")] == [
            "COMPLETE_COMMIT" if commit else "COMPLETE_ABORT"
        ]


def test_what_waits_for_markers_is_told_that_the_coordinator_has_gone() -> None:
    engine = TransactionEngine()
    engine.end(engine.ongoing())
    waiting = engine.initialize()
    engine.reload()
    assert waiting.value is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_only_what_is_decided_has_an_effect() -> None:
    engine = TransactionEngine()
    for name in ("empty", "ongoing", "complete", "committing", "aborting"):
        stamp = engine.producer(name)
        if name != "empty":
            engine.add(stamp, (name, 0), name=name)
    engine.end(engine.stamp("complete"), name="complete")
    engine.write_markers()
    engine.end(engine.stamp("committing"), name="committing")
    engine.end(engine.stamp("aborting"), commit=False, name="aborting")
    engine.reload()
    assert sorted((e.transactional_id, e.committed, *e.partitions) for e in engine.effects) == [
        ("aborting", False, ("aborting", 0)),
        ("committing", True, ("committing", 0)),
    ]


def test_the_last_record_of_an_id_counts_and_a_tombstone_ends_it() -> None:
    engine = TransactionEngine()
    for name in ("kept", "gone"):
        engine.producer(name)
        engine.producer(name)
    engine.advance(7 * 24 * 3600 * 1000 + 1)
    engine.initialize("kept")
    engine.advance(3600 * 1000)
    engine.reload()
    assert set(engine.machine.transactions) == {"kept"}
    assert engine.stamp("kept")[1] == 2
