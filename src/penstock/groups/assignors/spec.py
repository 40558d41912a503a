"""What an assignor is asked: who subscribes to what, what everyone has now, and how the topics are cut."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

Assignment = dict[str, dict[bytes, frozenset[int]]]  # of every member, by topic id


class MemberSpec(NamedTuple):
    instance_id: str | None
    rack_id: str | None
    topic_ids: frozenset[bytes]
    owned: Mapping[bytes, frozenset[int]]  # its part of the last assignment


class TopicShape(NamedTuple):
    topic_id: bytes
    name: str
    partitions: int
    racks: tuple[frozenset[str], ...]  # of each partition's replicas; empty when no broker has one


class Assignor(Protocol):
    """Pure and deterministic: the same question always has the same answer."""

    def assign(self, members: Mapping[str, MemberSpec], topics: Mapping[bytes, TopicShape]) -> Assignment:
        """Each partition that anyone subscribes to, once. Every member has an entry, which may be empty."""


def has_replica(topic: TopicShape, partition: int, rack_id: str | None) -> bool:
    """Whether a member of this rack could read the partition without leaving it."""
    return rack_id is not None and partition < len(topic.racks) and rack_id in topic.racks[partition]
