from __future__ import annotations

from collections import Counter

import pytest

from penstock.cluster.model import BrokerState
from penstock.cluster.placement import place
from penstock.protocol.errors import ApiError, ErrorCode


def brokers(*racks: str | None) -> list[BrokerState]:
    return [BrokerState(node_id, (), rack) for node_id, rack in enumerate(racks, start=1)]


def test_on_one_broker_everything_is_there() -> None:
    assert place(brokers(None), 3, 1, start=17) == [(1,), (1,), (1,)]


def test_leaders_go_round() -> None:
    placed = place(brokers(None, None, None), 6, 1, start=0)
    assert [replicas[0] for replicas in placed] == [1, 2, 3, 1, 2, 3]


@pytest.mark.parametrize("start", range(7))
@pytest.mark.parametrize("count", [3, 4, 5])
def test_replicas_and_leaders_are_spread_evenly(count: int, start: int) -> None:
    placed = place(brokers(*[None] * count), 3 * count, 3, start=start)
    assert all(len(set(replicas)) == 3 for replicas in placed)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {3}
    held = Counter(broker for replicas in placed for broker in replicas)
    assert max(held.values()) - min(held.values()) <= 1


def test_a_brokers_partitions_do_not_all_share_their_followers() -> None:
    placed = place(brokers(*[None] * 5), 20, 2, start=0)
    assert len({replicas for replicas in placed if replicas[0] == 1}) == 4


@pytest.mark.parametrize("start", range(6))
def test_replicas_are_spread_over_racks(start: int) -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    for replicas in place(brokers(*racks.values()), 12, 3, start=start):
        assert {racks[broker] for broker in replicas} == {"a", "b", "c"}


@pytest.mark.parametrize("start", range(4))
def test_a_rack_is_used_twice_when_all_are_used(start: int) -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    for replicas in place(brokers(*racks.values()), 8, 4, start=start):
        assert sorted(replicas) == [1, 2, 3, 4]
        assert {racks[broker] for broker in replicas[:2]} == {"a", "b"}


def test_later_partitions_go_on_where_the_first_ended() -> None:
    three = brokers(None, None, None)
    assert place(three, 2, 2, start=5) + place(three, 2, 2, first_partition=2, start=5) == place(three, 4, 2, start=5)


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(ApiError) as caught:
        place(brokers(None), 1, 2, start=0)
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "only 1 broker(s) are registered" in (caught.value.message or "")
