"""What the coordinator reads of a consumer's metadata, which is the members' own business otherwise.

In a classic group that is only the topics, and only to know which offsets nobody needs any more. They stand first in
every version of the format, so that version 0 reads them all, those of the future too. In a consumer group a classic
member's metadata is read whole, and its assignment is written as a leader would have written it (KIP-848).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from penstock.protocol.codec import DecodeError, decode, encode_versioned
from penstock.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)

CONSUMER_PROTOCOL_TYPE = "consumer"
VERSION_MAX = 3
_VERSION = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """None for bytes that are not a consumer's subscription."""
    try:
        return frozenset(decode(ConsumerProtocolSubscription, metadata, 0, _VERSION.size).topics)
    except DecodeError:
        return None


def all_subscribed_topics(metadata_of_members: Iterable[bytes]) -> frozenset[str] | None:
    """None if that of any member can't be read: the group may then be subscribed to anything."""
    together: set[str] = set()
    for metadata in metadata_of_members:
        topics = subscribed_topics(metadata)
        if topics is None:
            return None
        together |= topics
    return frozenset(together)


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription | None:
    """None for bytes that are not a consumer's subscription."""
    version = _version(metadata)
    if version is None:
        return None
    try:
        return decode(ConsumerProtocolSubscription, metadata, version, _VERSION.size)
    except DecodeError:
        return None


def read_assignment(assignment: bytes) -> ConsumerProtocolAssignment | None:
    """None for bytes that are not an assignment. A member that was given nothing yet has no bytes at all."""
    if not assignment:
        return ConsumerProtocolAssignment()
    version = _version(assignment)
    if version is None:
        return None
    try:
        return decode(ConsumerProtocolAssignment, assignment, version, _VERSION.size)
    except DecodeError:
        return None


def write_assignment(partitions: list[TopicPartition], *, like: bytes) -> bytes:
    """In the version of the member's own metadata, which it is sure to understand."""
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=partitions), _version(like) or 0)


def _version(versioned: bytes) -> int | None:
    """The version to read these bytes in, the newest known for one of the future; None if there is none."""
    if len(versioned) < _VERSION.size:
        return None
    version: int = _VERSION.unpack_from(versioned)[0]
    return None if version < 0 else min(version, VERSION_MAX)
