"""Whether a partition is led here, and where if not: clients learn it in the answer that refuses them (KIP-951)."""

from __future__ import annotations

from penstock.cluster.model import NO_LEADER, PartitionState
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.replication.partition import Partition
from penstock.server.cluster_view import Node, endpoint_of
from penstock.server.context import Context

MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def led(context: Context, topic: str, index: int) -> Partition:
    """The partition, if this broker leads it. Raises what Kafka answers otherwise."""
    partition = context.partitions.get(topic, index)
    if partition is not None and partition.leads:
        return partition
    known = partition is not None or state_of(context, topic, index) is not None
    raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def absence(context: Context, topic: str, index: int) -> ErrorCode:
    """Why there is no replica here: it is elsewhere, or nowhere."""
    if state_of(context, topic, index) is not None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def state_of(context: Context, topic: str, index: int) -> PartitionState | None:
    known = context.image.topics.get(topic)
    return known.partitions[index] if known is not None and 0 <= index < len(known.partitions) else None


def leader_of(context: Context, topic: str, index: int, listener: str) -> tuple[int, int, Node | None]:
    """Who leads it, in which epoch, and where on the client's listener; nobody if that is not known."""
    state = state_of(context, topic, index)
    if state is None:
        return NO_LEADER, -1, None
    broker = context.image.brokers.get(state.leader)
    endpoint = endpoint_of(broker, listener) if broker is not None else None
    if broker is None or endpoint is None:
        return state.leader, state.leader_epoch, None
    return state.leader, state.leader_epoch, Node(broker.node_id, endpoint.host, endpoint.port, broker.rack)
