"""A running cluster, asked over the network: whichever of its brokers answers.

Where nobody says otherwise it is the cluster that was started in the folder, any of whose brokers may be down.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from penstock.cli.cluster.folder import DEFAULT, ClusterFolder, Record
from penstock.cli.parser import DEFAULT_BOOTSTRAP
from penstock.cli.problem import Problem
from penstock.cli.raw import Address, ask, check
from penstock.protocol.messages import describe_configs as configs
from penstock.protocol.messages import list_partition_reassignments as listing
from penstock.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.schema import Message

TOPIC, BROKER = 2, 4  # kinds of resources that have settings
TOPICS_PER_REQUEST = 2_000

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
class Snapshot:
    """A cluster, as the broker that was asked knows it."""

    cluster_id: str
    controller: int  # -1: none
    brokers: dict[int, Broker]
    partitions: list[Partition]


def reach(args: argparse.Namespace) -> Cluster:
    bootstrap = args.bootstrap or os.environ.get("PENSTOCK_BOOTSTRAP")
    record = None if bootstrap else ClusterFolder(args.data).read()
    if record is None and not bootstrap and args.data != Path(DEFAULT):
        raise Problem(f"no cluster was started in {args.data}.", "Name a broker with --bootstrap HOST:PORT.")
    return Cluster(bootstrap or (record.bootstrap if record and record.members else DEFAULT_BOOTSTRAP), record)


class Cluster:
    def __init__(self, bootstrap: str, record: Record | None = None) -> None:
        self.bootstrap = bootstrap
        self.record = record  # of the folder by which it was found
        self._known = list(_addresses(bootstrap))

    def snapshot(self) -> Snapshot:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answer = self.ask(request, 12, MetadataResponse)
        found = [Broker(each.node_id, each.host, each.port, each.rack) for each in answer.brokers]
        brokers = {each.node_id: each for each in sorted(found, key=lambda each: each.node_id)}
        self._known = list(dict.fromkeys([*(each.address for each in brokers.values()), *_addresses(self.bootstrap)]))
        partitions = [
            Partition(
                topic.name or "", each.partition_index, each.leader_id, tuple(each.replica_nodes), tuple(each.isr_nodes)
            )
            for topic in answer.topics
            for each in topic.partitions
        ]
        partitions.sort(key=lambda each: each.key)
        return Snapshot(answer.cluster_id or "", answer.controller_id, brokers, partitions)

    def ask(self, request: Message, version: int, response: type[M]) -> M:
        """Of any broker: each knows what there is to know, and may change what there is to change."""
        failure: Problem | None = None
        for address in self._known:
            try:
                return ask(address, request, version, response)
            except Problem as problem:
                failure = failure or problem
        from penstock.cli.connection import not_reachable

        cause = failure.__cause__ if failure else "no address"
        raise not_reachable(self.bootstrap, (getattr(cause, "strerror", None) or str(cause)).lower())

    def sizes(self, brokers: Iterable[Broker]) -> dict[int, dict[Key, int]]:
        """Bytes of each replica, by broker. Who does not answer is not in it."""
        found: dict[int, dict[Key, int]] = {}
        for broker in brokers:
            with suppress(Problem):
                answer = ask(broker.address, DescribeLogDirsRequest(topics=None), 4, DescribeLogDirsResponse)
                found[broker.node_id] = {
                    (topic.name, each.partition_index): each.partition_size
                    for result in answer.results
                    for topic in result.topics
                    for each in topic.partitions
                }
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
    results = ask(broker.address, request, 4, configs.DescribeConfigsResponse).results
    return next((each for result in results for each in result.configs if each.name == name), None)


def _addresses(bootstrap: str) -> Iterator[Address]:
    from penstock.cli.cluster.fleet import host_and_port

    for text in filter(None, bootstrap.split(",")):
        yield host_and_port(text.strip().rpartition("://")[2])
