"""Which brokers hold the replicas of new partitions. Pure: the caller brings the brokers and the place to start.

Leaders go round the brokers in turn. The other replicas of a partition follow its leader on the circle, at a distance
that grows by one each time the leaders have gone round, so that a broker's partitions do not all share their followers.
The circle visits the racks in turn, and a partition uses a rack twice only when it has used every rack.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

from penstock.cluster.model import BrokerState
from penstock.protocol.errors import ApiError, ErrorCode


def place(
    brokers: Iterable[BrokerState], partitions: int, replication_factor: int, *, first_partition: int = 0, start: int
) -> list[tuple[int, ...]]:
    """The replicas of each new partition, its leader first.

    `start` is any number; a random one keeps the first partitions of all topics from meeting on one broker.
    """
    circle = _circle(brokers)
    if replication_factor > len(circle):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {len(circle)} broker(s) are registered.",
        )
    indexes = range(first_partition, first_partition + partitions)
    return [_replicas(circle, start + index, start + index // len(circle), replication_factor) for index in indexes]


def _circle(brokers: Iterable[BrokerState]) -> list[tuple[int, str]]:
    """(broker, rack) in an order that visits the racks in turn. Where nobody has a rack, each broker is its own."""
    known = sorted(brokers, key=lambda broker: broker.node_id)
    if all(broker.rack is None for broker in known):
        return [(broker.node_id, str(broker.node_id)) for broker in known]
    racks: dict[str, list[tuple[int, str]]] = {}
    for broker in known:
        racks.setdefault(broker.rack or "", []).append((broker.node_id, broker.rack or ""))
    turns = zip_longest(*(racks[rack] for rack in sorted(racks)))
    return [broker for turn in turns for broker in turn if broker is not None]


def _replicas(circle: list[tuple[int, str]], leader: int, shift: int, count: int) -> tuple[int, ...]:
    size = len(circle)
    first = circle[leader % size]
    others = [circle[(leader + 1 + (shift + step) % (size - 1)) % size] for step in range(size - 1)]
    chosen, racks = [first], {first[1]}
    racks_in_all = {rack for _, rack in circle}
    while len(chosen) < count:
        fresh = (other for other in others if other[1] not in racks)
        chosen.append(next(fresh, others[0]))
        others.remove(chosen[-1])
        racks.add(chosen[-1][1])
        if racks == racks_in_all:
            racks = set()
    return tuple(broker for broker, _ in chosen)
