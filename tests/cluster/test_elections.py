from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster import elections
from penstock.cluster.elections import settle
from penstock.cluster.model import NO_LEADER, BrokerState, PartitionState, TopicState
from penstock.cluster.reassignments import in_progress, target
from tests.machine import slowness


def partition(leader: int, isr: tuple[int, ...], eligible: tuple[int, ...] = (), **more: object) -> PartitionState:
    state = PartitionState(leader, 5, (1, 2, 3), isr, eligible)
    return replace(state, **more)


def alive(*ids: int, stopping: tuple[int, ...] = ()) -> dict[int, BrokerState]:
    return {node_id: BrokerState(node_id, (), stopping=node_id in stopping) for node_id in (*ids, *stopping)}


def outcome(state: PartitionState) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    return state.leader, state.leader_epoch, state.isr, state.eligible


# ---- settling


def test_nothing_changes_where_all_are_well() -> None:
    state = partition(2, (1, 2, 3))
    assert settle(state, alive(1, 2, 3), 2) is state


def test_a_dead_follower_leaves_the_isr_and_the_leader_stays() -> None:
    assert outcome(settle(partition(1, (1, 2, 3)), alive(1, 2), 2)) == (1, 5, (1, 2), ())


def test_the_first_replica_in_sync_follows_a_dead_leader() -> None:
    assert outcome(settle(partition(1, (3, 2, 1)), alive(2, 3), 2)) == (2, 6, (3, 2), ())


def test_a_replica_that_is_not_in_sync_does_not_lead() -> None:
    assert outcome(settle(partition(1, (1, 3)), alive(2, 3), 1)) == (3, 6, (3,), ())


def test_who_dies_when_too_few_are_left_stays_eligible() -> None:
    assert outcome(settle(partition(1, (1, 2)), alive(1), 2)) == (1, 5, (1,), (2,))


def test_who_dies_when_enough_are_left_is_not_eligible() -> None:
    assert outcome(settle(partition(1, (1, 2)), alive(1), 1)) == (1, 5, (1,), ())


def test_without_anyone_alive_nobody_leads_and_the_last_are_eligible() -> None:
    settled = settle(partition(1, (1, 2)), {}, 1)
    assert outcome(settled) == (NO_LEADER, 6, (), (1, 2))
    assert settled.last_leader == 1
    assert settle(settled, alive(3), 1) is settled


def test_who_was_eligible_leads_when_it_comes_back() -> None:
    state = partition(NO_LEADER, (), (2, 3), last_leader=2)
    settled = settle(state, alive(1, 3), 2)
    assert outcome(settled) == (3, 6, (3,), (2,))
    assert settled.last_leader == NO_LEADER


def test_nobody_stays_eligible_when_the_leader_may_commit_alone() -> None:
    assert outcome(settle(partition(NO_LEADER, (), (2, 3)), alive(3), 1)) == (3, 6, (3,), ())
    assert outcome(settle(partition(1, (1,), (2,)), alive(1), 1)) == (1, 5, (1,), ())


def test_the_last_leader_leads_if_nobody_is_known_to_hold_all() -> None:
    state = partition(NO_LEADER, (), last_leader=3)
    assert settle(state, alive(1, 2), 1) is state
    assert outcome(settle(state, alive(1, 3), 1)) == (3, 6, (3,), ())


def test_an_unclean_leader_is_elected_only_if_it_is_allowed_and_nobody_better_is_there() -> None:
    state = partition(NO_LEADER, (), (3,))
    assert settle(state, alive(2), 2) is state
    assert outcome(settle(state, alive(2), 2, unclean=True)) == (2, 6, (2,), ())
    assert outcome(settle(state, alive(2, 3), 2, unclean=True)) == (3, 6, (3,), ())
    assert outcome(settle(partition(1, (1,)), alive(2), 1, unclean=True)) == (2, 6, (2,), ())


# ---- stopping


def test_a_stopping_leader_hands_over_and_leaves_the_isr() -> None:
    assert outcome(settle(partition(1, (1, 2, 3)), alive(2, 3, stopping=(1,)), 2)) == (2, 6, (2, 3), ())


def test_a_stopping_follower_leaves_the_isr() -> None:
    assert outcome(settle(partition(1, (1, 2)), alive(1, 3, stopping=(2,)), 2)) == (1, 5, (1,), (2,))


@pytest.mark.parametrize("others", [(), (3,)])
def test_a_stopping_leader_leads_on_where_nobody_can_take_over(others: tuple[int, ...]) -> None:
    state = partition(1, (1,))
    assert settle(state, alive(*others, stopping=(1,)), 1) is state


def test_all_that_stop_together_stay_in_sync() -> None:
    state = partition(1, (1, 2))
    assert settle(state, alive(stopping=(1, 2)), 2) is state


def test_a_stopping_broker_is_not_elected() -> None:
    assert outcome(settle(partition(1, (1, 2)), alive(stopping=(2,)), 1)) == (NO_LEADER, 6, (2,), ())
    assert outcome(settle(partition(1, (1,)), alive(stopping=(2,)), 1, unclean=True)) == (NO_LEADER, 6, (), (1,))


# ---- reassignments


def test_a_reassignment_ends_when_its_target_is_in_sync() -> None:
    state = partition(1, (1, 2, 3), replicas=(3, 4, 1, 2), adding=(4,), removing=(1, 2))
    assert settle(state, alive(1, 2, 3, 4), 2) is state
    settled = settle(replace(state, isr=(1, 2, 3, 4)), alive(1, 2, 3, 4), 2)
    assert settled == PartitionState(leader=3, leader_epoch=6, replicas=(3, 4), isr=(3, 4))


def test_a_leader_that_stays_gets_a_new_epoch_when_replicas_go() -> None:
    state = partition(3, (1, 2, 3), replicas=(3, 2, 1), removing=(1,))
    settled = settle(state, alive(1, 2, 3), 2)
    assert settled == PartitionState(leader=3, leader_epoch=6, replicas=(3, 2), isr=(2, 3))


def test_a_target_that_died_does_not_count_as_in_sync() -> None:
    state = partition(1, (1, 4), replicas=(4, 1), adding=(4,), removing=(1,))
    settled = settle(state, alive(1), 1)
    assert in_progress(settled)
    assert outcome(settled) == (1, 5, (1,), ())


def test_a_reassignment_does_not_end_where_nobody_of_its_target_could_lead() -> None:
    state = partition(1, (1, 4), replicas=(4, 1), adding=(4,), removing=(1,))
    assert settle(state, alive(stopping=(1, 4)), 1) is state


def test_fewer_replicas_than_min_insync_are_enough_when_there_are_no_more() -> None:
    alone = partition(1, (1,), replicas=(1,))
    assert elections.insync_needed(alone, 2) == 1
    growing = replace(alone, replicas=(1, 2, 3), adding=(2, 3))
    assert elections.insync_needed(growing, 2) == 1
    assert elections.insync_needed(replace(growing, adding=()), 2) == 2


def test_nothing_is_committed_while_another_is_eligible() -> None:
    assert elections.commits(partition(1, (1, 2)), 2)
    assert not elections.commits(partition(1, (1,)), 2)
    assert not elections.commits(partition(1, (1, 2), (3,)), 2)


# ---- leaders and replicas


def test_a_leader_puts_out_who_lags() -> None:
    state = partition(1, (1, 2, 3))
    assert outcome(elections.shrink(state, {3}, 2)) == (1, 5, (1, 2), ())
    assert outcome(elections.shrink(state, {2, 3}, 2)) == (1, 5, (1,), (2, 3))
    assert elections.shrink(state, {4}, 2) is state
    with pytest.raises(AssertionError):
        elections.shrink(state, {1}, 2)


def test_a_leader_takes_in_who_has_caught_up() -> None:
    state = partition(1, (1,), (2, 3))
    assert outcome(elections.expand(state, 3, 3)) == (1, 5, (1, 3), (2,))
    assert outcome(elections.expand(state, 3, 2)) == (1, 5, (1, 3), ())
    assert elections.expand(state, 1, 2) is state
    assert elections.expand(state, 9, 2) is state, "no replica"


def test_a_replica_that_can_not_be_trusted_leaves() -> None:
    assert outcome(elections.withdraw(partition(1, (1, 2, 3)), 2, 2)) == (1, 5, (1, 3), ())
    assert outcome(elections.withdraw(partition(1, (1,), (2, 3)), 2, 2)) == (1, 5, (1,), (3,))
    assert outcome(elections.withdraw(partition(1, (1, 2)), 1, 2)) == (NO_LEADER, 6, (2,), ())
    assert outcome(elections.withdraw(partition(1, (1,), (2,)), 1, 2)) == (NO_LEADER, 6, (), (2,))


def test_a_replica_that_has_nothing_left_is_the_last_choice_of_a_person() -> None:
    nobody = partition(NO_LEADER, (), last_leader=1)
    put_last = elections.put_last(nobody, 1, alive(1, 2, 3))
    assert (put_last.replicas, put_last.last_leader) == ((2, 3, 1), NO_LEADER)
    assert settle(put_last, alive(1, 2, 3), 2).leader == NO_LEADER
    assert elections.elect_unclean(put_last, alive(1, 2, 3), 2).leader == 2
    assert elections.elect_unclean(put_last, alive(1), 2).leader == 1


def test_the_order_of_replicas_stays_where_one_that_is_alive_has_all_of_it() -> None:
    for state in (partition(2, (2,)), partition(NO_LEADER, (), (2, 3))):
        assert elections.put_last(state, 1, alive(2)) is state
        assert elections.put_last(state, 1, alive()).replicas == (2, 3, 1)


def test_the_last_that_holds_anything_stays() -> None:
    for state in (partition(1, (1,)), partition(NO_LEADER, (), (1,))):
        assert elections.withdraw(state, 1, 2) is state


def test_the_first_replica_is_preferred_if_it_can_lead() -> None:
    state = partition(2, (1, 2))
    assert outcome(elections.prefer(state, alive(1, 2))) == (1, 6, (1, 2), ())
    assert elections.prefer(state, alive(2)) is state
    assert elections.prefer(state, alive(2, stopping=(1,))) is state
    assert elections.prefer(partition(2, (2,)), alive(1, 2)).leader == 2
    led = partition(1, (1, 2))
    assert elections.prefer(led, alive(1, 2)) is led


def test_a_person_gets_a_leader_where_there_is_none_and_only_there() -> None:
    led = partition(1, (1,))
    assert elections.elect_unclean(led, alive(1, 2), 2) is led
    assert outcome(elections.elect_unclean(led, alive(2), 2)) == (2, 6, (2,), ())
    state = partition(NO_LEADER, (), (1,))
    assert elections.elect_unclean(state, {}, 2) is state


# ---- topics


def topic_of(*partitions: PartitionState) -> TopicState:
    return TopicState("t", bytes(16), partitions, {})


def test_only_the_partitions_that_need_it_change() -> None:
    topic = topic_of(partition(1, (1, 2)), partition(3, (3, 2)))
    assert elections.settle_topic(topic, alive(1, 2, 3), 1) is topic
    settled = elections.settle_topic(topic, alive(1, 2), 1)
    assert settled.partitions[0] is topic.partitions[0]
    assert outcome(settled.partitions[1]) == (2, 6, (2,), ())


def test_partitions_that_need_nothing_cost_next_to_nothing() -> None:
    topic = topic_of(*[partition(1, (1, 2, 3))] * 10_000)
    brokers = alive(1, 2, 3)
    best_s = 1.0
    for _ in range(5):
        began_s = time.thread_time()
        assert elections.settle_topic(topic, brokers, 2) is topic
        best_s = min(best_s, time.thread_time() - began_s)
    assert best_s / 10_000 < 5e-6 * slowness()


# ---- any state, however odd

NODES = st.integers(1, 4)
SETS = st.lists(NODES, unique=True, max_size=4).map(tuple)


@st.composite
def states(draw: st.DrawFn) -> PartitionState:
    replicas = tuple(draw(st.lists(NODES, unique=True, min_size=1, max_size=4)))
    some = st.lists(st.sampled_from(replicas), unique=True).map(tuple)
    isr = draw(some)
    eligible = tuple(each for each in draw(some) if each not in isr)
    leader = draw(st.sampled_from((NO_LEADER, *replicas)))
    adding = draw(some)
    removing = tuple(each for each in draw(some) if each not in adding)
    return PartitionState(leader, 5, replicas, isr, eligible, adding, removing, draw(st.sampled_from((-1, *replicas))))


@settings(deadline=None)
@given(states(), SETS, SETS, st.integers(1, 4), st.booleans())
def test_settling_is_done_in_one_step_and_says_so(
    state: PartitionState, ids: tuple[int, ...], stopping: tuple[int, ...], min_insync: int, unclean: bool
) -> None:
    brokers = alive(*ids, stopping=stopping)
    settled = settle(state, brokers, min_insync, unclean)
    assert settle(settled, brokers, min_insync, unclean) is settled
    assert settled is state or settled != state
    assert settled.leader_epoch - state.leader_epoch in ((0, 1) if settled.leader == state.leader else (1,))
    assert settled.leader == NO_LEADER or (settled.leader in settled.isr and settled.leader in brokers)
    assert set(settled.isr) <= set(brokers) & set(settled.replicas)
    if not unclean and (state.isr or state.eligible):
        assert {*settled.isr, *settled.eligible} <= {*state.isr, *state.eligible}, "nobody joins by an election"
        assert settled.isr or settled.eligible
    assert settled.replicas in (state.replicas, target(state))
