"""A machine made again from the log is the one that wrote it, as far as it is durable."""

import pytest
from group_engine import REBALANCE_MS, SESSION_MS, GroupEngine, offers, subscription

from penstock.groups.states import State
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.leave_group import MemberIdentity


@pytest.fixture
def engine() -> GroupEngine:
    return GroupEngine()


def test_members_go_on_as_if_nothing_had_happened(engine: GroupEngine) -> None:
    leader, follower = engine.stable_group("a", "b")
    before = engine.describe()
    engine.reload()
    assert engine.describe() == before
    assert engine.heartbeat(leader, 1) == engine.heartbeat(follower, 1) == ErrorCode.NONE
    assert engine.replies[engine.sync(follower, 1)].assignment == follower.encode()
    assert engine.commit({("t", 0): 10}, leader, 1) == [ErrorCode.NONE]


def test_members_have_a_full_session_from_the_end_of_the_load(engine: GroupEngine) -> None:
    leader, _ = engine.stable_group("a", "b")
    engine.now_ms += 100 * SESSION_MS
    engine.reload()
    engine.advance(SESSION_MS - 1)
    assert engine.heartbeat(leader, 1) == ErrorCode.NONE
    engine.advance(1)
    assert list(engine.group.members) == [leader]


def test_a_rebalance_that_was_under_way_is_forgotten(engine: GroupEngine) -> None:
    leader, follower = engine.stable_group("a", "b")
    engine.join(leader)
    engine.join(follower)
    assert engine.group.generation_id == 2
    engine.reload()
    assert (engine.state, engine.group.generation_id) == (State.STABLE, 1)
    assert engine.heartbeat(leader, 2) == ErrorCode.ILLEGAL_GENERATION


def test_pending_members_are_forgotten(engine: GroupEngine) -> None:
    pending = engine.replies[engine.join()].member_id
    engine.reload()
    assert engine.error(engine.join(pending)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_static_members_are_still_static(engine: GroupEngine) -> None:
    ticket = engine.join(instance="one")
    engine.advance()
    member = engine.replies[ticket].member_id
    engine.sync(member, 1, {member: b"all"})
    engine.reload()
    returned = engine.replies[engine.join(instance="one")]
    assert (returned.generation_id, returned.skip_assignment) == (1, True)
    assert engine.replies[engine.sync(returned.member_id, 1)].assignment == b"all"
    assert engine.heartbeat(member, 1, instance="one") == ErrorCode.FENCED_INSTANCE_ID


def test_the_subscription_is_still_known(engine: GroupEngine) -> None:
    (member,) = engine.stable_group("a", protocols=offers(range=subscription("t")))
    engine.commit({("t", 0): 10, ("u", 0): 20}, member, 1)
    engine.reload()
    engine.delete_offsets(("t", 0), ("u", 0))
    assert engine.fetch() == {("t", 0): 10}


def test_the_next_generation_follows_the_last_of_the_log(engine: GroupEngine) -> None:
    (member,) = engine.stable_group("a")
    engine.leave(MemberIdentity(member_id=member))
    engine.reload()
    assert engine.group.generation_id == 2
    _, ticket = engine.enter("b")
    engine.advance()
    assert engine.replies[ticket].generation_id == 3


def test_the_last_record_of_a_group_counts(engine: GroupEngine) -> None:
    leader, follower = engine.stable_group("a", "b")
    engine.leave(MemberIdentity(member_id=leader))
    engine.join(follower)
    engine.sync(follower, 2, {follower: b"all"})
    engine.reload()
    assert list(engine.group.members) == [follower]
    assert engine.group.leader_id == follower
    assert engine.group.generation_id == 2


def test_rejoining_after_a_reload_with_more_protocols_than_were_kept_rebalances(engine: GroupEngine) -> None:
    both = offers(range=subscription("t"), sticky=subscription("t"))
    leader, follower = engine.stable_group("a", "b", protocols=both)
    engine.reload()
    second = engine.join(follower, protocols=both)
    first = engine.join(leader, protocols=both)
    assert engine.replies[first].generation_id == engine.replies[second].generation_id == 2


def test_a_group_deleted_in_the_log_is_gone(engine: GroupEngine) -> None:
    engine.stable_group("a")
    engine.advance(SESSION_MS)
    engine.delete()
    engine.commit({("t", 0): 5})
    engine.reload()
    assert engine.fetch() == {("t", 0): 5}
    assert engine.describe().protocol_type == ""


def test_reading_the_log_twice_over_changes_nothing(engine: GroupEngine) -> None:
    engine.stable_group("a", "b")
    engine.commit({("t", 0): 5}, group="simple")
    twice = GroupEngine(log=engine.log + engine.log)
    assert twice.describe() == engine.describe()
    assert twice.fetch(group="simple") == {("t", 0): 5}


def test_a_loaded_group_can_rebalance_by_the_clock(engine: GroupEngine) -> None:
    leader, _ = engine.stable_group("a", "b", session_ms=REBALANCE_MS * 2)
    engine.reload()
    rejoin = engine.join(leader)
    engine.advance(REBALANCE_MS)
    assert [m.member_id for m in engine.replies[rejoin].members] == [leader]
