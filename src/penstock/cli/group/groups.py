"""What a broker knows of a group, asked through the admin client."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
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


CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class Member:
    id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: tuple[Key, ...]
    # Of a consumer group (KIP-848):
    target: tuple[Key, ...] | None = None  # what it is to have, once the others have let go of it
    epoch: int | None = None
    state: str | None = None


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    state: str
    assignor: str
    coordinator: int | None
    members: tuple[Member, ...]
    kind: str
    epoch: int | None = None
    assignment_epoch: int | None = None


def state_name(state: Any, kind: str) -> str:
    name: str = state.name
    if name == "UNKNOWN" and kind == CONSUMER:
        return "rebalancing"  # librdkafka knows the names of the states of classic groups
    return STATES.get(name, name.replace("_", " ").lower())


def kind_name(kind: Any) -> str:
    return "-" if kind is None else str(kind.name).lower()


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
    kind = kind_name(found.type)
    state = state_name(found.state, kind)
    if state == "dead":
        return None
    members = tuple(_member(member) for member in found.members)
    coordinator = found.coordinator.id if found.coordinator is not None else None
    group = Group(name, state, found.partition_assignor or "", coordinator, members, kind)
    return _with_epochs(group, found.coordinator) if kind == CONSUMER and found.coordinator is not None else group


def _member(found: Any) -> Member:
    target = _places(found.target_assignment) if found.target_assignment else None
    host = found.host.lstrip("/")
    instance_id = found.group_instance_id
    return Member(found.member_id, found.client_id, host, instance_id, _places(found.assignment), target)


def _places(assignment: Any) -> tuple[Key, ...]:
    places = assignment.topic_partitions if assignment else []
    return tuple(sorted((str(place.topic), int(place.partition)) for place in places or []))


def _with_epochs(group: Group, coordinator: Any) -> Group:
    from penstock.cli.group.epochs import ask_coordinator, places

    found = ask_coordinator(coordinator, group.name)
    if found is None:
        return group
    members = []
    for member in found.members:
        owned, target = places(member.assignment), places(member.target_assignment)
        settled = owned == target and member.member_epoch == found.assignment_epoch
        members.append(
            Member(
                member.member_id,
                member.client_id,
                member.client_host.lstrip("/"),
                member.instance_id,
                tuple(sorted(owned)),
                tuple(sorted(target)),
                member.member_epoch,
                "stable" if settled else "reconciling",
            )
        )
    return replace(
        group,
        state=found.group_state.lower(),
        members=tuple(members),
        epoch=found.group_epoch,
        assignment_epoch=found.assignment_epoch,
    )


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
