"""What a broker that stops waits for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from penstock.broker.retirement import Leaderships
from penstock.cluster.model import NO_LEADER, BrokerState, ClusterImage, PartitionState, TopicState

HERE, OTHER, THIRD = 1, 2, 3


def led(leader: int = HERE, isr: tuple[int, ...] = (HERE, OTHER)) -> PartitionState:
    return PartitionState(leader, 0, (HERE, OTHER), isr)


class CountingPartitions(tuple[PartitionState, ...]):
    """The partitions of a topic, which count how often one of them is looked at."""

    looks = 0

    def __iter__(self) -> Iterator[PartitionState]:
        for state in super().__iter__():
            CountingPartitions.looks += 1
            yield state

    def __getitem__(self, index: Any) -> Any:
        CountingPartitions.looks += 1
        return super().__getitem__(index)


def image_of(*states: PartitionState) -> ClusterImage:
    image = ClusterImage("", NO_LEADER)
    for node_id in (HERE, OTHER, THIRD):
        image.brokers[node_id] = BrokerState(node_id, ())
    image.topics["t"] = TopicState("t", bytes(16), CountingPartitions(states), {})
    return image


def change(image: ClusterImage, index: int, state: PartitionState) -> None:
    states = list(image.topics["t"].partitions)
    states[index] = state
    image.topics["t"] = replace(image.topics["t"], partitions=CountingPartitions(states))


def test_it_waits_until_others_lead_what_they_can() -> None:
    image = image_of(led(), led(leader=OTHER), led(isr=(HERE,)), led())
    leaderships = Leaderships(image, HERE)
    assert leaderships.are_left()
    change(image, 3, led(leader=OTHER))
    assert leaderships.are_left()
    change(image, 0, led(leader=OTHER))
    assert not leaderships.are_left(), "nobody else is in sync with what is left"
    change(image, 2, led())
    assert leaderships.are_left(), "somebody is by now"
    del image.topics["t"]
    assert not leaderships.are_left()


def test_it_does_not_wait_for_others_that_stop_too() -> None:
    image = image_of(led())
    leaderships = Leaderships(image, HERE)
    assert leaderships.are_left()
    image.brokers[OTHER] = replace(image.brokers[OTHER], stopping=True)
    assert not leaderships.are_left()
    image.brokers[HERE] = replace(image.brokers[HERE], stopping=True)
    assert not leaderships.are_left()


def test_a_look_does_not_cost_a_walk_over_all_partitions() -> None:
    count = 1000
    image = image_of(*[led()] * count)
    leaderships = Leaderships(image, HERE)
    assert leaderships.are_left()
    CountingPartitions.looks = 0
    for _ in range(100):
        assert leaderships.are_left()
    assert CountingPartitions.looks == 100
    states = [led(leader=OTHER)] * count
    for moved in range(0, count, 10):
        image.topics["t"] = replace(
            image.topics["t"], partitions=CountingPartitions([led()] * (count - moved) + states[:moved])
        )
        assert leaderships.are_left()
    assert CountingPartitions.looks < 2 * count
    image.topics["t"] = replace(image.topics["t"], partitions=CountingPartitions(states))
    assert not leaderships.are_left()
