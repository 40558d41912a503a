"""What a broker knows of a group, asked through the admin client."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_INVALID, ConsumerGroupTopicPartitions, KafkaError, TopicPartition

from penstock.cli.connection import REQUEST_TIMEOUT_S, Connection, Key, explain
from penstock.cli.problem import Problem, did_you_mean

STATES = {
    "STABLE": "stable",
    "EMPTY": "empty",
    "DEAD": "dead",
    "PREPARING_REBALANCING": "preparing rebalance",
    "COMPLETING_REBALANCING": "completing rebalance",
}


@dataclass(frozen=True, slots=True)
class Member:
    id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    state: str
    assignor: str
    coordinator: int | None
    members: tuple[Member, ...]


def state_name(state: Any) -> str:
    name: str = state.name
    return STATES.get(name, name.replace("_", " ").lower())


def listings(connection: Connection) -> list[Any]:
    future = connection.admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S)
    result = connection.wait(future, "can't list the groups")
    if result.errors and not result.valid:
        raise explain(result.errors[0].args[0], "can't list the groups", connection.bootstrap)
    return sorted(result.valid, key=lambda listing: str(listing.group_id))


def unknown(connection: Connection, name: str) -> Problem:
    known = [str(listing.group_id) for listing in listings(connection)]
    return Problem(
        f"there is no group {name!r}.", did_you_mean(name, known) or "'penstock group list' shows which there are."
    )


def find(connection: Connection, name: str) -> Group | None:
    """None if the broker has never heard of the group, or has forgotten it."""
    future = connection.admin.describe_consumer_groups([name], request_timeout=REQUEST_TIMEOUT_S)[name]
    try:
        found = connection.wait(future, f"can't describe {name!r}")
    except Problem as problem:
        if problem.kafka_error == KafkaError.GROUP_ID_NOT_FOUND:
            return None
        raise
    state = state_name(found.state)
    if state == "dead":
        return None
    members = tuple(_member(member) for member in found.members)
    coordinator = found.coordinator.id if found.coordinator is not None else None
    return Group(name, state, found.partition_assignor or "", coordinator, members)


def _member(found: Any) -> Member:
    places = found.assignment.topic_partitions if found.assignment else []
    partitions = tuple(sorted((str(place.topic), int(place.partition)) for place in places or []))
    return Member(found.member_id, found.client_id, found.host.lstrip("/"), found.group_instance_id, partitions)


def committed(connection: Connection, name: str) -> dict[Key, int]:
    """Where the group has committed; partitions without a commit are not in it."""
    request = [ConsumerGroupTopicPartitions(name)]
    future = connection.admin.list_consumer_group_offsets(request, request_timeout=REQUEST_TIMEOUT_S)[name]
    result = connection.wait(future, f"can't read the offsets of {name!r}")
    places = result.topic_partitions or []
    return {(str(p.topic), int(p.partition)): int(p.offset) for p in places if p.offset != OFFSET_INVALID}


def commit(connection: Connection, name: str, offsets: dict[Key, int]) -> None:
    places = [TopicPartition(*key, offset) for key, offset in offsets.items()]
    request = [ConsumerGroupTopicPartitions(name, places)]
    future = connection.admin.alter_consumer_group_offsets(request, request_timeout=REQUEST_TIMEOUT_S)[name]
    result = connection.wait(future, f"can't move {name!r}")
    for place in result.topic_partitions or []:
        if place.error is not None and place.error.code() != KafkaError.NO_ERROR:
            raise explain(place.error, f"can't move {name!r} on {place.topic}[{place.partition}]", connection.bootstrap)


def existing(connection: Connection, keys: Iterable[Key]) -> list[Key]:
    """Without the partitions of topics that were deleted since."""
    return [(t, p) for t, p in keys if t in connection.topics and p in connection.topics[t].partitions]
