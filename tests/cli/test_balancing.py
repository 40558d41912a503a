"""Plans for a cluster's replicas: valid, even, frugal, and the same every time."""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cli.cluster.balancing import Move, NoRoom, Placement, Racks, drain, rebalance
from tests.machine import slowness


def racks(*names: str | None) -> Racks:
    return dict(enumerate(names, start=1))


def flat(count: int) -> Racks:
    return racks(*[None] * count)


def applied(placements: list[Placement], moves: list[Move]) -> list[Placement]:
    targets = {(move.topic, move.partition): move.replicas for move in moves}
    return [
        Placement(each.topic, each.partition, targets.get((each.topic, each.partition), each.replicas), each.size_bytes)
        for each in placements
    ]


def held(placements: list[Placement], brokers: Racks) -> list[int]:
    counts = Counter(broker for each in placements for broker in each.replicas)
    return [counts[broker] for broker in brokers]


def led(placements: list[Placement], brokers: Racks) -> list[int]:
    counts = Counter(each.replicas[0] for each in placements)
    return [counts[broker] for broker in brokers]


def distance(counts: list[int]) -> int:
    return max(counts) - min(counts)


def moved(moves: list[Move]) -> int:
    return sum(len(set(move.replicas) - set(move.before)) for move in moves)


# ---- rebalancing


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    placements = [Placement("t", index, (1 + index % 3, 1 + (index + 1) % 3)) for index in range(12)]
    moves = rebalance(placements, flat(4))
    after = applied(placements, moves)
    assert held(after, flat(4)) == [6, 6, 6, 6]
    assert distance(led(after, flat(4))) <= 1
    assert moved(moves) == 6
    assert all(set(move.replicas) - set(move.before) <= {4} for move in moves)


def test_what_is_even_stays_as_it_is() -> None:
    placements = [Placement("t", index, (1 + index % 3, 1 + (index + 1) % 3)) for index in range(12)]
    assert rebalance(placements, flat(3)) == []


def test_leaders_are_evened_without_moving_data() -> None:
    placements = [Placement("t", index, (1, 2, 3)) for index in range(9)]
    moves = rebalance(placements, flat(3))
    assert led(applied(placements, moves), flat(3)) == [3, 3, 3]
    assert len(moves) == 6
    assert moved(moves) == 0


def test_leaders_are_evened_through_those_in_between() -> None:
    """Nothing that 1 leads is on 3; but 2 can take over from 1, and hand over to 3."""
    replicas = [(1, 2), (1, 2), (2, 3), (2, 3), (1,), (1,), (2,), (3,), (3,)]
    placements = [Placement(f"t{number}", 0, each) for number, each in enumerate(replicas)]
    assert led(placements, flat(3)) == [4, 3, 2]
    moves = rebalance(placements, flat(3))
    assert [(move.topic, move.replicas) for move in moves] == [("t0", (2, 1)), ("t2", (3, 2))]
    assert led(applied(placements, moves), flat(3)) == [3, 3, 3]


def test_small_partitions_move_rather_than_large_ones() -> None:
    placements = [Placement("t", index, (1,), size_bytes=100 - index) for index in range(4)]
    moves = rebalance(placements, flat(2))
    assert [(move.partition, move.replicas, move.moved_bytes) for move in moves] == [(2, (2,), 98), (3, (2,), 97)]


def test_each_topic_is_spread_for_itself() -> None:
    placements = [Placement(topic, index, (broker,)) for topic, broker in (("a", 1), ("b", 2)) for index in range(4)]
    after = applied(placements, rebalance(placements, flat(2)))
    for topic in ("a", "b"):
        assert held([each for each in after if each.topic == topic], flat(2)) == [2, 2]


def test_replicas_that_share_a_rack_are_parted() -> None:
    brokers = racks("a", "a", "b", "b")
    placements = [Placement("t", index, (1, 2)) for index in range(4)]
    after = applied(placements, rebalance(placements, brokers))
    assert all({brokers[broker] for broker in each.replicas} == {"a", "b"} for each in after)
    assert held(after, brokers) == [2, 2, 2, 2]


@pytest.mark.parametrize("factor", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_racks_of_one_size_do_not_stand_in_the_way(seed: int, factor: int) -> None:
    rng = random.Random(seed)
    brokers = racks("a", "a", "b", "b", "c", "c")
    placements = [
        Placement(f"t{topic}", index, tuple(rng.sample(range(1, 6), factor)))
        for topic in range(10)
        for index in range(rng.randint(1, 9))
    ]
    after = applied(placements, rebalance(placements, brokers))
    assert distance(held(after, brokers)) <= 1
    assert distance(led(after, brokers)) <= 1


def test_replicas_on_a_broker_that_is_down_stay_there() -> None:
    placements = [Placement("t", index, (9, 1)) for index in range(6)]
    after = applied(placements, rebalance(placements, flat(2)))
    assert held(after, {9: None}) == [6]
    assert held(after, flat(2)) == [3, 3]


def test_a_cluster_without_anything_needs_nothing() -> None:
    assert rebalance([], flat(3)) == []
    assert rebalance([Placement("t", 0, (1,))], {}) == []


# ---- draining


def test_a_drained_broker_holds_nothing_and_the_rest_stays() -> None:
    placements = [Placement("t", index, (1 + index % 4, 1 + (index + 1) % 4)) for index in range(8)]
    moves = drain(placements, flat(4), {4})
    after = applied(placements, moves)
    assert held(after, {4: None}) == [0]
    assert moved(moves) == 4
    assert distance(held(after, flat(3))) <= 1
    assert distance(led(after, flat(3))) <= 1


def test_a_drained_replicas_heir_is_in_its_rack_where_another_would_share_one() -> None:
    brokers = racks("a", "a", "b", "b")
    placements = [Placement("t", index, (1, 3)) for index in range(4)]
    after = applied(placements, drain(placements, brokers, {1}))
    assert {each.replicas for each in after} <= {(2, 3), (3, 2)}


def test_brokers_without_anywhere_to_go_can_not_be_drained() -> None:
    with pytest.raises(NoRoom, match="a replica of t-3"):
        drain([Placement("t", 3, (1, 2))], flat(2), {2})


def test_draining_what_is_empty_needs_nothing() -> None:
    assert drain([Placement("t", 0, (1, 2))], flat(3), {3}) == []


# ---- any cluster


@st.composite
def clusters(draw: st.DrawFn, racked: bool) -> tuple[list[Placement], Racks]:
    count = draw(st.integers(2, 8))
    names = [f"r{node % draw(st.sampled_from([2, 3, 4]))}" if racked else None for node in range(count)]
    brokers = racks(*names)
    placements = []
    for topic in range(draw(st.integers(1, 6))):
        factor = draw(st.integers(1, min(3, count)))
        for index in range(draw(st.integers(1, 8))):
            order = draw(st.permutations(range(1, count + 1)))
            placements.append(Placement(f"t{topic}", index, tuple(order[:factor]), draw(st.integers(0, 1000))))
    return placements, brokers


def check_moves(placements: list[Placement], moves: list[Move], brokers: Racks) -> list[Placement]:
    known = {(each.topic, each.partition): each for each in placements}
    assert len({(move.topic, move.partition) for move in moves}) == len(moves)
    for move in moves:
        assert move.before == known[move.topic, move.partition].replicas != move.replicas
        assert len(set(move.replicas)) == len(move.replicas) == len(move.before)
        assert set(move.replicas) <= set(brokers)
    return applied(placements, moves)


def shared(replicas: tuple[int, ...], brokers: Racks) -> int:
    return len(replicas) - len({brokers[broker] for broker in replicas})


@settings(deadline=None)
@given(clusters(racked=False))
def test_any_cluster_becomes_even(cluster: tuple[list[Placement], Racks]) -> None:
    placements, brokers = cluster
    moves = rebalance(placements, brokers)
    after = check_moves(placements, moves, brokers)
    assert distance(held(after, brokers)) <= 1
    for topic in {each.topic for each in placements}:
        assert distance(held([each for each in after if each.topic == topic], brokers)) <= 1
    assert rebalance(after, brokers) == [], "what was made even is even"
    assert rebalance(placements[::-1], brokers) == moves


@settings(deadline=None)
@given(clusters(racked=True))
def test_any_cluster_with_racks_uses_as_many_as_it_can(cluster: tuple[list[Placement], Racks]) -> None:
    placements, brokers = cluster
    after = check_moves(placements, rebalance(placements, brokers), brokers)
    in_all = len(set(brokers.values()))
    for each in after:
        assert len({brokers[broker] for broker in each.replicas}) == min(in_all, len(each.replicas))
    assert rebalance(after, brokers) == []


@settings(deadline=None)
@given(clusters(racked=True), st.data())
def test_any_broker_can_be_drained(cluster: tuple[list[Placement], Racks], data: st.DataObject) -> None:
    placements, brokers = cluster
    leaving = data.draw(st.sets(st.sampled_from(sorted(brokers)), max_size=2))
    staying = {node_id: rack for node_id, rack in brokers.items() if node_id not in leaving}
    if any(len(each.replicas) > len(staying) for each in placements):
        with pytest.raises(NoRoom):
            drain(placements, brokers, leaving)
        return
    moves = drain(placements, brokers, leaving)
    after = check_moves(placements, moves, staying)
    assert not leaving & {broker for each in after for broker in each.replicas}
    assert moved(moves) == sum(len(leaving & set(each.replicas)) for each in placements)
    for before, now in zip(placements, after):
        if leaving.isdisjoint(before.replicas):
            assert now == before


def test_a_large_cluster_is_planned_in_seconds() -> None:
    rng = random.Random(1)
    placements = [
        Placement(f"t{topic}", index, tuple(rng.sample(range(1, 10), 3)), rng.randrange(1000))
        for topic in range(1_000)
        for index in range(10)
    ]
    began_s = time.thread_time()
    after = applied(placements, rebalance(placements, flat(10)))
    assert time.thread_time() - began_s < 20 * slowness()
    assert distance(held(after, flat(10))) <= 1
    assert distance(led(after, flat(10))) <= 1
