"""Partitions that nobody leads: who has all of their messages, who else lives, and what a person can do about it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from penstock.cli.cluster.processes import runs
from penstock.cli.cluster.reaching import Cluster, Key, Partition, Snapshot
from penstock.cli.problem import Problem
from penstock.protocol.messages import describe_topic_partitions as describing

PARTITIONS_PER_REQUEST = 2_000
LOSS = "lost for good, acknowledged messages too"


@dataclass(frozen=True, slots=True)
class Leaderless:
    partition: Partition
    complete: tuple[int, ...]  # brokers that have all that is committed, if any are known; mostly they are down
    alive: tuple[int, ...]  # replicas that an unclean election could choose

    @property
    def missed(self) -> list[int]:
        """Brokers whose return may end it without loss: those that have all, or any that is down."""
        return [each for each in self.complete or self.partition.replicas if each not in self.alive]


def leaderless(cluster: Cluster, snapshot: Snapshot, partitions: Iterable[Partition]) -> list[Leaderless]:
    found = [each for each in partitions if each.leader < 0]
    complete = _complete(cluster, {each.topic for each in found}) if found else {}
    return [
        Leaderless(each, complete.get(each.key, ()), tuple(who for who in each.replicas if who in snapshot.brokers))
        for each in found
    ]


def _complete(cluster: Cluster, topics: Iterable[str]) -> dict[Key, tuple[int, ...]]:
    """Nothing where brokers of another kind do not serve the question."""
    asked = [describing.TopicRequest(name=topic) for topic in sorted(topics)]
    request = describing.DescribeTopicPartitionsRequest(topics=asked, response_partition_limit=PARTITIONS_PER_REQUEST)
    found: dict[Key, tuple[int, ...]] = {}
    while True:
        try:
            answer = cluster.ask(request, 0, describing.DescribeTopicPartitionsResponse)
        except Problem:
            return found
        for topic in answer.topics:
            for each in topic.partitions:
                complete = (*each.isr_nodes, *(each.eligible_leader_replicas or ()))
                found[topic.name or "", each.partition_index] = complete
        if answer.next_cursor is None:
            return found
        request.cursor = answer.next_cursor


def advice(cluster: Cluster, found: Sequence[Leaderless]) -> list[str]:
    """Lines for a person, the one without loss first."""
    missed = sorted({each for one in found for each in one.missed})
    if not missed:
        return ["A replica that has all of its messages is up: it should lead in a moment."]
    known = all(one.complete for one in found)
    lines = [f"Bring back {named(missed)}" + (": all committed messages are there." if known else ".")]
    lines += bring_back(cluster, missed)
    if lossy := [one.partition for one in found if one.alive]:
        place = f"{lossy[0].topic}:{lossy[0].index}"
        lines.append(f"If that can't be, another replica may lead. What that one lacks is {LOSS}:")
        lines.append(f"  penstock cluster elect --unclean {place}{cluster.bootstrap.options}")
    return lines


def bring_back(cluster: Cluster, node_ids: Collection[int]) -> list[str]:
    """What to type for those that were started on this machine."""
    lines = []
    for each in cluster.record.members if cluster.record else ():
        if each.node_id in node_ids and runs(each.pid, "penstock"):
            lines.append(
                f"  process {each.pid} is broker {each.node_id}, and does not serve: look at its log, or kill it"
            )
        elif each.node_id in node_ids:
            lines.append(f"  penstock cluster add --node-id {each.node_id}{cluster.bootstrap.options}")
    return lines


def named(node_ids: Sequence[int]) -> str:
    """`broker 2`, `brokers 2 and 3`, `brokers 1, 2 and 3`"""
    if len(node_ids) == 1:
        return f"broker {node_ids[0]}"
    return f"brokers {', '.join(map(str, node_ids[:-1]))} and {node_ids[-1]}"
