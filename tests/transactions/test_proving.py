"""What a coordinator may say only while no other can have taken its place: what would be wrong from a former one."""

from __future__ import annotations

import pytest

from penstock.coordinator.machine import Outcome, Ticket
from penstock.transactions.commands import AddPartitions, Command, End, Initialize
from tests.transactions.engine import BUMPING, CLASSIC, ID, NOBODY, ORDERS, STOCK, TIMEOUT_MS, Stamp, TransactionEngine

both_ways = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
both_versions = pytest.mark.parametrize("version", [CLASSIC, BUMPING], ids=["classic", "bumping"])

TICKET = Ticket(0)


@pytest.fixture
def engine() -> TransactionEngine:
    return TransactionEngine()


def decided(engine: TransactionEngine, command: Command) -> Outcome:
    return engine.machine.decide(command, engine.now_ms)


def ending(stamp: Stamp, version: int, *, commit: bool = True) -> End:
    return End(TICKET, ID, *stamp, commit, version)


def adding(stamp: Stamp, version: int = BUMPING, *, verify_only: bool = False) -> AddPartitions:
    return AddPartitions(TICKET, ID, *stamp, frozenset({ORDERS}), version, verify_only)


def is_proven(engine: TransactionEngine, outcome: Outcome) -> bool:
    """Whether it is said only behind a record, which changes nothing."""
    assert outcome.replies
    assert not outcome.records
    if outcome.proof is None:
        return False
    before = dict(engine.machine.transactions)
    engine.machine.apply(outcome.proof, engine.now_ms)
    assert engine.machine.transactions == before
    return True


@both_ways
@both_versions
def test_that_a_transaction_has_ended_already(engine: TransactionEngine, version: int, commit: bool) -> None:
    """A classic one that followed it, under another coordinator, has the same epoch and may not have ended so."""
    stamp = engine.ongoing(version=version)
    engine.end(stamp, commit=commit, version=version)
    engine.write_markers()
    assert is_proven(engine, decided(engine, ending(stamp, version, commit=commit)))
    assert is_proven(engine, decided(engine, ending(stamp, version, commit=not commit)))


@both_versions
def test_that_there_is_nothing_to_end(engine: TransactionEngine, version: int) -> None:
    assert is_proven(engine, decided(engine, ending(engine.producer(), version)))


@both_versions
@pytest.mark.parametrize("offset", [(0, 2), (1, 0)], ids=["epoch", "id"])
def test_that_a_producer_is_another(engine: TransactionEngine, version: int, offset: Stamp) -> None:
    producer_id, epoch = engine.ongoing(version=version)
    other = (producer_id + offset[0], epoch + offset[1])
    assert is_proven(engine, decided(engine, ending(other, version)))
    assert is_proven(engine, decided(engine, adding(other, version)))
    assert is_proven(engine, decided(engine, adding(other, version, verify_only=True)))
    assert is_proven(engine, decided(engine, Initialize(TICKET, ID, TIMEOUT_MS, *other, None)))


@both_versions
def test_that_nobody_has_begun_an_id(engine: TransactionEngine, version: int) -> None:
    assert is_proven(engine, decided(engine, ending((1000, 0), version)))
    assert is_proven(engine, decided(engine, adding((1000, 0), version)))


def test_that_partitions_are_part_of_a_transaction_already(engine: TransactionEngine) -> None:
    assert is_proven(engine, decided(engine, adding(engine.ongoing(ORDERS))))


def test_that_a_partition_is_no_part_of_a_transaction(engine: TransactionEngine) -> None:
    assert is_proven(engine, decided(engine, adding(engine.ongoing(STOCK), verify_only=True)))


def test_that_a_partition_is_part_of_it_needs_no_proof(engine: TransactionEngine) -> None:
    """Older clients have it asked with every transaction; the leader of the partition looks for a marker itself."""
    assert not is_proven(engine, decided(engine, adding(engine.ongoing(ORDERS), verify_only=True)))


def test_what_clients_try_again_needs_no_proof(engine: TransactionEngine) -> None:
    stamp = engine.end(engine.ongoing()).value
    outcome = decided(engine, AddPartitions(TICKET, ID, *stamp, frozenset({ORDERS}), BUMPING, waits=False))
    assert not is_proven(engine, outcome)
    assert not is_proven(engine, decided(engine, Initialize(TICKET, ID, -1, *NOBODY, None))), "whoever coordinates"


@both_versions
def test_what_is_written_down_is_its_own_proof(engine: TransactionEngine, version: int) -> None:
    outcome = decided(engine, ending(engine.ongoing(version=version), version))
    assert len(outcome.records) == 1
    assert outcome.proof is None
