"""What a new topic, or a topic with more partitions, would be; or the error that says why it can't. Pure.

The rules, their order and the words in which they are refused are those of Kafka's controller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.cluster.coordination import DATA_BYTES_MAX
from penstock.cluster.model import ClusterImage, PartitionState, TopicState
from penstock.cluster.nodes import size_at_most
from penstock.cluster.placement import place
from penstock.cluster.reassignments import target
from penstock.cluster.settings import BrokerSettings, SettingError, validate_topic_config
from penstock.cluster.topic_names import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS, NameIndex, check_topic_name
from penstock.protocol.errors import ApiError, ErrorCode

PARTITIONS_PER_REQUEST_MAX = 10_000
DEFAULT = -1  # as a number of partitions or replicas: the broker's default

Assignment = tuple[int, Sequence[int]]  # a partition's index, and its replicas


@dataclass(frozen=True, slots=True)
class NewTopic:
    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Sequence[Assignment] = ()
    config: Mapping[str, str | None] = field(default_factory=dict)


def check_request_size(topics: Sequence[NewTopic], settings: BrokerSettings) -> None:
    default: int = settings.get("num.partitions")
    total = sum(len(t.assignments) or (default if t.partitions == DEFAULT else max(t.partitions, 0)) for t in topics)
    if total > PARTITIONS_PER_REQUEST_MAX:
        raise ApiError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def plan_topic(
    new: NewTopic, topic_id: bytes, image: ClusterImage, settings: BrokerSettings, names: NameIndex, start: int
) -> TopicState:
    check_topic_name(new.name)
    if new.name == CLUSTER_METADATA_TOPIC:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {new.name} is prohibited.")
    if new.name in image.topics:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{new.name}' already exists.")
    if other := names.collision(new.name):
        message = f"Topic '{new.name}' collides with existing topic: {other}"
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
    config = _checked_config(new.config, settings)
    replicas = _assigned(new, image) if new.assignments else _placed(new, image, settings, start)
    partitions = tuple(_new_partition(index, each, image) for index, each in enumerate(replicas))
    return fitting(TopicState(new.name, topic_id, partitions, config, new.name in INTERNAL_TOPICS))


def plan_partitions(
    topic: TopicState, count: int, assignments: Sequence[Sequence[int]] | None, image: ClusterImage, start: int
) -> TopicState:
    existing = len(topic.partitions)
    if count == existing:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {existing} partition(s).")
    if count < existing:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {existing} partition(s); {count} would not be an increase.",
        )
    if count > PARTITIONS_PER_REQUEST_MAX:
        raise ApiError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
    additional = count - existing
    replication_factor = len(target(topic.partitions[0]))
    if assignments is None:
        brokers = image.brokers.values()
        replicas = place(brokers, additional, replication_factor, first_partition=existing, start=start)
    else:
        if len(assignments) != additional:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {additional} additional partition(s), "
                f"but only {len(assignments)} assignment(s) were specified.",
            )
        for each in assignments:
            check_assignment(each, replication_factor, image)
        replicas = [tuple(each) for each in assignments]
    added = tuple(_new_partition(existing + index, each, image) for index, each in enumerate(replicas))
    return fitting(replace(topic, partitions=topic.partitions + added), topic)


def fitting(topic: TopicState, before: TopicState | None = None) -> TopicState:
    """A topic is one node, and must still be one whoever leads and follows. One that is too large may always shrink."""
    size = size_at_most(topic)
    if size > DATA_BYTES_MAX and (before is None or size > size_at_most(before)):
        problem = f"{len(topic.partitions)} partitions, their replicas and the settings are too much for one topic"
        raise ApiError(ErrorCode.POLICY_VIOLATION, problem)
    return topic


def checked_topic_config(config: Mapping[str, str], settings: BrokerSettings) -> Mapping[str, str]:
    try:
        validate_topic_config(config, settings)
    except SettingError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return config


def _checked_config(config: Mapping[str, str | None], settings: BrokerSettings) -> Mapping[str, str]:
    if nulls := [name for name, value in config.items() if value is None]:
        message = f"Null value not supported for topic configs: {','.join(nulls)}"
        raise ApiError(ErrorCode.INVALID_CONFIG, message)
    return checked_topic_config({name: value for name, value in config.items() if value is not None}, settings)


def _assigned(new: NewTopic, image: ClusterImage) -> list[tuple[int, ...]]:
    for given, what in ((new.replication_factor, "replication factor"), (new.partitions, "numPartitions")):
        if given != DEFAULT:
            message = f"A manual partition assignment was specified, but {what} was not set to -1."
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
    by_index: dict[int, tuple[int, ...]] = {}
    replication_factor = None
    for index, replicas in new.assignments:
        if index in by_index:
            message = f"Found multiple manual partition assignments for partition {index}"
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        check_assignment(replicas, replication_factor, image)
        by_index[index] = tuple(replicas)
        replication_factor = len(replicas)
    if by_index.keys() != set(range(len(by_index))):
        message = "partitions should be a consecutive 0-based integer sequence"
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return [by_index[index] for index in range(len(by_index))]


def _placed(new: NewTopic, image: ClusterImage, settings: BrokerSettings, start: int) -> list[tuple[int, ...]]:
    if new.replication_factor < DEFAULT or new.replication_factor == 0:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if new.partitions < DEFAULT or new.partitions == 0:
        message = "Number of partitions was set to an invalid non-positive value."
        raise ApiError(ErrorCode.INVALID_PARTITIONS, message)
    partitions = settings.get("num.partitions") if new.partitions == DEFAULT else new.partitions
    replicas = new.replication_factor
    if replicas == DEFAULT:
        staying = sum(not broker.stopping for broker in image.brokers.values())
        replicas = min(settings.get("default.replication.factor"), max(staying, 1))
    return place(image.brokers.values(), partitions, replicas, start=start)


def check_assignment(replicas: Sequence[int], replication_factor: int | None, image: ClusterImage) -> None:
    reason = None
    if not replicas:
        reason = "an empty replica list."
    elif unknown := sorted(set(replicas) - image.brokers.keys()):
        reason = f"broker {unknown[0]}, but no such broker is registered."
    elif len(set(replicas)) != len(replicas):
        twice = min(replica for replica, count in Counter(replicas).items() if count > 1)
        reason = f"the broker {twice} more than once."
    elif replication_factor not in (None, len(replicas)):
        reason = (
            f"a partition with {len(replicas)} replica(s), but this is not consistent with previous partitions, "
            f"which have {replication_factor} replica(s)."
        )
    if reason:
        message = f"The manual partition assignment includes {reason}"
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _new_partition(index: int, replicas: tuple[int, ...], image: ClusterImage) -> PartitionState:
    isr = tuple(replica for replica in replicas if replica in image.brokers)
    assert isr, f"partition {index} has no live replica"
    return PartitionState(leader=isr[0], leader_epoch=0, replicas=replicas, isr=isr)
