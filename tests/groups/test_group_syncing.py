import pytest
from group_engine import REBALANCE_MS, SESSION_MS, GroupEngine, offers

from penstock.groups.config import GroupConfig
from penstock.groups.records import GroupStored, read_record
from penstock.groups.states import State
from penstock.protocol.codec import encode_bytes
from penstock.protocol.errors import ErrorCode


@pytest.fixture
def engine() -> GroupEngine:
    return GroupEngine()


@pytest.fixture
def joined(engine: GroupEngine) -> tuple[str, str]:
    """A leader and a follower that have joined, and wait for the assignment."""
    a, _ = engine.enter("a")
    b, _ = engine.enter("b")
    engine.advance()
    assert engine.state is State.COMPLETING_REBALANCE
    return a, b


def test_a_follower_waits_for_the_leader(engine: GroupEngine, joined: tuple[str, str]) -> None:
    leader, follower = joined
    parked = engine.sync(follower, 1)
    assert parked not in engine.replies
    to_leader = engine.replies[engine.sync(leader, 1, {leader: b"0", follower: b"1"})]
    assert to_leader.assignment == b"0"
    assert engine.replies[parked].assignment == b"1"
    assert (engine.replies[parked].protocol_type, engine.replies[parked].protocol_name) == ("consumer", "range")
    assert engine.state is State.STABLE


def test_a_follower_that_comes_after_the_leader_is_answered_at_once(
    engine: GroupEngine, joined: tuple[str, str]
) -> None:
    leader, follower = joined
    engine.sync(leader, 1, {leader: b"0", follower: b"1"})
    assert engine.replies[engine.sync(follower, 1)].assignment == b"1"
    assert engine.replies[engine.sync(follower, 1)].assignment == b"1"


def test_a_leader_that_syncs_twice_does_not_assign_twice(engine: GroupEngine, joined: tuple[str, str]) -> None:
    leader, follower = joined
    engine.sync(leader, 1, {leader: b"0", follower: b"1"})
    assert engine.replies[engine.sync(leader, 1, {leader: b"other"})].assignment == b"0"
    assert engine.written == []


def test_the_assignment_is_written_with_all_that_a_reload_needs(engine: GroupEngine, joined: tuple[str, str]) -> None:
    leader, follower = joined
    engine.now_ms = 5_000
    engine.sync(leader, 1, {leader: b"0", follower: b"1"})
    (record,) = engine.written
    stored = read_record(record)
    assert isinstance(stored, GroupStored)
    value = stored.value
    assert value is not None
    assert (value.generation, value.protocol, value.protocol_type, value.leader) == (1, "range", "consumer", leader)
    assert value.current_state_timestamp == 5_000
    assert {m.member_id: m.assignment for m in value.members} == {leader: b"0", follower: b"1"}
    assert [(m.client_id, m.client_host) for m in value.members] == [("a", "/a.host"), ("b", "/b.host")]
    assert {(m.session_timeout, m.rebalance_timeout) for m in value.members} == {(SESSION_MS, REBALANCE_MS)}


def test_a_member_that_the_leader_forgot_gets_an_empty_assignment(engine: GroupEngine, joined: tuple[str, str]) -> None:
    leader, follower = joined
    parked = engine.sync(follower, 1)
    engine.sync(leader, 1, {leader: b"0", "stranger": b"1"})
    assert engine.replies[parked].assignment == b""
    assert engine.error(parked) == ErrorCode.NONE


def test_a_group_must_have_an_id(engine: GroupEngine) -> None:
    assert engine.error(engine.sync("m", 1, group="")) == ErrorCode.INVALID_GROUP_ID


def test_a_group_that_does_not_exist_knows_no_member(engine: GroupEngine) -> None:
    assert engine.error(engine.sync("m", 1)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_empty_group_knows_no_member(engine: GroupEngine) -> None:
    engine.commit({("t", 0): 1})
    assert engine.error(engine.sync("m", 0)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_stranger_is_unknown(engine: GroupEngine, joined: tuple[str, str]) -> None:
    assert engine.error(engine.sync("stranger", 1)) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("generation_id", [0, 2, -1])
def test_the_generation_must_be_the_current_one(
    engine: GroupEngine, joined: tuple[str, str], generation_id: int
) -> None:
    assert engine.error(engine.sync(joined[0], generation_id)) == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("told", [{"protocol_type": "connect"}, {"protocol_name": "sticky"}])
def test_the_protocol_must_be_the_selected_one(engine: GroupEngine, joined: tuple[str, str], told: dict) -> None:
    """KIP-559."""
    assert engine.error(engine.sync(joined[0], 1, **told)) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    ticket = engine.sync(joined[0], 1, protocol_type="consumer", protocol_name="range")
    assert engine.error(ticket) == ErrorCode.NONE


def test_while_a_rebalance_is_prepared_there_is_nothing_to_sync(engine: GroupEngine) -> None:
    leader, follower = engine.stable_group("a", "b")
    engine.join(leader)
    assert engine.error(engine.sync(follower, 1)) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_parked_sync_that_is_sent_again_answers_the_first(engine: GroupEngine, joined: tuple[str, str]) -> None:
    leader, follower = joined
    first, second = engine.sync(follower, 1), engine.sync(follower, 1)
    assert engine.error(first) == ErrorCode.REBALANCE_IN_PROGRESS
    engine.sync(leader, 1, {follower: b"1"})
    assert engine.replies[second].assignment == b"1"


def test_who_joins_but_never_syncs_is_removed_after_the_rebalance_timeout(
    engine: GroupEngine, joined: tuple[str, str]
) -> None:
    leader, silent = joined
    engine.sync(leader, 1)
    for _ in range(REBALANCE_MS // 5_000):
        assert engine.state is State.STABLE
        engine.heartbeat(leader, 1)
        engine.heartbeat(silent, 1)
        engine.advance(5_000)
    assert list(engine.group.members) == [leader]
    assert engine.state is State.PREPARING_REBALANCE


def test_if_the_leader_never_syncs_it_is_removed_and_the_others_rejoin(
    engine: GroupEngine, joined: tuple[str, str]
) -> None:
    leader, follower = joined
    parked = engine.sync(follower, 1)
    for _ in range(REBALANCE_MS // 5_000):
        engine.heartbeat(leader, 1)
        engine.advance(5_000)
    assert engine.error(parked) == ErrorCode.REBALANCE_IN_PROGRESS
    assert list(engine.group.members) == [follower]
    assert engine.group.leader_id == follower
    rejoin = engine.join(follower)
    assert engine.replies[rejoin].leader == follower


def test_when_all_have_synced_nobody_is_removed(engine: GroupEngine, joined: tuple[str, str]) -> None:
    leader, follower = joined
    engine.sync(leader, 1)
    engine.sync(follower, 1)
    for _ in range(2 * REBALANCE_MS // 5_000):
        engine.heartbeat(leader, 1)
        engine.heartbeat(follower, 1)
        engine.advance(5_000)
    assert engine.state is State.STABLE


def test_a_parked_sync_keeps_a_member_alive_and_its_session_starts_with_the_answer(
    engine: GroupEngine, joined: tuple[str, str]
) -> None:
    leader, follower = joined
    engine.sync(follower, 1)
    for _ in range(4):
        engine.advance(SESSION_MS - 1)
        engine.heartbeat(leader, 1)
    engine.sync(leader, 1)
    engine.advance(SESSION_MS - 1)
    engine.heartbeat(leader, 1)
    assert set(engine.group.members) == {leader, follower}
    engine.advance(1)
    assert set(engine.group.members) == {leader}


def test_the_session_of_a_member_starts_anew_when_its_parked_sync_is_cancelled(
    engine: GroupEngine, joined: tuple[str, str]
) -> None:
    leader, follower = joined
    engine.sync(follower, 1)
    for _ in range(2):
        engine.advance(SESSION_MS - 1)
        engine.heartbeat(leader, 1)
    engine.join(leader, protocols=offers(range=b"new"))
    engine.advance(SESSION_MS - 1)
    assert set(engine.group.members) == {leader, follower}
    engine.advance(1)
    assert set(engine.group.members) == {leader}


def test_an_assignment_too_large_for_the_log_is_refused_to_all() -> None:
    engine = GroupEngine(GroupConfig(initial_rebalance_delay_ms=0, append_max_bytes=2**18))
    a, _ = engine.enter("a", protocols=offers(range=b""))
    b, _ = engine.enter("b", protocols=offers(range=b""))
    engine.advance()
    parked = engine.sync(b, 1)
    ticket = engine.sync(a, 1, {b: bytes(2**18)})
    assert engine.written == []
    assert engine.error(ticket) == engine.error(parked) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert engine.state is State.PREPARING_REBALANCE


@pytest.mark.parametrize("version", range(6))
def test_every_answer_can_be_sent_in_every_version(engine: GroupEngine, joined: tuple[str, str], version: int) -> None:
    for ticket in (engine.sync("stranger", 1), engine.sync(joined[0], 1)):
        assert encode_bytes(engine.replies[ticket], version)
