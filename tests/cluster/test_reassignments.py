from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster.model import NO_LEADER, PartitionState
from penstock.cluster.reassignments import begin, cancel, check_target, complete, in_progress, original, target
from penstock.protocol.errors import ApiError, ErrorCode

STATE = PartitionState(leader=1, leader_epoch=5, replicas=(1, 2, 3), isr=(1, 2, 3))


def test_the_target_comes_first_and_in_its_order() -> None:
    began = begin(STATE, (4, 2, 5))
    assert began == replace(STATE, replicas=(4, 2, 5, 1, 3), adding=(4, 5), removing=(1, 3))
    assert in_progress(began)
    assert target(began) == (4, 2, 5)
    assert original(began) == (2, 1, 3)


def test_another_order_is_there_at_once() -> None:
    began = begin(STATE, (3, 1, 2))
    assert began == replace(STATE, replicas=(3, 1, 2))
    assert not in_progress(began)


def test_asking_for_what_is_there_changes_nothing() -> None:
    assert begin(STATE, (1, 2, 3)) is STATE
    began = begin(STATE, (4, 1))
    assert begin(began, (4, 1)) is began


def test_another_target_takes_the_place_of_the_first() -> None:
    again = begin(begin(STATE, (4, 1, 2)), (5, 1, 2))
    assert (again.replicas, again.adding, again.removing) == ((5, 1, 2, 3), (5,), (3,))
    assert again.leader_epoch == 6, "the one that was to be added and is not any more has gone"


def test_going_back_is_to_cancel() -> None:
    back = begin(begin(STATE, (4, 1, 2)), (1, 2, 3))
    assert back == replace(STATE, leader_epoch=6)


def test_what_is_cancelled_leaves_no_trace() -> None:
    state = begin(STATE, (4, 1, 2))
    assert cancel(replace(state, isr=(1, 2, 3, 4))) == replace(STATE, leader_epoch=6)


def test_a_leader_that_is_not_to_be_added_any_more_leads_no_more() -> None:
    state = replace(begin(STATE, (4, 1, 2)), leader=4, isr=(4, 1))
    assert cancel(state) == replace(STATE, leader=NO_LEADER, leader_epoch=6, isr=(1,))


def test_nothing_to_cancel_is_an_error() -> None:
    with pytest.raises(ApiError) as caught:
        cancel(STATE)
    assert caught.value.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


@pytest.mark.parametrize("eligible", [(), (1,)])
def test_the_only_replica_in_sync_can_not_be_given_up(eligible: tuple[int, ...]) -> None:
    state = replace(begin(STATE, (4,)), leader=4, isr=(4,), eligible=eligible)
    for change in (cancel, lambda state: begin(state, (5,))):
        with pytest.raises(ApiError) as caught:
            change(state)
        assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_partition_that_is_offline_can_be_given_back_to_those_who_hold_it() -> None:
    state = replace(begin(STATE, (4,)), leader=NO_LEADER, isr=(), eligible=(1,), last_leader=1)
    assert cancel(state) == replace(STATE, leader=NO_LEADER, leader_epoch=6, isr=(), eligible=(1,), last_leader=1)


def test_it_is_complete_when_the_whole_target_is_in_sync() -> None:
    state = begin(STATE, (4, 2))
    assert complete(state) is state
    done = complete(replace(state, isr=(4, 2, 3)))
    assert done == PartitionState(leader=NO_LEADER, leader_epoch=6, replicas=(4, 2), isr=(4, 2))


def test_what_only_adds_keeps_leader_and_epoch() -> None:
    state = begin(STATE, (1, 2, 3, 4))
    assert complete(replace(state, isr=(1, 2, 3, 4))) == replace(STATE, replicas=(1, 2, 3, 4), isr=(1, 2, 3, 4))


@pytest.mark.parametrize(
    ("wanted", "word"),
    [
        ((), "an empty replica list"),
        ((1, 2, 1), "the broker 1 more than once"),
        ((1, 9), "broker 9, but no such broker is registered"),
        ((-1, 2), "broker -1, but no such broker is registered"),
    ],
)
def test_a_target_that_makes_no_sense_is_refused(wanted: tuple[int, ...], word: str) -> None:
    with pytest.raises(ApiError) as caught:
        check_target(STATE, wanted, {1, 2, 3, 4})
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert word in (caught.value.message or "")


def test_a_replica_that_is_down_may_stay_one() -> None:
    check_target(STATE, (3, 2, 4), {1, 2, 4})


def test_the_number_of_replicas_stays_where_that_was_asked_for() -> None:
    check_target(STATE, (1, 2), {1, 2, 3})
    check_target(begin(STATE, (4, 5)), (1, 2), {1, 2, 4, 5}, factor_may_change=False)
    with pytest.raises(ApiError) as caught:
        check_target(STATE, (1, 2), {1, 2, 3}, factor_may_change=False)
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


TARGETS = st.lists(st.integers(1, 6), unique=True, min_size=1, max_size=4)


@settings(deadline=None)
@given(st.lists(TARGETS, min_size=1, max_size=5))
def test_however_often_the_mind_is_changed_it_ends_where_it_was_wanted_or_where_it_began(
    targets: list[list[int]],
) -> None:
    state = STATE
    for wanted in targets:
        state = begin(state, wanted)
        assert target(state) == tuple(wanted)
        assert {*original(state)} == {1, 2, 3} or not in_progress(state)
        if not in_progress(state):
            return
    done = complete(replace(state, isr=state.replicas))
    assert done.replicas == tuple(targets[-1])
    assert set(cancel(state).replicas) == {1, 2, 3}
