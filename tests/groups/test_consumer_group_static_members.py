"""Static members of consumer groups: they may be away for a session, and come back to what they had (KIP-345)."""

import pytest
from group_engine import GroupEngine

from penstock.groups.consumer.states import ConsumerGroupState
from penstock.protocol.errors import ErrorCode

ALL = {"t": {0, 1, 2, 3, 4, 5}}


@pytest.fixture
def engine() -> GroupEngine:
    engine = GroupEngine()
    engine.start("a", instance="one")
    return engine


def test_a_static_member_that_will_be_back_keeps_its_partitions(engine: GroupEngine) -> None:
    engine.start("b")
    engine.beat("a", 1)
    engine.beat("a", 1, owned={"t": [0, 1, 2]})
    engine.beat("b", 2)
    away = engine.beat("a", -2, instance="one")
    assert (away.error_code, away.member_id, away.member_epoch) == (ErrorCode.NONE, "a", -2)
    assert engine.beat("b", 2).assignment is None
    back = engine.start("a2", instance="one")
    assert (back.member_id, back.member_epoch, engine.given(back)) == ("a2", 2, {"t": {0, 1, 2}})
    assert engine.consumer_group.group_epoch == 2
    assert set(engine.consumer_group.members) == {"a2", "b"}


def test_an_instance_id_is_taken_until_its_holder_says_that_it_is_away(engine: GroupEngine) -> None:
    response = engine.start("a2", instance="one")
    assert response.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert "a" in (response.error_message or "")
    assert not engine.written
    engine.advance(45_000)
    assert engine.given(engine.start("a2", instance="one")) == ALL


def test_a_static_member_that_missed_the_answer_may_join_again(engine: GroupEngine) -> None:
    again = engine.start("a", instance="one")
    assert (again.error_code, engine.given(again)) == (ErrorCode.NONE, ALL)


def test_the_former_self_is_fenced(engine: GroupEngine) -> None:
    engine.beat("a", -2, instance="one")
    engine.start("a2", instance="one")
    assert engine.beat("a", 1, instance="one").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert engine.beat("a", -1, instance="one").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert engine.beat("a", -2, instance="one").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert engine.beat("a", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_instance_id_that_nobody_has_is_unknown(engine: GroupEngine) -> None:
    assert engine.beat("a", 1, instance="two").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert engine.beat("a", -2, instance="two").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_who_is_away_for_longer_than_a_session_is_out(engine: GroupEngine) -> None:
    engine.start("b")
    engine.beat("a", -2, instance="one")
    engine.advance(30_000)
    engine.beat("b", 2)
    engine.advance(15_000)
    assert set(engine.consumer_group.members) == {"b"}
    assert engine.given(engine.beat("b", 2)) == ALL


def test_who_comes_back_with_another_subscription_starts_an_epoch(engine: GroupEngine) -> None:
    engine.beat("a", -2, instance="one")
    back = engine.start("a2", "u", instance="one")
    assert (back.member_epoch, engine.given(back)) == (2, {"u": {0, 1, 2}})


def test_a_static_member_may_leave_for_good(engine: GroupEngine) -> None:
    assert engine.beat("a", -1, instance="one").error_code == ErrorCode.NONE
    assert engine.consumer_group.state is ConsumerGroupState.EMPTY
    assert not engine.consumer_group.static_members


def test_what_was_to_be_let_go_of_is_free_when_its_holder_is_away(engine: GroupEngine) -> None:
    engine.start("b")
    engine.beat("a", 1)
    engine.beat("a", -2, instance="one")
    assert engine.given(engine.beat("b", 2)) == {"t": {3, 4, 5}}
    engine.advance(44_000)
    engine.beat("b", 2)
    back = engine.start("a2", instance="one")
    assert (back.member_epoch, engine.given(back)) == (2, {"t": {0, 1, 2}})


def test_a_replacement_is_the_same_after_a_reload(engine: GroupEngine) -> None:
    engine.beat("a", -2, instance="one")
    engine.reload()
    engine.start("a2", instance="one")
    engine.reload()
    assert engine.beat("a2", 1, instance="one").error_code == ErrorCode.NONE
    assert engine.consumer_group.state is ConsumerGroupState.STABLE
