"""The cluster as a client on one listener sees it: brokers at the addresses of that listener, and who leads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from penstock.cluster.model import NO_LEADER, BrokerState, ClusterImage, Endpoint, PartitionState
from penstock.protocol.errors import ErrorCode


class Node(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


def endpoint_of(broker: BrokerState, listener: str) -> Endpoint | None:
    return next((endpoint for endpoint in broker.endpoints if endpoint.listener == listener), None)


def _known(image: ClusterImage) -> Iterator[BrokerState]:
    yield from image.brokers.values()
    if image.here is not None and image.here.node_id not in image.brokers:
        yield image.here


def nodes_on(image: ClusterImage, listener: str) -> Iterator[Node]:
    """The brokers that have this listener. Never none at all: a client that knows of no broker can't ask again."""
    return _nodes(_known(image), listener)


def departed_on(image: ClusterImage, listener: str) -> Iterator[Node]:
    """Those that have just gone, which clients are told of for a while."""
    return _nodes((broker for node_id, broker in image.departed.items() if node_id not in image.brokers), listener)


def _nodes(brokers: Iterable[BrokerState], listener: str) -> Iterator[Node]:
    for broker in brokers:
        if endpoint := endpoint_of(broker, listener):
            yield Node(broker.node_id, endpoint.host, endpoint.port, broker.rack)


def controller_on(image: ClusterImage, reachable: Collection[int]) -> int:
    """The controller, if it is known and the client can reach it."""
    return image.controller_id if image.controller_id in reachable else NO_LEADER


class Leadership(NamedTuple):
    leader: int
    error: ErrorCode  # why there is none that this client could reach
    offline: list[int]


def leadership(image: ClusterImage, partition: PartitionState, reachable: set[int]) -> Leadership:
    """`reachable` holds the brokers that have the client's listener."""
    offline = [replica for replica in partition.replicas if replica not in reachable]
    if partition.leader in image.unreachable:
        return Leadership(NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE, offline)
    if partition.leader in reachable:
        return Leadership(partition.leader, ErrorCode.NONE, offline)
    known = partition.leader in image.brokers
    return Leadership(NO_LEADER, ErrorCode.LISTENER_NOT_FOUND if known else ErrorCode.LEADER_NOT_AVAILABLE, offline)
