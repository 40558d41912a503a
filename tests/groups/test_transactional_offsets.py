"""Offsets committed in transactions: pending until the transaction ends, then as the log's order has it (KIP-98)."""

from __future__ import annotations

import pytest
from group_engine import GROUP, GroupEngine, InTransaction
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.coordinator.machine import ProducerStamp
from penstock.groups.config import GroupConfig
from penstock.protocol.errors import ErrorCode

PRODUCER = 7
OTHER = 8
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def engine() -> GroupEngine:
    return GroupEngine()


def unstable(engine: GroupEngine, *wanted: tuple[str, int]) -> list[tuple[ErrorCode, int]]:
    group = engine.fetch_group(*wanted, require_stable=True)
    return [(ErrorCode(p.error_code), p.committed_offset) for topic in group.topics for p in topic.partitions]


def test_an_offset_counts_when_its_transaction_is_committed(engine: GroupEngine) -> None:
    assert engine.commit_in_transaction(PRODUCER, {("t", 0): 10}) == [ErrorCode.NONE]
    assert engine.written == [InTransaction(engine.written[0].key, engine.written[0].value, ProducerStamp(PRODUCER, 0))]
    assert engine.fetch(("t", 0)) == {("t", 0): -1}
    engine.end_transaction(PRODUCER, committed=True)
    assert engine.fetch(("t", 0)) == {("t", 0): 10}


def test_an_aborted_transaction_leaves_nothing(engine: GroupEngine) -> None:
    engine.commit({("t", 0): 5})
    engine.commit_in_transaction(PRODUCER, {("t", 0): 10})
    engine.end_transaction(PRODUCER, committed=False)
    assert engine.fetch(("t", 0)) == {("t", 0): 5}
    assert unstable(engine, ("t", 0)) == [(ErrorCode.NONE, 5)]


def test_who_wants_stable_offsets_waits_for_open_transactions(engine: GroupEngine) -> None:
    engine.commit({("t", 0): 5, ("t", 1): 6})
    engine.commit_in_transaction(PRODUCER, {("t", 0): 10})
    assert unstable(engine, ("t", 0), ("t", 1)) == [(ErrorCode.UNSTABLE_OFFSET_COMMIT, -1), (ErrorCode.NONE, 6)]
    assert unstable(engine) == [(ErrorCode.UNSTABLE_OFFSET_COMMIT, -1), (ErrorCode.NONE, 6)]
    assert engine.fetch(("t", 0)) == {("t", 0): 5}
    engine.end_transaction(PRODUCER, committed=True)
    assert unstable(engine, ("t", 0)) == [(ErrorCode.NONE, 10)]


def test_a_later_offset_without_a_transaction_is_not_overwritten(engine: GroupEngine) -> None:
    engine.commit_in_transaction(PRODUCER, {("t", 0): 10})
    engine.commit({("t", 0): 20})
    assert unstable(engine, ("t", 0)) == [(ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)]
    engine.end_transaction(PRODUCER, committed=True)
    assert engine.fetch(("t", 0)) == {("t", 0): 20}


def test_of_two_transactions_the_later_record_wins_whichever_ends_first(engine: GroupEngine) -> None:
    for first, second in ((PRODUCER, OTHER), (OTHER, PRODUCER)):
        engine.commit_in_transaction(PRODUCER, {("t", 0): 10})
        engine.commit_in_transaction(OTHER, {("t", 0): 20})
        engine.end_transaction(first, committed=True)
        engine.end_transaction(second, committed=True)
        assert engine.fetch(("t", 0)) == {("t", 0): 20}
        engine.delete_offsets(("t", 0))


def test_within_a_transaction_the_last_offset_counts(engine: GroupEngine) -> None:
    engine.commit_in_transaction(PRODUCER, {("t", 0): 10})
    engine.commit({("t", 0): 15})
    engine.commit_in_transaction(PRODUCER, {("t", 0): 20})
    engine.end_transaction(PRODUCER, committed=True)
    assert engine.fetch(("t", 0)) == {("t", 0): 20}


def test_an_end_of_a_transaction_that_holds_nothing_here_is_nothing(engine: GroupEngine) -> None:
    engine.end_transaction(PRODUCER, committed=True)
    assert not engine.machine.groups


def test_open_transactions_are_found_again_after_a_reload(engine: GroupEngine) -> None:
    engine.commit({("t", 0): 5})
    engine.commit_in_transaction(PRODUCER, {("t", 0): 10})
    engine.commit_in_transaction(OTHER, {("t", 1): 11})
    engine.end_transaction(OTHER, committed=True)
    engine.reload()
    assert engine.fetch() == {("t", 0): 5, ("t", 1): 11}
    assert unstable(engine, ("t", 0)) == [(ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)]
    engine.end_transaction(PRODUCER, committed=True)
    engine.reload()
    assert engine.fetch() == {("t", 0): 10, ("t", 1): 11}


# ---- who may


def test_nobody_in_particular_may_commit_to_any_group(engine: GroupEngine) -> None:
    engine.stable_group("a")
    engine.start("m", group="consumers")
    assert engine.commit_in_transaction(PRODUCER, {("t", 0): 1}) == [ErrorCode.NONE]
    assert engine.commit_in_transaction(PRODUCER, {("t", 0): 1}, group="consumers") == [ErrorCode.NONE]
    assert engine.commit_in_transaction(PRODUCER, {("t", 0): 1}, group="new") == [ErrorCode.NONE]


def test_who_says_that_it_is_a_member_must_be(engine: GroupEngine) -> None:
    assert engine.commit_in_transaction(PRODUCER, {("t", 0): 1}, "a", 1) == [ErrorCode.ILLEGAL_GENERATION]
    (member,) = engine.stable_group("a")
    commit = engine.commit_in_transaction
    assert commit(PRODUCER, {("t", 0): 1}, member, 1) == [ErrorCode.NONE]
    assert commit(PRODUCER, {("t", 0): 1}, member, 2) == [ErrorCode.ILLEGAL_GENERATION]
    assert commit(PRODUCER, {("t", 0): 1}, "b", 1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit(PRODUCER, {("t", 0): 1}, "", -1, instance="one") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert not engine.written


def test_a_static_member_that_was_replaced_is_fenced(engine: GroupEngine) -> None:
    ticket = engine.join(instance="one")
    engine.advance()
    old = engine.replies[ticket].member_id
    engine.sync(old, 1, {old: b""})
    new = engine.replies[engine.join(instance="one")].member_id
    commit = engine.commit_in_transaction
    assert commit(PRODUCER, {("t", 0): 1}, old, 1, instance="one") == [ErrorCode.FENCED_INSTANCE_ID]
    assert commit(PRODUCER, {("t", 0): 1}, new, 1, instance="one") == [ErrorCode.NONE]


def test_a_rebalance_under_way_does_not_matter(engine: GroupEngine) -> None:
    (member,) = engine.stable_group("a")
    engine.join(member)
    assert engine.commit_in_transaction(PRODUCER, {("t", 0): 1}, member, 2) == [ErrorCode.NONE]


def test_in_a_consumer_group_the_member_epoch_is_the_generation(engine: GroupEngine) -> None:
    engine.start("a")
    commit = engine.commit_in_transaction
    assert commit(PRODUCER, {("t", 0): 1}, "a", 1) == [ErrorCode.NONE]
    assert commit(PRODUCER, {("t", 0): 1}, "a", 0) == [ErrorCode.ILLEGAL_GENERATION]
    assert commit(PRODUCER, {("t", 0): 1}, "b", 1) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_metadata_that_is_too_large_fails_alone() -> None:
    engine = GroupEngine(GroupConfig(offset_metadata_max_bytes=3))
    assert engine.commit_in_transaction(PRODUCER, {("t", 0): 1}, metadata="1234") == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE
    ]
    assert not engine.written
    assert engine.commit_in_transaction(PRODUCER, {("t", 0): 1}, metadata=None) == [ErrorCode.NONE]


def test_what_is_too_much_for_one_append_fails_whole() -> None:
    engine = GroupEngine(GroupConfig(append_max_bytes=2**18))
    errors = engine.commit_in_transaction(PRODUCER, {("t", n): 1 for n in range(10_000)})
    assert set(errors) == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert not engine.written


# ---- what becomes of pending offsets


def test_a_group_that_is_deleted_takes_its_pending_offsets_along(engine: GroupEngine) -> None:
    engine.commit({("t", 0): 5})
    engine.commit_in_transaction(PRODUCER, {("t", 0): 10, ("t", 1): 11})
    assert engine.delete() == {GROUP: ErrorCode.NONE}
    for _ in range(2):
        assert GROUP not in engine.machine.groups
        engine.end_transaction(PRODUCER, committed=True)
        assert engine.fetch() == {}
        engine.reload()


def test_offsets_that_are_deleted_do_not_come_back(engine: GroupEngine) -> None:
    engine.commit_in_transaction(PRODUCER, {("t", 0): 10, ("t", 1): 11})
    engine.delete_offsets(("t", 0))
    engine.end_transaction(PRODUCER, committed=True)
    assert engine.fetch() == {("t", 1): 11}


def test_a_topic_that_is_deleted_takes_its_pending_offsets_along(engine: GroupEngine) -> None:
    engine.commit_in_transaction(PRODUCER, {("t", 0): 10, ("u", 1): 11})
    engine.delete_topics("t")
    engine.end_transaction(PRODUCER, committed=True)
    assert engine.fetch() == {("u", 1): 11}


def test_an_open_transaction_keeps_offsets_and_group_from_expiring(engine: GroupEngine) -> None:
    engine.commit({("t", 0): 5, ("t", 1): 6})
    engine.commit_in_transaction(PRODUCER, {("t", 0): 10})
    engine.advance(8 * DAY_MS)
    assert engine.fetch() == {("t", 0): 5}
    engine.end_transaction(PRODUCER, committed=False)
    engine.advance(DAY_MS)
    assert GROUP not in engine.machine.groups


# ---- against a plain model


class PendingModel(RuleBasedStateMachine):
    """The log as a list of commits, replayed in the simplest way that there is."""

    @initialize()
    def begin(self) -> None:
        self.engine = GroupEngine()
        self.steps: list[tuple[str, int, int, int]] = []  # what, producer, partition, offset

    @rule(partition=st.integers(0, 2), offset=st.integers(0, 99))
    def a_commit(self, partition: int, offset: int) -> None:
        self.engine.commit({("t", partition): offset})
        self.steps.append(("commit", -1, partition, offset))

    @rule(producer=st.integers(0, 2), partition=st.integers(0, 2), offset=st.integers(0, 99))
    def a_commit_in_a_transaction(self, producer: int, partition: int, offset: int) -> None:
        self.engine.commit_in_transaction(producer, {("t", partition): offset})
        self.steps.append(("commit", producer, partition, offset))

    @rule(producer=st.integers(0, 2), committed=st.booleans())
    def a_transaction_ends(self, producer: int, committed: bool) -> None:
        self.engine.end_transaction(producer, committed=committed)
        self.steps.append(("end", producer, int(committed), 0))

    @rule(partition=st.integers(0, 2))
    def an_offset_is_deleted(self, partition: int) -> None:
        self.engine.delete_offsets(("t", partition))
        self.steps.append(("delete", -1, partition, 0))

    @rule()
    def the_coordinator_moves(self) -> None:
        self.engine.reload()

    @invariant()
    def offsets_are_those_of_the_model(self) -> None:
        counting: dict[int, tuple[int, int]] = {}  # partition -> position, offset
        open_: dict[int, dict[int, tuple[int, int]]] = {}
        for position, (what, producer, number, offset) in enumerate(self.steps):
            if what == "commit" and producer >= 0:
                open_.setdefault(producer, {})[number] = (position, offset)
            elif what == "commit":
                counting[number] = (position, offset)
            elif what == "delete":
                counting.pop(number, None)
                for pending in open_.values():
                    pending.pop(number, None)
            else:
                for partition, placed in open_.pop(producer, {}).items() if number else ():
                    counting[partition] = max(counting.get(partition, placed), placed)
                open_.pop(producer, None)
        expected = {("t", partition): offset for partition, (_, offset) in counting.items()}
        assert self.engine.fetch() == expected
        wanted = [("t", partition) for partition in range(3)]
        is_open = {partition for pending in open_.values() for partition in pending}
        for (_, partition), (error, offset) in zip(wanted, unstable(self.engine, *wanted)):
            if partition in is_open:
                assert error is ErrorCode.UNSTABLE_OFFSET_COMMIT
            else:
                assert (error, offset) == (ErrorCode.NONE, expected.get(("t", partition), -1))


PendingModel.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestPendingModel = PendingModel.TestCase
