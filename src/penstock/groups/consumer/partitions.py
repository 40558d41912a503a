"""Sets of partitions, by topic id: what a member holds, must let go of, or should hold. No topic has an empty set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

Partitions = Mapping[bytes, frozenset[int]]

NO_PARTITIONS: Partitions = {}
_NONE: frozenset[int] = frozenset()


class OfTopic(Protocol):
    """As requests and records list them."""

    topic_id: bytes
    partitions: list[int]


def from_list(topics: Iterable[OfTopic]) -> Partitions:
    found: dict[bytes, frozenset[int]] = {}
    for topic in topics:
        if topic.partitions:
            found[topic.topic_id] = found.get(topic.topic_id, _NONE) | frozenset(topic.partitions)
    return found


def holds_all(partitions: Partitions, some: Partitions) -> bool:
    return all(some[topic_id] <= partitions.get(topic_id, _NONE) for topic_id in some)


def holds_any(partitions: Partitions, some: Partitions) -> bool:
    return any(not some[topic_id].isdisjoint(partitions.get(topic_id, _NONE)) for topic_id in some)


def common(a: Partitions, b: Partitions) -> Partitions:
    return _kept({topic_id: a[topic_id] & b[topic_id] for topic_id in a.keys() & b.keys()})


def without(a: Partitions, b: Partitions) -> Partitions:
    return _kept({topic_id: partitions - b.get(topic_id, _NONE) for topic_id, partitions in a.items()})


def together(a: Partitions, b: Partitions) -> Partitions:
    if not a or not b:
        return a or b
    return {topic_id: a.get(topic_id, _NONE) | b.get(topic_id, _NONE) for topic_id in a.keys() | b.keys()}


def of_topics(partitions: Partitions, topic_ids: frozenset[bytes]) -> Partitions:
    return {topic_id: each for topic_id, each in partitions.items() if topic_id in topic_ids}


def _kept(partitions: dict[bytes, frozenset[int]]) -> Partitions:
    return {topic_id: each for topic_id, each in partitions.items() if each}
