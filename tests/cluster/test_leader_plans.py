from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.elections import settle
from penstock.cluster.leader_plans import Election, elected, reassigned
from penstock.cluster.model import NO_LEADER, BrokerState, PartitionState
from penstock.cluster.reassignments import in_progress, target
from penstock.protocol.errors import ApiError, ErrorCode

STATE = PartitionState(leader=2, leader_epoch=5, replicas=(1, 2, 3), isr=(1, 2, 3))


def brokers(*alive: int, stopping: Sequence[int] = ()) -> dict[int, BrokerState]:
    return {node_id: BrokerState(node_id, (), stopping=node_id in stopping) for node_id in alive}


def refusal(state: PartitionState, election: Election, alive: dict[int, BrokerState]) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        elected(state, election, alive, 1)
    return caught.value.code


# ---- preferred leaders


def test_the_first_replica_takes_over_when_it_is_asked_for() -> None:
    after = elected(STATE, Election.PREFERRED, brokers(1, 2, 3), 1)
    assert after == replace(STATE, leader=1, leader_epoch=6)


def test_who_leads_already_need_not_be_elected() -> None:
    assert refusal(replace(STATE, leader=1), Election.PREFERRED, brokers(1, 2, 3)) is ErrorCode.ELECTION_NOT_NEEDED


@pytest.mark.parametrize(
    ("state", "alive"),
    [
        (STATE, brokers(2, 3)),
        (STATE, brokers(1, 2, 3, stopping=[1])),
        (replace(STATE, isr=(2, 3)), brokers(1, 2, 3)),
        (replace(STATE, leader=NO_LEADER, isr=(), eligible=(2,), last_leader=2), brokers(1, 2)),
    ],
)
def test_a_first_replica_that_can_not_lead_is_not_elected(state: PartitionState, alive: dict[int, BrokerState]) -> None:
    assert refusal(state, Election.PREFERRED, alive) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_an_eligible_first_replica_leads_where_nobody_does() -> None:
    state = replace(STATE, leader=NO_LEADER, isr=(), eligible=(1, 2), last_leader=2)
    after = elected(state, Election.PREFERRED, brokers(1), 2)
    assert (after.leader, after.isr, after.leader_epoch) == (1, (1,), 6)


# ---- unclean elections


def test_a_partition_that_is_led_needs_no_unclean_election() -> None:
    assert refusal(STATE, Election.UNCLEAN, brokers(2)) is ErrorCode.ELECTION_NOT_NEEDED


def test_without_anyone_alive_nobody_can_be_elected() -> None:
    state = replace(STATE, leader=NO_LEADER, isr=(), eligible=(2,), last_leader=2)
    for alive in (brokers(), brokers(9), brokers(1, stopping=[1])):
        assert refusal(state, Election.UNCLEAN, alive) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_an_unclean_election_takes_whoever_lives() -> None:
    state = replace(STATE, leader=NO_LEADER, isr=(), eligible=(2,), last_leader=2)
    after = elected(state, Election.UNCLEAN, brokers(3), 2)
    assert (after.leader, after.isr, after.eligible, after.leader_epoch) == (3, (3,), (), 6)


def test_an_unclean_election_prefers_who_lacks_nothing() -> None:
    state = replace(STATE, leader=NO_LEADER, isr=(), eligible=(2,), last_leader=2)
    assert elected(state, Election.UNCLEAN, brokers(1, 2, 3), 2).leader == 2
    died = replace(STATE, isr=(2, 3))
    assert elected(died, Election.UNCLEAN, brokers(1, 3), 1).leader == 3, "before the controller has seen the death"


# ---- other replicas


def test_new_replicas_are_added_and_old_ones_go_when_those_are_in_sync() -> None:
    alive = brokers(1, 2, 3, 4)
    after = reassigned(STATE, (4, 2, 3), alive, 1)
    assert after == replace(STATE, replicas=(4, 2, 3, 1), adding=(4,), removing=(1,))
    done = settle(replace(after, isr=(1, 2, 3, 4)), alive, 1)
    assert (done.replicas, done.isr, in_progress(done)) == ((4, 2, 3), (2, 3, 4), False)


def test_fewer_replicas_are_there_at_once() -> None:
    after = reassigned(STATE, (3, 1), brokers(1, 2, 3), 1)
    assert (after.replicas, after.isr, after.leader, in_progress(after)) == ((3, 1), (1, 3), 3, False)
    assert after.leader_epoch == 6


def test_asking_for_what_is_there_changes_nothing() -> None:
    assert reassigned(STATE, (1, 2, 3), brokers(1, 2, 3), 1) is STATE


def test_a_reassignment_is_taken_back() -> None:
    alive = brokers(1, 2, 3, 4)
    began = reassigned(STATE, (4, 2, 3), alive, 1)
    after = reassigned(began, None, alive, 1)
    assert (after.replicas, after.adding, after.removing) == ((2, 3, 1), (), ())
    assert after.leader == 2


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, -1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_what_can_not_be_is_refused(wanted: tuple[int, ...] | None, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as caught:
        reassigned(STATE, wanted, brokers(1, 2, 3), 1, factor_may_change=False)
    assert caught.value.code is code


def test_the_last_living_holder_of_what_is_committed_is_not_given_up() -> None:
    """Broker 1 is down, which the controller has not seen yet: what only it and the new replica have would be lost."""
    alive = brokers(2, 3, 4)
    state = replace(STATE, leader=4, replicas=(4, 2, 3, 1), isr=(1, 4), adding=(4,), removing=(1,))
    with pytest.raises(ApiError) as caught:
        reassigned(state, None, alive, 1)
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    with pytest.raises(ApiError) as caught:
        reassigned(state, (2, 3), alive, 1)
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


NODES = st.integers(1, 5)


@st.composite
def states(draw: st.DrawFn) -> PartitionState:
    """Also such that are on their way to other replicas."""
    replicas = draw(st.lists(NODES, min_size=1, max_size=4, unique=True))
    adding = draw(st.lists(NODES.filter(lambda node: node not in replicas), max_size=2, unique=True))
    removing = draw(st.lists(st.sampled_from(replicas), max_size=len(replicas) - 1, unique=True)) if adding else []
    isr = draw(st.lists(st.sampled_from([*adding, *replicas]), min_size=1, unique=True))
    return PartitionState(isr[0], 5, (*adding, *replicas), tuple(isr), (), tuple(adding), tuple(removing))


@given(
    state=states(),
    wanted=st.lists(NODES, min_size=1, max_size=4, unique=True) | st.none(),
    alive=st.sets(NODES),
    stopping=st.sets(NODES),
    min_insync=st.integers(1, 3),
)
def test_no_reassignment_loses_all_who_hold_what_is_committed(
    state: PartitionState, wanted: list[int] | None, alive: set[int], stopping: set[int], min_insync: int
) -> None:
    living = brokers(*alive, stopping=list(stopping))
    try:
        after = reassigned(state, wanted, living, min_insync)
    except ApiError:
        return
    before, holders = set(state.isr), {*after.isr, *after.eligible}
    if wanted is not None:
        assert set(target(after)) == set(wanted)
    assert holders, "someone is left who holds it"
    assert holders <= before, "and nobody else counts as one"
    if before & alive:
        assert holders & alive, "someone who lives, if there was one"
    assert after.leader == NO_LEADER or after.leader in after.isr
    assert after.leader_epoch > state.leader_epoch or after.leader == state.leader
