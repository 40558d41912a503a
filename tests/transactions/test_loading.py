"""A coordinator that finds the log goes on where the last one stood, wherever that was."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.transactions.commands import WriteMarkers
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


stories = pytest.mark.parametrize(
    "story",
    [committing, aborting, fencing, running_out_of_time, running_out_of_epochs],
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
        assert stamp > (before.producer_id, before.producer_epoch), "an id or an epoch that nobody had"


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
