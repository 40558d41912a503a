import pytest
from group_engine import REBALANCE_MS, SESSION_MS, GroupEngine, offers, subscription

from penstock.groups.config import GroupConfig
from penstock.groups.states import State
from penstock.protocol.codec import encode_bytes
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.leave_group import MemberIdentity


@pytest.fixture
def engine() -> GroupEngine:
    return GroupEngine()


# ---- who may join


def test_a_group_must_have_an_id(engine: GroupEngine) -> None:
    assert engine.error(engine.join(group="")) == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("session_ms", [-1, 0, 5_999, 1_800_001])
def test_a_session_timeout_must_be_within_the_limits(engine: GroupEngine, session_ms: int) -> None:
    assert engine.error(engine.join(session_ms=session_ms)) == ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_member_id_of_an_unknown_group_is_unknown(engine: GroupEngine) -> None:
    ticket = engine.join("stranger-1")
    assert engine.error(ticket) == ErrorCode.UNKNOWN_MEMBER_ID
    assert engine.replies[ticket].member_id == "stranger-1"
    assert not engine.machine.groups


@pytest.mark.parametrize("known_group", [True, False], ids=["stable", "empty"])
def test_a_member_id_that_was_never_given_out_is_unknown(engine: GroupEngine, known_group: bool) -> None:
    if known_group:
        engine.stable_group("a")
    else:
        engine.commit({("t", 0): 1})
    assert engine.error(engine.join("stranger-1")) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", None), ("consumer", [])])
def test_a_new_group_needs_a_protocol(engine: GroupEngine, protocol_type: str, protocols: list | None) -> None:
    ticket = engine.join(protocol_type=protocol_type, protocols=protocols)
    assert engine.error(ticket) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert not engine.machine.groups


def test_a_member_must_have_a_protocol_in_common_with_all_others(engine: GroupEngine) -> None:
    engine.stable_group("a", "b")
    assert engine.error(engine.join(protocols=offers(sticky=b""))) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert engine.error(engine.join(protocol_type="connect")) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert engine.state is State.STABLE


def test_a_known_member_cannot_leave_the_common_protocol(engine: GroupEngine) -> None:
    _, follower = engine.stable_group("a", "b")
    ticket = engine.join(follower, protocols=offers(sticky=b""))
    assert engine.error(ticket) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert engine.replies[ticket].member_id == follower


def test_an_empty_group_may_change_its_protocol_type(engine: GroupEngine) -> None:
    engine.stable_group("a")
    engine.advance(SESSION_MS)
    assert engine.state is State.EMPTY
    engine.stable_group("b", protocol_type="connect", protocols=offers(default=b""))
    assert engine.describe().protocol_type == "connect"


# ---- a member needs an id first (KIP-394)


def test_a_new_member_must_come_again_with_the_id_it_is_given(engine: GroupEngine) -> None:
    required = engine.replies[engine.join(client="alice")]
    assert required.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert required.member_id == "alice-1"
    assert engine.state is State.EMPTY
    engine.join("alice-1")
    assert engine.state is State.PREPARING_REBALANCE


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_before_version_4_a_new_member_is_added_at_once(engine: GroupEngine, version: int) -> None:
    ticket = engine.join(version=version)
    engine.advance()
    assert engine.error(ticket) == ErrorCode.NONE
    assert engine.replies[ticket].leader == "client-1"


def test_a_pending_member_that_does_not_join_within_its_session_is_forgotten(engine: GroupEngine) -> None:
    required = engine.replies[engine.join()]
    engine.advance(SESSION_MS - 1)
    assert required.member_id in engine.group.pending
    engine.advance(1)
    assert not engine.group.pending
    assert engine.error(engine.join(required.member_id)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_pending_members(engine: GroupEngine) -> None:
    (leader,) = engine.stable_group("a")
    engine.join(client="b")
    rejoin = engine.join(leader)
    engine.advance(SESSION_MS - 1)
    assert rejoin not in engine.replies
    engine.advance(1)
    assert engine.replies[rejoin].generation_id == 2


def test_a_pending_member_cannot_turn_static(engine: GroupEngine) -> None:
    required = engine.replies[engine.join()]
    assert engine.error(engine.join(required.member_id, instance="i")) == ErrorCode.UNKNOWN_SERVER_ERROR


# ---- the join phase


def test_the_leader_alone_learns_who_the_members_are(engine: GroupEngine) -> None:
    a, join_a = engine.enter("a", protocols=offers(range=b"from a"))
    b, join_b = engine.enter("b", protocols=offers(range=b"from b"))
    engine.advance()
    to_leader, to_follower = engine.replies[join_a], engine.replies[join_b]
    assert to_leader.leader == to_follower.leader == a
    assert {m.member_id: m.metadata for m in to_leader.members} == {a: b"from a", b: b"from b"}
    assert to_follower.members == []
    assert (to_follower.generation_id, to_follower.protocol_name, to_follower.protocol_type) == (1, "range", "consumer")
    assert (to_leader.skip_assignment, to_follower.skip_assignment) == (False, False)


def test_the_protocol_most_members_like_best_is_selected(engine: GroupEngine) -> None:
    tickets = [
        engine.enter("a", protocols=offers(range=b"", sticky=b"", own=b""))[1],
        engine.enter("b", protocols=offers(sticky=b"", range=b""))[1],
        engine.enter("c", protocols=offers(sticky=b"", range=b""))[1],
    ]
    engine.advance()
    assert {engine.replies[ticket].protocol_name for ticket in tickets} == {"sticky"}


def test_a_protocol_that_one_member_lacks_is_not_selected(engine: GroupEngine) -> None:
    _, first = engine.enter("a", protocols=offers(sticky=b"", range=b""))
    engine.enter("b", protocols=offers(sticky=b"", range=b""))
    engine.enter("c", protocols=offers(range=b""))
    engine.advance()
    assert engine.replies[first].protocol_name == "range"


def test_a_member_that_does_not_rejoin_in_time_is_removed(engine: GroupEngine) -> None:
    leader, silent = engine.stable_group("a", "b", session_ms=REBALANCE_MS * 2)
    rejoin = engine.join(leader)
    engine.advance(REBALANCE_MS - 1)
    assert rejoin not in engine.replies
    engine.advance(1)
    assert [m.member_id for m in engine.replies[rejoin].members] == [leader]
    assert engine.heartbeat(silent, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_rebalance_timeout_of_the_group_is_that_of_its_slowest_member(engine: GroupEngine) -> None:
    quick, _ = engine.enter("quick", session_ms=1_000_000, rebalance_ms=10_000)
    engine.enter("slow", session_ms=1_000_000, rebalance_ms=500_000)
    engine.advance()
    rejoin = engine.join(quick, protocols=offers(range=b"new"), rebalance_ms=10_000)
    engine.advance(499_999)
    assert rejoin not in engine.replies
    engine.advance(1)
    assert rejoin in engine.replies


def test_version_0_has_its_session_timeout_for_a_rebalance_timeout(engine: GroupEngine) -> None:
    engine.join(version=0, session_ms=7_000, rebalance_ms=-1)
    (member,) = engine.group.members.values()
    assert member.rebalance_timeout_ms == 7_000


def test_a_leader_that_does_not_rejoin_loses_the_lead(engine: GroupEngine) -> None:
    _, follower = engine.stable_group("a", "b", session_ms=REBALANCE_MS * 2)
    rejoin = engine.join(follower, protocols=offers(range=b"new"))
    engine.advance(REBALANCE_MS)
    assert engine.replies[rejoin].leader == follower


def test_a_new_member_whose_join_is_parked_is_given_up_after_five_minutes(engine: GroupEngine) -> None:
    (leader,) = engine.stable_group("a", session_ms=1_800_000, rebalance_ms=1_800_000)
    _, parked = engine.enter("b")
    engine.advance(5 * 60_000)
    assert engine.error(parked) == ErrorCode.UNKNOWN_MEMBER_ID
    assert engine.replies[parked].member_id == ""
    assert list(engine.group.members) == [leader]


def test_a_parked_join_that_is_sent_again_answers_the_first(engine: GroupEngine) -> None:
    leader, _ = engine.stable_group("a", "b")
    first = engine.join(leader)
    second = engine.join(leader)
    assert engine.error(first) == ErrorCode.REBALANCE_IN_PROGRESS
    assert second not in engine.replies
    assert engine.group.awaiting_join_count == 1


def test_a_parked_join_keeps_a_known_member_alive(engine: GroupEngine) -> None:
    leader, follower = engine.stable_group("a", "b")
    rejoin = engine.join(leader)
    for _ in range(4):
        engine.advance(SESSION_MS - 1)
        assert engine.heartbeat(follower, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert rejoin not in engine.replies
    assert leader in engine.group.members


# ---- a known member joins again


def test_a_follower_with_nothing_new_is_told_the_generation(engine: GroupEngine) -> None:
    leader, follower = engine.stable_group("a", "b")
    rejoined = engine.replies[engine.join(follower)]
    assert (rejoined.generation_id, rejoined.leader, rejoined.members) == (1, leader, [])
    assert engine.state is State.STABLE


def test_a_leader_may_rebalance_at_any_time(engine: GroupEngine) -> None:
    leader, _ = engine.stable_group("a", "b")
    assert engine.join(leader) not in engine.replies
    assert engine.state is State.PREPARING_REBALANCE


def test_a_follower_with_new_metadata_starts_a_rebalance(engine: GroupEngine) -> None:
    _, follower = engine.stable_group("a", "b")
    engine.join(follower, protocols=offers(range=subscription("t", "u")))
    assert engine.state is State.PREPARING_REBALANCE


def test_a_new_order_of_protocols_is_new_metadata(engine: GroupEngine) -> None:
    _, follower = engine.stable_group("a", "b", protocols=offers(range=b"", sticky=b""))
    engine.join(follower, protocols=offers(sticky=b"", range=b""))
    assert engine.state is State.PREPARING_REBALANCE


def test_before_the_assignment_a_member_that_missed_its_answer_gets_it_again(engine: GroupEngine) -> None:
    a, join_a = engine.enter("a")
    b, join_b = engine.enter("b")
    engine.advance()
    assert engine.state is State.COMPLETING_REBALANCE
    assert engine.replies[engine.join(a)] == engine.replies[join_a]
    assert engine.replies[engine.join(b)] == engine.replies[join_b]
    assert engine.state is State.COMPLETING_REBALANCE


def test_before_the_assignment_new_metadata_starts_over_and_cancels_the_syncs(engine: GroupEngine) -> None:
    a, _ = engine.enter("a")
    b, _ = engine.enter("b")
    engine.advance()
    parked = engine.sync(b, 1)
    engine.join(a, protocols=offers(range=b"new"))
    assert engine.error(parked) == ErrorCode.REBALANCE_IN_PROGRESS
    assert engine.state is State.PREPARING_REBALANCE


def test_a_member_that_changes_its_timeouts_is_held_to_the_new_ones(engine: GroupEngine) -> None:
    (leader,) = engine.stable_group("a")
    engine.join(leader, session_ms=20_000, rebalance_ms=30_000)
    assert engine.state is State.COMPLETING_REBALANCE
    engine.sync(leader, 2)
    engine.advance(19_999)
    assert engine.state is State.STABLE
    engine.advance(1)
    assert engine.state is State.EMPTY


# ---- the initial rebalance waits for more members (KIP-134)


def delayed() -> GroupEngine:
    return GroupEngine(GroupConfig(initial_rebalance_delay_ms=3_000))


def test_the_first_rebalance_of_a_group_is_delayed() -> None:
    engine = delayed()
    _, parked = engine.enter("a")
    engine.advance(2_999)
    assert parked not in engine.replies
    engine.advance(1)
    assert engine.error(parked) == ErrorCode.NONE


def test_each_wave_of_new_members_extends_the_delay() -> None:
    engine = delayed()
    _, first = engine.enter("a")
    engine.advance(2_000)
    _, second = engine.enter("b")
    engine.advance(3_999)
    assert first not in engine.replies
    engine.advance(1)
    assert engine.replies[first].generation_id == engine.replies[second].generation_id == 1


def test_the_delay_is_extended_no_longer_than_the_rebalance_timeout() -> None:
    engine = delayed()
    _, first = engine.enter("0", rebalance_ms=8_000)
    waited_ms = 0
    while first not in engine.replies:
        engine.advance(1_000)
        waited_ms += 1_000
        if first not in engine.replies:
            engine.enter(str(waited_ms), rebalance_ms=8_000)
    assert waited_ms <= 9_000


def test_a_group_that_was_stable_before_is_not_delayed() -> None:
    engine = delayed()
    a, _ = engine.enter("a")
    engine.advance(3_000)
    engine.sync(a, 1)
    _, parked = engine.enter("b")
    engine.join(a)
    assert engine.replies[parked].generation_id == 2


def test_a_group_whose_members_all_leave_during_the_delay_is_empty_after_it() -> None:
    engine = delayed()
    member_id, parked = engine.enter("a")
    engine.leave(MemberIdentity(member_id=member_id))
    assert engine.error(parked) == ErrorCode.UNKNOWN_MEMBER_ID
    assert engine.state is State.PREPARING_REBALANCE
    engine.advance(3_000)
    assert engine.state is State.EMPTY
    assert engine.group.generation_id == 1


# ---- a group has a limit


def small() -> GroupEngine:
    return GroupEngine(GroupConfig(initial_rebalance_delay_ms=0, group_max_size=2))


def test_a_stable_group_takes_no_more_than_its_limit() -> None:
    engine = small()
    engine.stable_group("a", "b")
    ticket = engine.join(client="c")
    assert engine.error(ticket) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert engine.replies[ticket].member_id == ""


def test_a_full_group_lets_its_members_rejoin() -> None:
    engine = small()
    _, follower = engine.stable_group("a", "b")
    assert engine.error(engine.join(follower)) == ErrorCode.NONE


def test_a_full_group_lets_a_static_member_return() -> None:
    engine = small()
    engine.join(instance="a")
    engine.join(instance="b")
    engine.advance()
    leader, _ = engine.group.members
    engine.sync(leader, 1)
    assert engine.error(engine.join(instance="b")) == ErrorCode.NONE


def test_pending_members_beyond_the_limit_are_turned_away_when_they_join() -> None:
    engine = small()
    ids = [engine.replies[engine.join()].member_id for _ in range(3)]
    tickets = [engine.join(member_id) for member_id in ids]
    engine.advance()
    assert [engine.error(ticket) for ticket in tickets] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]


def test_ids_that_nobody_has_joined_with_are_limited_too() -> None:
    engine = GroupEngine(GroupConfig(pending_members_max=3))
    errors = [engine.error(engine.join()) for _ in range(4)]
    assert errors == [ErrorCode.MEMBER_ID_REQUIRED] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_when_the_limit_was_lowered_the_last_to_rejoin_must_go() -> None:
    large = GroupEngine()
    a, b, c = large.stable_group("a", "b", "c")
    engine = GroupEngine(GroupConfig(group_max_size=2), log=large.log)
    assert engine.state is State.PREPARING_REBALANCE
    first, second = engine.join(a), engine.join(b)
    third = engine.join(c)
    assert engine.error(third) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert engine.replies[first].generation_id == engine.replies[second].generation_id == 2


# ---- answers in every version


@pytest.mark.parametrize("version", range(10))
def test_every_answer_can_be_sent_in_every_version(engine: GroupEngine, version: int) -> None:
    refused = engine.join("stranger-1", version=version)
    if version < 4:
        ticket = engine.join(version=version)
    else:
        _, ticket = engine.enter(version=version)
    engine.advance()
    for answer in (engine.replies[refused], engine.replies[ticket]):
        assert encode_bytes(answer, version)


@pytest.mark.parametrize(("version", "protocol_name"), [(6, ""), (7, None)])
def test_an_error_names_no_protocol(engine: GroupEngine, version: int, protocol_name: str | None) -> None:
    assert engine.replies[engine.join("stranger-1", version=version)].protocol_name == protocol_name


def test_names_that_no_record_can_hold_are_refused() -> None:
    engine, long = GroupEngine(), "x" * 32_768
    assert engine.error(engine.join(group=long)) == ErrorCode.INVALID_GROUP_ID
    assert engine.error(engine.join(instance=long)) == ErrorCode.INVALID_REQUEST
    assert engine.error(engine.join(protocol_type=long)) == ErrorCode.INVALID_REQUEST
    assert engine.error(engine.join(protocols=offers(**{long: b""}))) == ErrorCode.INVALID_REQUEST
    assert engine.commit({("t", 0): 1}, group=long) == [ErrorCode.INVALID_GROUP_ID]
    assert engine.commit_in_transaction(1, {("t", 0): 1}, group=long) == [ErrorCode.INVALID_GROUP_ID]
    assert not engine.machine.groups
