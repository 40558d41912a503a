"""How members get from one assignment to the next: nothing is given to one before the other has let go (KIP-848)."""

import pytest
from group_engine import REBALANCE_MS, GroupEngine

from penstock.groups.consumer.states import ConsumerGroupState, MemberState
from penstock.protocol.errors import ErrorCode

LOWER, UPPER = {"t": {0, 1, 2}}, {"t": {3, 4, 5}}


@pytest.fixture
def engine() -> GroupEngine:
    return GroupEngine()


def state_of(engine: GroupEngine, member_id: str) -> MemberState:
    return engine.consumer_group.members[member_id].state


def test_a_partition_is_not_given_away_before_its_holder_says_that_it_let_go(engine: GroupEngine) -> None:
    engine.start("a")
    joined = engine.start("b")
    assert (joined.member_epoch, engine.given(joined)) == (2, {})
    assert state_of(engine, "b") is MemberState.UNRELEASED_PARTITIONS

    told = engine.beat("a", 1)
    assert (told.member_epoch, engine.given(told)) == (1, LOWER)
    assert state_of(engine, "a") is MemberState.UNREVOKED_PARTITIONS
    assert engine.beat("b", 2).assignment is None

    assert engine.beat("a", 1).assignment is None  # it does not say what it has, so it may have all of it
    assert engine.beat("a", 1, owned={"t": [0, 1, 2, 3]}).member_epoch == 1
    assert engine.beat("b", 2).assignment is None

    assert engine.beat("a", 1, owned=LOWER).member_epoch == 2
    assert engine.given(engine.beat("b", 2)) == UPPER
    assert engine.consumer_group.state is ConsumerGroupState.STABLE


def test_what_is_free_is_given_while_the_rest_is_waited_for(engine: GroupEngine) -> None:
    engine.start("a")
    engine.start("b")
    engine.topics.set("t", 8)
    engine.beat("b", 2)  # finds out that there is more
    target = engine.consumer_group.target_of("b")
    has = engine.consumer_group.members["b"].assigned
    assert has
    assert all(partitions <= target[topic] for topic, partitions in has.items())
    assert not any({0, 1, 2, 3, 4, 5} & partitions for partitions in has.values())
    assert state_of(engine, "b") is MemberState.UNRELEASED_PARTITIONS


def test_what_a_member_that_left_was_about_to_let_go_of_is_free(engine: GroupEngine) -> None:
    engine.start("a")
    engine.start("b")
    engine.beat("a", 1)
    engine.beat("a", -1)
    response = engine.beat("b", 2)
    assert (response.member_epoch, engine.given(response)) == (3, {"t": {0, 1, 2, 3, 4, 5}})


def test_a_member_catches_up_with_all_that_changed_while_it_revoked(engine: GroupEngine) -> None:
    engine.start("a")
    engine.start("b")
    engine.beat("a", 1)
    engine.start("c")
    response = engine.beat("a", 1, owned=LOWER)
    assert response.member_epoch == 1  # there is more to let go of: the third member's share
    assert len((engine.given(response) or {})["t"]) == 2
    done = engine.beat("a", 1, owned=engine.given(response))
    assert done.member_epoch == 3


def test_a_partition_may_come_back_to_who_was_about_to_lose_it(engine: GroupEngine) -> None:
    engine.start("a")
    engine.start("b")
    engine.beat("a", 1)
    engine.beat("b", -1)
    assert engine.beat("a", 1).member_epoch == 1
    response = engine.beat("a", 1, owned=LOWER)
    assert (response.member_epoch, engine.given(response)) == (3, {"t": {0, 1, 2, 3, 4, 5}})


def test_a_member_that_does_not_let_go_in_time_is_out(engine: GroupEngine) -> None:
    engine.start("a", rebalance_ms=20_000)
    engine.start("b")
    engine.beat("a", 1)
    for _ in range(3):
        engine.advance(5_000)
        assert engine.beat("a", 1).error_code == ErrorCode.NONE
        engine.beat("b", 2)
    engine.advance(4_999)
    assert "a" in engine.consumer_group.members
    engine.advance(1)
    assert engine.beat("a", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert engine.given(engine.beat("b", 2)) == {"t": {0, 1, 2, 3, 4, 5}}


def test_who_let_go_is_not_timed_any_more(engine: GroupEngine) -> None:
    engine.start("a", rebalance_ms=20_000)
    engine.start("b")
    engine.beat("a", 1)
    engine.beat("a", 1, owned=LOWER)
    for _ in range(8):
        engine.advance(5_000)
        assert engine.beat("a", 2).error_code == engine.beat("b", 2).error_code == ErrorCode.NONE


def test_a_silent_member_is_out_when_its_session_ends(engine: GroupEngine) -> None:
    engine.start("a")
    engine.start("b")
    engine.advance(30_000)
    engine.beat("b", 2)
    engine.advance(14_999)
    assert set(engine.consumer_group.members) == {"a", "b"}
    engine.advance(1)
    assert set(engine.consumer_group.members) == {"b"}
    assert engine.given(engine.beat("b", 2)) == {"t": {0, 1, 2, 3, 4, 5}}


def test_members_that_fall_silent_together_are_out_in_one_epoch(engine: GroupEngine) -> None:
    for member in ("a", "b", "c", "d"):
        engine.start(member)
    engine.advance(30_000)
    engine.beat("d", 4)
    epoch = engine.consumer_group.group_epoch
    engine.advance(20_000)
    assert set(engine.consumer_group.members) == {"d"}
    assert engine.consumer_group.group_epoch == epoch + 1


def test_a_target_is_worked_out_once_for_an_epoch_and_only_what_changed_is_written(engine: GroupEngine) -> None:
    engine.start("a")
    engine.start("b")
    engine.beat("a", 1)
    engine.beat("a", 1, owned=LOWER)
    engine.beat("b", 2)
    for _ in range(3):
        engine.beat("a", 2)
        engine.beat("b", 2)
        assert not engine.written


def test_a_new_partition_of_a_topic_is_assigned_with_the_next_heartbeat(engine: GroupEngine) -> None:
    engine.start("a")
    engine.topics.set("t", 7)
    engine.topics_changed()
    response = engine.beat("a", 1)
    assert (response.member_epoch, engine.given(response)) == (2, {"t": {0, 1, 2, 3, 4, 5, 6}})


def test_a_change_of_topics_that_nobody_reads_changes_nothing(engine: GroupEngine) -> None:
    engine.start("a")
    engine.topics.set("u", 9)
    engine.topics_changed()
    assert engine.beat("a", 1).member_epoch == 1
    assert not engine.written


def test_a_topic_that_is_deleted_is_let_go_of_and_its_next_life_is_another_topic(engine: GroupEngine) -> None:
    engine.start("a", "t", "u")
    engine.topics.remove("u")
    told = engine.beat("a", 1)
    assert (told.member_epoch, engine.given(told)) == (1, {"t": {0, 1, 2, 3, 4, 5}})
    assert engine.beat("a", 1, owned={"t": range(6)}).member_epoch == 2
    engine.topics.set("u", 1, life="2")
    assert engine.given(engine.beat("a", 2)) == {"t": {0, 1, 2, 3, 4, 5}, "u2": {0}}


def test_a_topic_that_is_made_again_unseen_is_still_another(engine: GroupEngine) -> None:
    engine.start("a", "u")
    engine.topics.set("u", 3, life="2")
    assert engine.given(engine.beat("a", 1)) == {}
    response = engine.beat("a", 1, owned={})
    assert engine.given(response) == {"u2": {0, 1, 2}}


def test_a_change_of_racks_is_a_change(engine: GroupEngine) -> None:
    engine.start("a")
    engine.topics.set("t", 6, racks=tuple(frozenset({"r"}) for _ in range(6)))
    assert engine.beat("a", 1).member_epoch == 2


def test_members_with_different_subscriptions_get_only_what_they_want(engine: GroupEngine) -> None:
    engine.start("a", "t")
    engine.start("b", "u")
    assert engine.given(engine.beat("b", 2, topics=["u"], owned={}, rebalance_ms=REBALANCE_MS)) == {"u": {0, 1, 2}}
    assert engine.beat("a", 1).member_epoch == 2
