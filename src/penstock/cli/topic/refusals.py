"""What a broker refused, topic by topic, with advice on misspelt settings."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from penstock.cli.problem import FAILURE, Problem, did_you_mean

if TYPE_CHECKING:
    from penstock.cli.connection import Connection

INTERNAL = frozenset({"__consumer_offsets", "__transaction_state"})  # what groups and transactions have stored
PARTITIONS_MAX = 100_000  # that librdkafka asks for
REPLICAS_MAX = 32_767

# Kafka's names, which a broker tells only of topics that exist: https://kafka.apache.org/documentation/#topicconfigs
TOPIC_SETTINGS = frozenset(
    {
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "remote.storage.enable",
        "retention.bytes",
        "retention.hold.group",
        "retention.hold.max.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    }
)


class Problems:
    """Several topics, each with its own outcome: every problem is shown, and one is enough to fail."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def finish(self) -> int:
        sys.stdout.flush()
        for problem in self.found:
            print(problem.render(), file=sys.stderr)
        return FAILURE if self.found else 0


def report_all(
    connection: Connection, futures: Mapping[str, Future[Any]], doing: str, settings: Iterable[str] = ()
) -> tuple[list[str], Problems]:
    """The names that went well, and the problems of the others."""
    done: list[str] = []
    problems = Problems()
    for name, future in futures.items():
        try:
            connection.wait(future, doing.format(name))
            done.append(name)
        except Problem as problem:
            problem.hint = advise(settings) or problem.hint
            problems.found.append(problem)
    return done, problems


def advise(settings: Iterable[str]) -> str | None:
    """For a setting that no topic has, the one that was meant."""
    for name in settings:
        if name not in TOPIC_SETTINGS and (suggestion := did_you_mean(name, TOPIC_SETTINGS)):
            return f"{name!r} is not a topic setting. {suggestion}"
    return None
