"""How fast brokers may move partitions: a rate of each broker, and the replicas that it holds for (KIP-73).

The rate is for replicas that move and no others, so that followers in sync are never held back.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cli.cluster.balancing import Move
from penstock.cli.cluster.reaching import BROKER, TOPIC, Broker, Cluster, Snapshot, broker_setting
from penstock.cli.problem import Problem
from penstock.cli.raw import ask, check
from penstock.protocol.messages import incremental_alter_configs as altering

SET, DELETE = 0, 1
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
OF_THIS_BROKER = 2  # a source of settings: one that was changed while the broker runs
TOPICS_PER_REQUEST = 500


def begin(cluster: Cluster, snapshot: Snapshot, plan: Sequence[Move], rate: int) -> None:
    """Before anything moves: else the first moments would have no limit."""
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    for move in plan:
        coming = [each for each in move.replicas if each not in move.before]
        leaders.setdefault(move.topic, []).extend(f"{move.partition}:{each}" for each in move.before)
        followers.setdefault(move.topic, []).extend(f"{move.partition}:{each}" for each in coming)
    _alter_topics(
        cluster,
        {topic: {LEADERS: ",".join(leaders[topic]), FOLLOWERS: ",".join(followers[topic])} for topic in leaders},
    )
    for broker in snapshot.brokers.values():
        _alter_broker(broker, dict.fromkeys(RATES, str(rate)))


def end(cluster: Cluster, snapshot: Snapshot) -> None:
    """Also that of a command that was interrupted."""
    throttled = [broker for broker in snapshot.brokers.values() if _is_throttled(broker)]
    if not throttled:
        return
    there = cluster.topic_settings(LEADERS, {each.topic for each in snapshot.partitions})
    _alter_topics(cluster, {topic: {LEADERS: None, FOLLOWERS: None} for topic, value in there.items() if value})
    for broker in throttled:
        _alter_broker(broker, dict.fromkeys(RATES))


def _is_throttled(broker: Broker) -> bool:
    try:
        found = [broker_setting(broker, name) for name in RATES]
    except Problem:
        return False  # it is gone
    return any(each is not None and each.config_source == OF_THIS_BROKER for each in found)


def _alter_broker(broker: Broker, changes: dict[str, str | None]) -> None:
    resource = _resource(BROKER, str(broker.node_id), changes)
    request = altering.IncrementalAlterConfigsRequest(resources=[resource])
    _check(ask(broker.address, request, 1, altering.IncrementalAlterConfigsResponse))


def _alter_topics(cluster: Cluster, changes: dict[str, dict[str, str | None]]) -> None:
    resources = [_resource(TOPIC, topic, each) for topic, each in sorted(changes.items())]
    for start in range(0, len(resources), TOPICS_PER_REQUEST):
        request = altering.IncrementalAlterConfigsRequest(resources=resources[start : start + TOPICS_PER_REQUEST])
        _check(cluster.ask(request, 1, altering.IncrementalAlterConfigsResponse))


def _resource(kind: int, name: str, changes: dict[str, str | None]) -> altering.AlterConfigsResource:
    entries = [
        altering.AlterableConfig(name=each, config_operation=DELETE if value is None else SET, value=value)
        for each, value in changes.items()
    ]
    return altering.AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)


def _check(answer: altering.IncrementalAlterConfigsResponse) -> None:
    for each in answer.responses:
        check(each.error_code, f"can't throttle {each.resource_name}", each.error_message)
