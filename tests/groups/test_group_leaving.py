import pytest
from group_engine import GroupEngine

from penstock.groups.records import GroupStored, read_record
from penstock.groups.states import State
from penstock.protocol.codec import encode_bytes
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.leave_group import MemberIdentity


@pytest.fixture
def engine() -> GroupEngine:
    return GroupEngine()


def by_id(member_id: str, instance: str | None = None) -> MemberIdentity:
    return MemberIdentity(member_id=member_id, group_instance_id=instance, reason="done")


def by_instance(instance: str) -> MemberIdentity:
    return MemberIdentity(member_id="", group_instance_id=instance)


def errors(response: object) -> list[ErrorCode]:
    assert response.error_code == ErrorCode.NONE
    return [ErrorCode(member.error_code) for member in response.members]


def test_who_leaves_starts_a_rebalance_of_the_rest(engine: GroupEngine) -> None:
    leader, follower = engine.stable_group("a", "b")
    assert errors(engine.leave(by_id(leader))) == [ErrorCode.NONE]
    assert engine.state is State.PREPARING_REBALANCE
    assert engine.group.leader_id == follower
    assert engine.heartbeat(leader, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_when_the_last_member_leaves_the_log_says_so(engine: GroupEngine) -> None:
    (member,) = engine.stable_group("a")
    engine.now_ms = 7_000
    engine.leave(by_id(member))
    (record,) = engine.written
    stored = read_record(record)
    assert isinstance(stored, GroupStored)
    assert stored.value is not None
    assert (stored.value.generation, stored.value.members, stored.value.leader) == (2, [], None)
    assert (stored.value.protocol, stored.value.protocol_type) == (None, "consumer")
    assert stored.value.current_state_timestamp == 7_000
    assert engine.state is State.EMPTY
    assert engine.machine.next_deadline_ms() == engine.config.offsets_retention_check_interval_ms


def test_many_leave_at_once_and_rebalance_once(engine: GroupEngine) -> None:
    a, b, c = engine.stable_group("a", "b", "c")
    response = engine.leave(by_id(a), by_id("stranger"), by_id(b))
    assert errors(response) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert [m.member_id for m in response.members] == [a, "stranger", b]
    assert list(engine.group.members) == [c]


def test_if_nobody_known_leaves_nothing_happens(engine: GroupEngine) -> None:
    engine.stable_group("a")
    assert errors(engine.leave(by_id("stranger"))) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert engine.state is State.STABLE


def test_a_group_must_have_an_id(engine: GroupEngine) -> None:
    assert engine.leave(by_id("m"), group="").error_code == ErrorCode.INVALID_GROUP_ID


def test_a_group_that_does_not_exist_knows_no_member(engine: GroupEngine) -> None:
    assert errors(engine.leave(by_id("m"), by_instance("i"))) == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


def test_an_administrator_removes_a_static_member_by_its_instance_id(engine: GroupEngine) -> None:
    ticket = engine.join(instance="one")
    engine.advance()
    engine.sync(engine.replies[ticket].member_id, 1)
    response = engine.leave(by_instance("two"), by_instance("one"))
    assert errors(response) == [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert [m.group_instance_id for m in response.members] == ["two", "one"]
    assert engine.state is State.EMPTY


def test_a_dynamic_member_must_be_named_by_its_id(engine: GroupEngine) -> None:
    engine.stable_group("a")
    assert errors(engine.leave(MemberIdentity(member_id=""))) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_static_member_that_was_replaced_is_fenced(engine: GroupEngine) -> None:
    ticket = engine.join(instance="one")
    engine.advance()
    old = engine.replies[ticket].member_id
    engine.sync(old, 1)
    engine.join(instance="one")
    assert errors(engine.leave(by_id(old, "one"))) == [ErrorCode.FENCED_INSTANCE_ID]


def test_a_pending_member_may_leave(engine: GroupEngine) -> None:
    (leader,) = engine.stable_group("a")
    pending = engine.replies[engine.join(client="b")].member_id
    rejoin = engine.join(leader)
    assert rejoin not in engine.replies
    assert errors(engine.leave(by_id(pending))) == [ErrorCode.NONE]
    assert engine.replies[rejoin].generation_id == 2


def test_a_pending_member_of_an_empty_group_may_leave(engine: GroupEngine) -> None:
    pending = engine.replies[engine.join()].member_id
    assert errors(engine.leave(by_id(pending))) == [ErrorCode.NONE]
    assert engine.state is State.EMPTY
    assert engine.written == []


def test_the_join_that_a_leaving_member_left_parked_is_answered(engine: GroupEngine) -> None:
    leader, _ = engine.stable_group("a", "b")
    parked = engine.join(leader)
    engine.leave(by_id(leader))
    assert engine.error(parked) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_sync_that_a_leaving_member_left_parked_is_answered(engine: GroupEngine) -> None:
    engine.enter("a")
    follower, _ = engine.enter("b")
    engine.advance()
    parked = engine.sync(follower, 1)
    engine.leave(by_id(follower))
    assert engine.error(parked) == ErrorCode.UNKNOWN_MEMBER_ID
    assert engine.state is State.PREPARING_REBALANCE


def test_a_rebalance_ends_when_the_one_it_waits_for_leaves(engine: GroupEngine) -> None:
    leader, follower = engine.stable_group("a", "b")
    rejoin = engine.join(leader)
    engine.leave(by_id(follower))
    assert engine.replies[rejoin].generation_id == 2


@pytest.mark.parametrize("version", [0, 1, 2])
def test_before_version_3_the_error_of_the_one_member_is_that_of_the_answer(engine: GroupEngine, version: int) -> None:
    (member,) = engine.stable_group("a")
    refused = engine.leave(by_id("stranger"), version=version)
    assert (refused.error_code, refused.members) == (ErrorCode.UNKNOWN_MEMBER_ID, [])
    assert engine.leave(by_id(member), version=version).error_code == ErrorCode.NONE
    assert engine.state is State.EMPTY


@pytest.mark.parametrize("version", range(6))
def test_every_answer_can_be_sent_in_every_version(engine: GroupEngine, version: int) -> None:
    assert encode_bytes(engine.leave(by_id("m"), version=version), version)
