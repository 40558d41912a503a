from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.model import ClusterImage, PartitionState, TopicState
from penstock.cluster.settings import BrokerSettings
from penstock.replication.throttle import SAVED_MS, WAIT_MS_MAX, Bucket, Side, Throttle

NODE_ID = 1


def throttle(side: Side = Side.LEADER, rate: int | None = None, **replicas: str) -> Throttle:
    """With a topic for each name, whose throttled replicas are given."""
    image = ClusterImage("test", NODE_ID)
    state = PartitionState(leader=NODE_ID, leader_epoch=0, replicas=(1, 2), isr=(1, 2))
    for name, listed in replicas.items():
        config = {f"{side.value}.replication.throttled.replicas": listed}
        image.put_topic(TopicState(name, name.encode().ljust(16), (state,) * 3, config))
    settings = BrokerSettings({f"{side.value}.replication.throttled.rate": str(rate)} if rate is not None else {})
    return Throttle(side, NODE_ID, image, settings)


@pytest.mark.parametrize("side", Side)
def test_only_replicas_that_the_topic_names_on_this_broker_are_throttled(side: Side) -> None:
    some = throttle(side, 0, named="0:1, 1:2,2:1", every=" * ", none="")
    assert [some.applies("named", index) for index in range(3)] == [True, False, True]
    assert [some.applies("every", index) for index in range(3)] == [True] * 3
    assert not some.applies("none", 0)
    assert not some.applies("nowhere", 0)
    assert [some.may_send("named", index, 0) for index in range(3)] == [False, True, False]


def test_without_a_rate_everything_goes() -> None:
    free = throttle(every="*")
    for _ in range(100):
        assert free.may_send("every", 0, 0)
        free.sent("every", 0, 1 << 30, 0)
    assert free.next_ms(0) == 0


def test_a_throttled_replica_waits_until_there_is_budget_again() -> None:
    slow = throttle(rate=1000, every="*")
    assert slow.may_send("every", 0, 0)
    slow.sent("every", 0, 1500, 0)
    assert not slow.may_send("every", 1, 0), "all partitions share it"
    wait_ms = slow.next_ms(0)
    assert 500 < wait_ms <= 502
    assert not slow.may_send("every", 0, wait_ms - 2)
    assert slow.may_send("every", 0, wait_ms)


def test_what_is_not_throttled_does_not_count() -> None:
    slow = throttle(rate=1000, named="0:1")
    slow.sent("named", 1, 1 << 20, 0)
    assert slow.may_send("named", 0, 0)


def test_a_rate_that_is_changed_counts_at_once() -> None:
    settings = BrokerSettings({})
    image = throttle(every="*")._image
    changing = Throttle(Side.LEADER, NODE_ID, image, settings)
    assert changing.may_send("every", 0, 0)
    settings.set_dynamic(cluster={}, broker={"leader.replication.throttled.rate": "0"})
    assert not changing.may_send("every", 0, 0)
    assert changing.next_ms(0) == WAIT_MS_MAX, "the rate may be raised again"
    settings.set_dynamic(cluster={}, broker={})
    assert changing.may_send("every", 0, 1)


def test_one_answer_may_be_larger_than_the_rate() -> None:
    bucket = Bucket()
    assert bucket.may_take(10, 0)
    bucket.take(1000, 10, 0)
    assert bucket.next_ms(10, 0) == WAIT_MS_MAX
    assert not bucket.may_take(10, 98_000)
    assert bucket.may_take(10, 99_100)


def test_a_clock_that_is_set_back_stops_nothing() -> None:
    bucket = Bucket()
    bucket.take(2000, 1000, 3_600_000)
    assert not bucket.may_take(1000, 0)
    assert bucket.may_take(1000, 1001)


@given(
    rate=st.integers(1, 10**6),
    steps=st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 10**6)), min_size=1, max_size=50),
)
def test_no_more_goes_than_the_rate_allows(rate: int, steps: list[tuple[int, int]]) -> None:
    bucket, now_ms, taken, largest = Bucket(), 0, 0, 0
    for pause_ms, size in steps:
        now_ms += pause_ms
        if bucket.may_take(rate, now_ms):
            bucket.take(size, rate, now_ms)
            taken += size
            largest = max(largest, size)
        else:
            assert bucket.next_ms(rate, now_ms) > 0
    assert taken <= rate * (now_ms + SAVED_MS) / 1000 + largest + 1


@given(rate=st.integers(1, 10**6), size=st.integers(1, 10**9))
def test_who_waits_as_long_as_told_gets_through(rate: int, size: int) -> None:
    bucket, now_ms = Bucket(), 0
    bucket.take(size, rate, now_ms)
    looks = 0
    while wait_ms := bucket.next_ms(rate, now_ms):
        now_ms += wait_ms if looks < 100 else size * 1000 // rate
        looks += 1
        assert looks < 200
    assert bucket.may_take(rate, now_ms)
