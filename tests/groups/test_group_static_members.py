"""Static members (KIP-345): a consumer with a group.instance.id keeps its place while it is away."""

import pytest
from group_engine import REBALANCE_MS, SESSION_MS, GroupEngine, offers, subscription

from penstock.groups.config import GroupConfig
from penstock.groups.states import State
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.leave_group import MemberIdentity


@pytest.fixture
def engine() -> GroupEngine:
    return GroupEngine()


@pytest.fixture
def pair(engine: GroupEngine) -> tuple[str, str]:
    """The ids of two static members, 'one' the leader and 'two', that have been assigned their names."""
    tickets = [engine.join(client=name, instance=name) for name in ("one", "two")]
    engine.advance()
    leader, follower = (engine.replies[ticket].member_id for ticket in tickets)
    engine.sync(follower, 1, instance="two")
    engine.sync(leader, 1, {leader: b"one", follower: b"two"}, instance="one")
    assert engine.state is State.STABLE
    return leader, follower


def test_a_static_member_is_added_without_asking_for_an_id(engine: GroupEngine) -> None:
    ticket = engine.join(instance="one")
    engine.advance()
    assert engine.error(ticket) == ErrorCode.NONE
    assert engine.replies[ticket].member_id == "one-1"
    assert [m.group_instance_id for m in engine.replies[ticket].members] == ["one"]


def test_a_follower_that_returns_takes_its_place_without_a_rebalance(
    engine: GroupEngine, pair: tuple[str, str]
) -> None:
    leader, _ = pair
    returned = engine.replies[engine.join(instance="two", client="two again")]
    assert (returned.generation_id, returned.leader, returned.members) == (1, leader, [])
    assert returned.skip_assignment is False
    assert engine.state is State.STABLE
    assigned = engine.replies[engine.sync(returned.member_id, 1, instance="two")]
    assert assigned.assignment == b"two"
    described = {m.group_instance_id: m for m in engine.describe().members}
    assert described["two"].client_id == "two again"


def test_the_new_id_is_in_the_log_before_the_member_hears_of_it(engine: GroupEngine, pair: tuple[str, str]) -> None:
    returned = engine.replies[engine.join(instance="two")]
    assert len(engine.written) == 1
    engine.reload()
    assert engine.heartbeat(returned.member_id, 1, instance="two") == ErrorCode.NONE


def test_a_leader_that_returns_is_told_to_skip_the_assignment(engine: GroupEngine, pair: tuple[str, str]) -> None:
    """KIP-814."""
    _, follower = pair
    returned = engine.replies[engine.join(instance="one", version=9)]
    assert returned.leader == returned.member_id
    assert returned.skip_assignment is True
    assert {m.member_id for m in returned.members} == {returned.member_id, follower}


@pytest.mark.parametrize("version", [5, 8])
def test_before_version_9_a_leader_that_returns_is_told_its_old_id_leads(
    engine: GroupEngine, pair: tuple[str, str], version: int
) -> None:
    leader, _ = pair
    returned = engine.replies[engine.join(instance="one", version=version)]
    assert returned.leader == leader != returned.member_id
    assert returned.members == []
    assert engine.group.leader_id == returned.member_id


def test_a_former_self_is_fenced_from_everything(engine: GroupEngine, pair: tuple[str, str]) -> None:
    _, old = pair
    engine.join(instance="two")
    assert engine.heartbeat(old, 1, instance="two") == ErrorCode.FENCED_INSTANCE_ID
    assert engine.error(engine.join(old, instance="two")) == ErrorCode.FENCED_INSTANCE_ID
    assert engine.error(engine.sync(old, 1, instance="two")) == ErrorCode.FENCED_INSTANCE_ID
    assert engine.commit({("t", 0): 1}, old, 1, instance="two") == [ErrorCode.FENCED_INSTANCE_ID]


def test_a_former_self_that_does_not_name_its_instance_is_unknown(engine: GroupEngine, pair: tuple[str, str]) -> None:
    _, old = pair
    engine.join(instance="two")
    assert engine.heartbeat(old, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_instance_id_that_nobody_has_is_unknown(engine: GroupEngine, pair: tuple[str, str]) -> None:
    leader, _ = pair
    assert engine.heartbeat(leader, 1, instance="three") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_parked_join_of_the_former_self_is_fenced(engine: GroupEngine, pair: tuple[str, str]) -> None:
    leader, _ = pair
    parked = engine.join(leader, instance="one")
    engine.join(instance="one")
    assert engine.error(parked) == ErrorCode.FENCED_INSTANCE_ID
    assert engine.replies[parked].member_id == leader


def test_a_parked_sync_of_the_former_self_is_fenced_and_a_rebalance_starts(engine: GroupEngine) -> None:
    tickets = [engine.join(instance=name) for name in ("one", "two")]
    engine.advance()
    _, follower = (engine.replies[ticket].member_id for ticket in tickets)
    parked = engine.sync(follower, 1, instance="two")
    engine.join(instance="two")
    assert engine.error(parked) == ErrorCode.FENCED_INSTANCE_ID
    assert engine.state is State.PREPARING_REBALANCE


def test_a_return_during_a_rebalance_joins_it(engine: GroupEngine, pair: tuple[str, str]) -> None:
    leader, _ = pair
    first = engine.join(leader, instance="one")
    second = engine.join(instance="two")
    assert engine.replies[first].generation_id == engine.replies[second].generation_id == 2


def test_a_return_with_other_topics_starts_a_rebalance(engine: GroupEngine, pair: tuple[str, str]) -> None:
    engine.join(instance="two", protocols=offers(range=subscription("t", "u")))
    assert engine.state is State.PREPARING_REBALANCE


def test_a_return_with_the_same_topics_does_not_whatever_else_has_changed(
    engine: GroupEngine, pair: tuple[str, str]
) -> None:
    engine.join(instance="two", protocols=offers(range=subscription("t", owned=b"forgotten")))
    assert engine.state is State.STABLE


def test_a_return_that_changes_the_selected_protocol_starts_a_rebalance(engine: GroupEngine) -> None:
    both = offers(range=b"", sticky=b"")
    tickets = [engine.join(instance=name, protocols=both, protocol_type="connect") for name in ("one", "two")]
    engine.advance()
    leader = engine.replies[tickets[0]].member_id
    engine.sync(leader, 1)
    assert engine.group.protocol_name == "range"
    engine.join(instance="two", protocols=offers(sticky=b""), protocol_type="connect")
    assert engine.state is State.PREPARING_REBALANCE


def test_a_static_member_that_misses_a_rebalance_keeps_its_place_for_a_session(engine: GroupEngine) -> None:
    long_ms = REBALANCE_MS * 2
    tickets = [engine.join(instance=name, session_ms=long_ms) for name in ("one", "two")]
    engine.advance()
    leader, away = (engine.replies[ticket].member_id for ticket in tickets)
    engine.sync(leader, 1)
    engine.sync(away, 1)
    rejoin = engine.join(leader, instance="one", session_ms=long_ms)
    engine.advance(REBALANCE_MS)
    assert {m.member_id for m in engine.replies[rejoin].members} == {leader, away}


def test_if_only_static_members_are_left_and_none_rejoins_the_group_waits_for_their_sessions(
    engine: GroupEngine,
) -> None:
    session_ms = REBALANCE_MS * 3 - 1
    static = engine.join(instance="one", session_ms=session_ms)
    engine.advance()
    member_id = engine.replies[static].member_id
    engine.sync(member_id, 1)
    dynamic, _ = engine.enter("dynamic")
    engine.leave(MemberIdentity(member_id=dynamic))
    assert engine.state is State.PREPARING_REBALANCE
    engine.advance(REBALANCE_MS)
    assert engine.state is State.PREPARING_REBALANCE
    assert list(engine.group.members) == [member_id]
    engine.advance(session_ms)
    assert engine.state is State.EMPTY


def test_a_static_member_whose_session_ends_is_removed_like_any_other(
    engine: GroupEngine, pair: tuple[str, str]
) -> None:
    leader, _ = pair
    engine.advance(SESSION_MS - 1)
    engine.heartbeat(leader, 1, instance="one")
    engine.advance(1)
    assert list(engine.group.members) == [leader]
    assert "two" not in engine.group.static_members


def test_a_member_that_returns_has_a_session_from_then_on(engine: GroupEngine, pair: tuple[str, str]) -> None:
    leader, _ = pair
    engine.advance(SESSION_MS - 1)
    returned = engine.replies[engine.join(instance="two")]
    engine.heartbeat(leader, 1)
    engine.advance(SESSION_MS - 1)
    engine.heartbeat(leader, 1)
    assert set(engine.group.members) == {leader, returned.member_id}
    engine.advance(1)
    assert set(engine.group.members) == {leader}


def test_a_return_before_the_member_had_synced_still_owes_the_sync(engine: GroupEngine) -> None:
    tickets = [engine.join(instance=name, session_ms=REBALANCE_MS * 2) for name in ("one", "two")]
    engine.advance()
    leader, _ = (engine.replies[ticket].member_id for ticket in tickets)
    engine.sync(leader, 1)
    returned = engine.replies[engine.join(instance="two", session_ms=REBALANCE_MS * 2)]
    assert engine.group.pending_sync == {returned.member_id}
    engine.sync(returned.member_id, 1, instance="two")
    engine.advance(REBALANCE_MS)
    assert engine.state is State.STABLE


def test_a_return_whose_record_would_be_too_large_starts_a_rebalance() -> None:
    engine = GroupEngine(GroupConfig(initial_rebalance_delay_ms=0, append_max_bytes=2**18))
    ticket = engine.join(instance="one", protocol_type="connect", protocols=offers(default=b""))
    engine.advance()
    engine.sync(engine.replies[ticket].member_id, 1)
    returned = engine.join(instance="one", protocol_type="connect", protocols=offers(default=bytes(2**18)))
    assert engine.written == []
    assert engine.replies[returned].generation_id == 2
