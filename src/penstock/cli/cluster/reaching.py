"""A running cluster, asked over the network: whichever of its brokers answers.

Where nobody says otherwise it is the cluster that was started in the folder, any of whose brokers may be down.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from penstock.cli.bootstrap import Bootstrap, find
from penstock.cli.connection import REACH_TIMEOUT_S, REQUEST_TIMEOUT_S, not_reachable
from penstock.cli.holds import Hold, described_replicas, hold_of
from penstock.cli.problem import Problem
from penstock.cli.raw import Address, ask, check
from penstock.protocol.messages import describe_configs as configs
from penstock.protocol.messages import list_partition_reassignments as listing
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.schema import Message

TOPIC, BROKER = 2, 4  # kinds of resources that have settings
TOPICS_PER_REQUEST = 2_000
SIZES_TIMEOUT_S = 10.0

M = TypeVar("M", bound=Message)

Key = tuple[str, int]  # topic and partition


@dataclass(frozen=True, slots=True)
class Broker:
    node_id: int
    host: str
    port: int
    rack: str | None

    @property
    def address(self) -> Address:
        return self.host, self.port


@dataclass(frozen=True, slots=True)
class Partition:
    topic: str
    index: int
    leader: int  # -1: none
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def key(self) -> Key:
        return self.topic, self.index


@dataclass(frozen=True, slots=True)
class Moving:
    """A partition on its way to other replicas; those that it will have come first."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(each for each in self.replicas if each not in self.removing)


@dataclass(frozen=True, slots=True)
class Stored:
    """A replica on the disk of its broker."""

    size_bytes: int
    hold: Hold | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A cluster, as the broker that was asked knows it."""

    cluster_id: str
    controller: int  # -1: none
    brokers: dict[int, Broker]
    partitions: list[Partition]


class TooSlow(Problem):
    """Some broker took the question, and none has answered in time."""


def reach(args: argparse.Namespace) -> Cluster:
    return Cluster(find(args.bootstrap, args.data))


class Cluster:
    def __init__(self, bootstrap: Bootstrap) -> None:
        self.bootstrap = bootstrap
        self.record = bootstrap.record
        self._known: list[Address] = bootstrap.places()

    def snapshot(self) -> Snapshot:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        try:
            answer = self.ask(request, 12, MetadataResponse, REACH_TIMEOUT_S)
        except TooSlow:  # all of them: there may be very much to say
            answer = self.ask(request, 12, MetadataResponse)
        found = [Broker(each.node_id, each.host, each.port, each.rack) for each in answer.brokers]
        brokers = {each.node_id: each for each in sorted(found, key=lambda each: each.node_id)}
        others = [*(each.address for each in brokers.values()), *self.bootstrap.places()]
        self._known = list(dict.fromkeys([self._known[0], *others]))
        partitions = [
            Partition(
                topic.name or "", each.partition_index, each.leader_id, tuple(each.replica_nodes), tuple(each.isr_nodes)
            )
            for topic in answer.topics
            for each in topic.partitions
        ]
        partitions.sort(key=lambda each: each.key)
        return Snapshot(answer.cluster_id or "", answer.controller_id, brokers, partitions)

    def ask(self, request: Message, version: int, response: type[M], timeout_s: float = REQUEST_TIMEOUT_S) -> M:
        """Of any broker: each knows what there is to know, and may change what there is to change. The one that answers
        is the first to be asked from then on: another may be silent for long."""
        causes: list[BaseException | None] = []
        for address in self._known:
            try:
                answer = ask(address, request, version, response, timeout_s)
            except Problem as problem:
                causes.append(problem.__cause__)
                continue
            self._known.sort(key=lambda each: each != address)
            return answer
        slow = any(isinstance(cause, TimeoutError) for cause in causes)
        reason = f"no answer within {timeout_s:.0f} s" if slow else next(map(_words, causes), "no address")
        silence = not_reachable(self.bootstrap, reason)
        raise TooSlow(silence.message, silence.hint) if slow else silence

    def sizes(self, brokers: Iterable[Broker]) -> dict[int, dict[Key, int]]:
        """Bytes of each replica, by broker. Who does not answer is not in it."""
        stored = self.stored(brokers)
        return {node_id: {key: each.size_bytes for key, each in held.items()} for node_id, held in stored.items()}

    def stored(self, brokers: Iterable[Broker]) -> dict[int, dict[Key, Stored]]:
        """The replicas of each broker. Who does not answer is not in it."""
        found: dict[int, dict[Key, Stored]] = {}
        for broker in brokers:
            with suppress(Problem):
                described = described_replicas(broker.address, timeout_s=SIZES_TIMEOUT_S)
                found[broker.node_id] = {key: Stored(each.partition_size, hold_of(each)) for key, each in described}
        return found

    def moving(self) -> dict[Key, Moving]:
        answer = self.ask(listing.ListPartitionReassignmentsRequest(), 0, listing.ListPartitionReassignmentsResponse)
        check(answer.error_code, "can't list what moves", answer.error_message)
        return {
            (topic.name, each.partition_index): Moving(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for topic in answer.topics
            for each in topic.partitions
        }

    def topic_settings(self, name: str, topics: Iterable[str]) -> dict[str, str | None]:
        """One setting of each topic. Topics that are gone are not in it."""
        resources = [
            configs.DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=[name])
            for topic in topics
        ]
        found: dict[str, str | None] = {}
        for start in range(0, len(resources), TOPICS_PER_REQUEST):
            request = configs.DescribeConfigsRequest(resources=resources[start : start + TOPICS_PER_REQUEST])
            for result in self.ask(request, 4, configs.DescribeConfigsResponse).results:
                if not result.error_code:
                    value = next((each.value for each in result.configs if each.name == name), None)
                    found[result.resource_name] = value
        return found


def broker_setting(broker: Broker, name: str) -> configs.DescribeConfigsResourceResult | None:
    """None where the broker does not know the setting."""
    resource = configs.DescribeConfigsResource(
        resource_type=BROKER, resource_name=str(broker.node_id), configuration_keys=[name]
    )
    request = configs.DescribeConfigsRequest(resources=[resource])
    results = ask(broker.address, request, 4, configs.DescribeConfigsResponse, REACH_TIMEOUT_S).results
    return next((each for result in results for each in result.configs if each.name == name), None)


def _words(cause: BaseException | None) -> str:
    return (getattr(cause, "strerror", None) or str(cause)).lower()
