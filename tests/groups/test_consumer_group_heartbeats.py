"""ConsumerGroupHeartbeat: joining, staying, leaving, and what is refused (KIP-848)."""

from typing import Any

import pytest
from group_engine import GROUP, REBALANCE_MS, GroupEngine

from penstock.groups.config import GroupConfig, GroupSettings
from penstock.groups.consumer.states import ConsumerGroupState
from penstock.protocol.errors import ErrorCode

ALL = {"t": {0, 1, 2, 3, 4, 5}}
FULL: dict[str, Any] = {"topics": ["t"], "owned": {}, "rebalance_ms": REBALANCE_MS}


@pytest.fixture
def engine() -> GroupEngine:
    return GroupEngine()


def error(response: Any) -> ErrorCode:
    return ErrorCode(response.error_code)


# ---- joining


def test_the_first_member_is_given_everything_at_once(engine: GroupEngine) -> None:
    response = engine.start("a")
    assert (response.member_id, response.member_epoch) == ("a", 1)
    assert engine.given(response) == ALL
    assert engine.consumer_group.state is ConsumerGroupState.STABLE


def test_a_member_without_an_id_is_given_one_in_version_0_alone(engine: GroupEngine) -> None:
    response = engine.start("", version=0)
    assert response.member_id == "client-1"
    assert engine.given(response) == ALL
    assert error(engine.start("")) == ErrorCode.INVALID_REQUEST


def test_what_members_subscribe_to_may_not_exist_yet(engine: GroupEngine) -> None:
    assert engine.given(engine.start("a", "later")) == {}
    assert engine.consumer_group.state is ConsumerGroupState.STABLE


def test_a_member_may_subscribe_to_nothing(engine: GroupEngine) -> None:
    response = engine.beat("a", 0, topics=[], owned={}, rebalance_ms=REBALANCE_MS)
    assert (response.member_epoch, engine.given(response)) == (1, {})
    assert engine.given(engine.beat("a", 1, topics=["u"])) == {"u": {0, 1, 2}}


def test_a_member_that_joins_again_is_told_what_it_has(engine: GroupEngine) -> None:
    engine.start("a")
    again = engine.start("a")
    assert (again.member_epoch, engine.given(again)) == (1, ALL)
    assert not engine.written


def test_the_limit_of_members_holds_for_new_ones(engine: GroupEngine) -> None:
    engine = GroupEngine(GroupConfig(consumer_max_size=1))
    engine.start("a")
    assert error(engine.start("b")) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert error(engine.beat("b", 5)) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert error(engine.beat("a", 1)) == ErrorCode.NONE


def test_the_interval_of_heartbeats_may_be_the_groups_own_within_limits(engine: GroupEngine) -> None:
    engine.settings = GroupSettings(consumer_heartbeat_interval_ms=7_000)
    engine.start("a")
    engine.advance(3_000)
    assert engine.beat("a", 1).heartbeat_interval_ms == 7_000
    engine.settings = GroupSettings(consumer_heartbeat_interval_ms=1)
    assert engine.beat("a", 1).heartbeat_interval_ms == 5_000


def test_while_a_group_settles_heartbeats_are_asked_for_more_often(engine: GroupEngine) -> None:
    assert engine.start("a").heartbeat_interval_ms == 500  # others may be about to join
    engine.advance(2_999)
    assert engine.beat("a", 1).heartbeat_interval_ms == 500
    engine.advance(1)
    assert engine.beat("a", 1).heartbeat_interval_ms == 5_000
    engine.start("b")
    assert engine.beat("a", 1).heartbeat_interval_ms == 500
    engine.advance(3_000)
    assert engine.beat("b", 2).heartbeat_interval_ms == 500  # it still waits for what the other holds


# ---- staying


def test_a_heartbeat_that_changes_nothing_writes_and_tells_nothing(engine: GroupEngine) -> None:
    engine.start("a")
    response = engine.beat("a", 1)
    assert (error(response), response.member_epoch, response.assignment) == (ErrorCode.NONE, 1, None)
    assert not engine.written
    engine.beat("a", 1, owned=ALL)
    assert not engine.written


def test_a_full_heartbeat_is_told_everything_though_nothing_changed(engine: GroupEngine) -> None:
    engine.start("a")
    assert engine.given(engine.beat("a", 1, topics=["t"], owned=ALL, rebalance_ms=REBALANCE_MS)) == ALL
    assert not engine.written
    assert engine.beat("a", 1, topics=["t"], owned=ALL).assignment is None


def test_a_subscription_that_grows_is_answered_with_more(engine: GroupEngine) -> None:
    engine.start("a")
    response = engine.beat("a", 1, topics=["t", "u"])
    assert (response.member_epoch, engine.given(response)) == (2, {**ALL, "u": {0, 1, 2}})


def test_the_order_and_repetition_of_topics_mean_nothing(engine: GroupEngine) -> None:
    engine.start("a", "t", "u")
    assert engine.beat("a", 1, topics=["u", "t", "u"]).member_epoch == 1
    assert not engine.written


def test_a_topic_that_is_no_longer_wanted_is_taken_back_in_steps(engine: GroupEngine) -> None:
    engine.start("a", "t", "u")
    told = engine.beat("a", 1, topics=["u"])
    assert (told.member_epoch, engine.given(told)) == (1, {"u": {0, 1, 2}})
    assert engine.consumer_group.state is ConsumerGroupState.RECONCILING
    released = engine.beat("a", 1, owned={"u": [0, 1, 2]})
    assert (released.member_epoch, released.assignment) == (2, None)
    assert engine.consumer_group.state is ConsumerGroupState.STABLE


def test_who_has_let_go_already_need_not_be_asked(engine: GroupEngine) -> None:
    engine.start("a", "t", "u")
    assert engine.beat("a", 1, topics=["u"], owned={"u": [0, 1, 2]}).member_epoch == 2


def test_a_rack_and_a_client_are_remembered_without_a_rebalance(engine: GroupEngine) -> None:
    engine.start("a")
    assert engine.beat("a", 1, rack="r1", client="other").member_epoch == 1
    assert len(engine.written) == 1
    (member,) = engine.describe_consumer().members
    assert (member.rack_id, member.client_id, member.client_host) == ("r1", "other", "/other.host")


def test_the_assignor_that_most_ask_for_is_used(engine: GroupEngine) -> None:
    engine.topics.set("u", 3)
    engine.start("a", "t", "u", assignor="range")
    assert engine.describe_consumer().assignor_name == "range"
    engine.beat("a", 1, assignor="uniform")
    engine.start("b", "t", "u", assignor="range")
    engine.start("c", "t", "u", assignor="range")
    assert engine.describe_consumer().assignor_name == "range"


def test_without_a_wish_the_first_assignor_is_used() -> None:
    engine = GroupEngine(GroupConfig(consumer_assignors=("range", "uniform")))
    engine.start("a")
    assert engine.describe_consumer().assignor_name == "range"


# ---- what is refused


@pytest.mark.parametrize(
    "request_fields",
    [
        {"member_id": "", "epoch": 1},
        {"member_id": " ", "epoch": 1},
        {"member_id": "", "epoch": -1},
        {"member_id": "a", "epoch": 0, **FULL, "group": ""},
        {"member_id": "a", "epoch": 0, **FULL, "instance": ""},
        {"member_id": "a", "epoch": 0, **FULL, "rack": " "},
        {"member_id": "a", "epoch": 0, **FULL, "rebalance_ms": -1},
        {"member_id": "a", "epoch": 0, **FULL, "rebalance_ms": -2},
        {"member_id": "a", "epoch": 0, **FULL, "owned": None},
        {"member_id": "a", "epoch": 0, **FULL, "owned": {"t": [0]}},
        {"member_id": "a", "epoch": 0, **FULL, "topics": None},
        {"member_id": "a", "epoch": 0, **FULL, "group": "g" * 32_768},
        {"member_id": "ä" * 16_384, "epoch": 0, **FULL},
        {"member_id": "a", "epoch": 0, **FULL, "instance": "i" * 32_768},
        {"member_id": "a", "epoch": -2},
        {"member_id": "a", "epoch": -3},
    ],
)
def test_a_request_that_makes_no_sense_is_invalid(engine: GroupEngine, request_fields: dict[str, Any]) -> None:
    engine.start("b")
    response = engine.beat(**request_fields)
    assert error(response) == ErrorCode.INVALID_REQUEST
    assert response.error_message
    assert not engine.written


def test_a_subscription_that_is_too_large_is_invalid() -> None:
    engine = GroupEngine(GroupConfig(member_metadata_max_bytes=100))
    assert error(engine.start("a", *(f"topic-{n}" for n in range(20)))) == ErrorCode.INVALID_REQUEST


def test_an_assignor_must_be_one_of_those_that_are_there(engine: GroupEngine) -> None:
    response = engine.start("a", assignor="best")
    assert error(response) == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert response.error_message == "ServerAssignor best is not supported. Supported assignors: uniform, range."
    assert not engine.machine.groups


def test_a_heartbeat_to_no_group_or_from_no_member_is_refused(engine: GroupEngine) -> None:
    assert error(engine.beat("a", 1)) == ErrorCode.GROUP_ID_NOT_FOUND
    assert error(engine.beat("a", -1)) == ErrorCode.GROUP_ID_NOT_FOUND
    engine.start("a")
    assert error(engine.beat("b", 1)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert error(engine.beat("b", -1)) == ErrorCode.UNKNOWN_MEMBER_ID
    engine.commit({("t", 0): 1}, group="simple")
    assert error(engine.beat("a", 1, group="simple")) == ErrorCode.GROUP_ID_NOT_FOUND


def test_an_epoch_of_the_future_or_the_distant_past_is_fenced(engine: GroupEngine) -> None:
    engine.start("a")
    engine.beat("a", 1, topics=["t", "u"])
    engine.beat("a", 2, topics=["t", "u", "v"])
    assert error(engine.beat("a", 4, owned={})) == ErrorCode.FENCED_MEMBER_EPOCH
    assert error(engine.beat("a", 1, owned={})) == ErrorCode.FENCED_MEMBER_EPOCH


def test_the_previous_epoch_is_good_if_the_answer_may_have_been_lost(engine: GroupEngine) -> None:
    engine.start("a")
    engine.beat("a", 1, topics=["t", "u"])  # nobody hears the answer
    assert error(engine.beat("a", 1)) == ErrorCode.FENCED_MEMBER_EPOCH  # it does not say what it has
    assert error(engine.beat("a", 1, owned={"v": [0]})) == ErrorCode.FENCED_MEMBER_EPOCH
    again = engine.beat("a", 1, topics=["t", "u"], owned=ALL, rebalance_ms=REBALANCE_MS)
    assert (again.member_epoch, engine.given(again)) == (2, {**ALL, "u": {0, 1, 2}})


def test_a_fenced_member_may_begin_again_under_its_id(engine: GroupEngine) -> None:
    engine.start("a")
    assert error(engine.beat("a", 9)) == ErrorCode.FENCED_MEMBER_EPOCH
    assert engine.given(engine.start("a")) == ALL


# ---- leaving


def test_who_leaves_is_out_at_once_and_the_rest_is_shared_with_the_next_heartbeat(engine: GroupEngine) -> None:
    engine.start("a")
    engine.start("b")
    left = engine.beat("a", -1)
    assert (error(left), left.member_id, left.member_epoch) == (ErrorCode.NONE, "a", -1)
    assert engine.consumer_group.state is ConsumerGroupState.ASSIGNING
    assert engine.given(engine.beat("b", 2)) == ALL
    assert engine.consumer_group.group_epoch == 3


def test_a_group_that_all_have_left_is_empty_and_goes_on_from_its_epoch(engine: GroupEngine) -> None:
    engine.start("a")
    engine.beat("a", -1)
    assert engine.consumer_group.state is ConsumerGroupState.EMPTY
    assert engine.start("b").member_epoch == 3


def test_groups_do_not_meet(engine: GroupEngine) -> None:
    assert engine.given(engine.start("a", group="one")) == ALL
    assert engine.given(engine.start("a", group="two")) == ALL
    assert GROUP not in engine.machine.groups
