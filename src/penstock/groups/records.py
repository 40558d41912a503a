"""The records of `__consumer_offsets`, in Kafka's own format.

Key and value are each an int16 version and a body; the version of a key is also its type:

    key    1  group, topic, partition   ->  value 4 (1 with an expire timestamp)   a committed offset
    key    2  group                     ->  value 3                                a classic group and its members

Key 0 is how committed offsets were keyed before 0.8.3, and is read as key 1. `consumer.records` has those of consumer
groups. Other keys belong to kinds of groups that are not ours, or to the future; they are skipped, so that such a log
can still be read (KIP-915).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from penstock.coordinator.machine import LogRecord
from penstock.groups.consumer.records import ConsumerStored, read_consumer_record
from penstock.groups.offsets import NO_EXPIRE_TIMESTAMP, OffsetAndMetadata
from penstock.protocol.codec import DecodeError, decode, decode_versioned, encode_versioned
from penstock.protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

LEGACY_OFFSET_COMMIT_KEY = 0
OFFSET_COMMIT_KEY = 1
GROUP_METADATA_KEY = 2

OFFSET_COMMIT_VALUE = 4
OFFSET_COMMIT_VALUE_WITH_EXPIRE_TIMESTAMP = 1  # the only version that has the field
GROUP_METADATA_VALUE = 3  # version 4 would only add tagged fields, and older brokers could not read it

_VERSION = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class OffsetCommitted:
    group_id: str
    topic: str
    partition: int
    offset: OffsetAndMetadata | None  # None: deleted or expired


@dataclass(frozen=True, slots=True)
class GroupStored:
    group_id: str
    value: GroupMetadataValue | None  # None: deleted


def group_record(group_id: str, value: GroupMetadataValue | None) -> LogRecord:
    key = encode_versioned(GroupMetadataKey(group=group_id), GROUP_METADATA_KEY)
    return LogRecord(key, None if value is None else encode_versioned(value, GROUP_METADATA_VALUE))


def offset_record(group_id: str, topic: str, partition: int, offset: OffsetAndMetadata | None) -> LogRecord:
    key = encode_versioned(OffsetCommitKey(group=group_id, topic=topic, partition=partition), OFFSET_COMMIT_KEY)
    if offset is None:
        return LogRecord(key, None)
    value = OffsetCommitValue(
        offset=offset.committed_offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_timestamp=offset.commit_timestamp_ms,
        expire_timestamp=offset.expire_timestamp_ms,
        topic_id=offset.topic_id,
    )
    expires = offset.expire_timestamp_ms != NO_EXPIRE_TIMESTAMP
    return LogRecord(
        key,
        encode_versioned(value, OFFSET_COMMIT_VALUE_WITH_EXPIRE_TIMESTAMP if expires else OFFSET_COMMIT_VALUE),
    )


def read_record(record: LogRecord) -> OffsetCommitted | GroupStored | ConsumerStored | None:
    """None for a record of a type that is not known here."""
    if len(record.key) < _VERSION.size:
        raise DecodeError("the key of a group record has no version")
    version: int = _VERSION.unpack_from(record.key)[0]
    if version in (LEGACY_OFFSET_COMMIT_KEY, OFFSET_COMMIT_KEY):
        key = decode(OffsetCommitKey, record.key, version, _VERSION.size)
        offset = None if record.value is None else _offset(decode_versioned(OffsetCommitValue, record.value))
        return OffsetCommitted(key.group, key.topic, key.partition, offset)
    if version == GROUP_METADATA_KEY:
        group_id = decode(GroupMetadataKey, record.key, version, _VERSION.size).group
        value = None if record.value is None else decode_versioned(GroupMetadataValue, record.value)
        return GroupStored(group_id, value)
    return read_consumer_record(version, record)


def _offset(value: OffsetCommitValue) -> OffsetAndMetadata:
    return OffsetAndMetadata(
        committed_offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp_ms=value.commit_timestamp,
        expire_timestamp_ms=value.expire_timestamp,
        topic_id=value.topic_id,
    )
