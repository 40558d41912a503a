import time

import pytest
from group_engine import SESSION_MS, GroupEngine
from tests.machine import slowness

from penstock.groups.states import State
from penstock.protocol.errors import ErrorCode


@pytest.fixture
def engine() -> GroupEngine:
    return GroupEngine()


def test_a_heartbeat_is_all_it_takes_to_stay(engine: GroupEngine) -> None:
    (member,) = engine.stable_group("a")
    for _ in range(10):
        engine.advance(SESSION_MS - 1)
        assert engine.heartbeat(member, 1) == ErrorCode.NONE
    assert engine.state is State.STABLE


def test_a_member_that_is_not_heard_of_for_a_session_is_removed(engine: GroupEngine) -> None:
    leader, follower = engine.stable_group("a", "b")
    engine.advance(SESSION_MS - 1)
    engine.heartbeat(leader, 1)
    assert engine.state is State.STABLE
    engine.advance(1)
    assert engine.state is State.PREPARING_REBALANCE
    assert engine.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert engine.heartbeat(follower, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_whose_members_all_fall_silent_is_empty_and_the_log_says_so(engine: GroupEngine) -> None:
    engine.stable_group("a", "b", "c")
    engine.advance(SESSION_MS)
    assert engine.state is State.EMPTY
    assert engine.group.generation_id == 2
    engine.reload()
    assert engine.state is State.EMPTY
    assert engine.group.generation_id == 2


def test_a_member_that_waits_for_the_assignment_may_beat(engine: GroupEngine) -> None:
    member, _ = engine.enter("a")
    engine.advance()
    assert engine.state is State.COMPLETING_REBALANCE
    assert engine.heartbeat(member, 1) == ErrorCode.NONE


def test_a_group_must_have_an_id(engine: GroupEngine) -> None:
    assert engine.heartbeat("m", 1, group="") == ErrorCode.INVALID_GROUP_ID


def test_a_group_that_does_not_exist_knows_no_member(engine: GroupEngine) -> None:
    assert engine.heartbeat("m", 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_empty_group_knows_no_member(engine: GroupEngine) -> None:
    engine.commit({("t", 0): 1})
    assert engine.heartbeat("m", 0) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_member_is_not_a_member_yet(engine: GroupEngine) -> None:
    required = engine.replies[engine.join()]
    assert engine.heartbeat(required.member_id, 0) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("generation_id", [0, 2, -1])
def test_the_generation_must_be_the_current_one(engine: GroupEngine, generation_id: int) -> None:
    (member,) = engine.stable_group("a")
    assert engine.heartbeat(member, generation_id) == ErrorCode.ILLEGAL_GENERATION


def test_a_heartbeat_in_a_group_of_a_thousand_is_cheap(engine: GroupEngine) -> None:
    ids = engine.stable_group(*(f"c{n}" for n in range(1_000)))
    entries = len(engine.machine._timers._heap)
    start = time.thread_time()
    for now_ms in range(0, 5_000, 1_000):
        engine.now_ms = now_ms
        for member_id in ids:
            assert engine.heartbeat(member_id, 1) == ErrorCode.NONE
            engine.machine.next_deadline_ms()
    elapsed_us = (time.thread_time() - start) * 1e6 / 5_000
    assert elapsed_us < 200 * slowness()  # a few microseconds, and room for the slowest of test machines
    assert len(engine.machine._timers._heap) <= entries
