"""The records of a consumer group, in the format of Kafka 4.2, and what they say.

    key  3  group           ->  the group epoch, and a hash of the topics it is for
    key  5  group, member   ->  who a member is, and what it subscribes to
    key  6  group           ->  the assignment epoch
    key  7  group, member   ->  what the member should hold
    key  8  group, member   ->  what it holds, its epoch, and what it must let go of
    key 16  group, pattern  ->  the topics that a pattern matched

Key 4 held the topics themselves before 4.1, and is skipped: the hash tells when they change.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from penstock.coordinator.machine import LogRecord
from penstock.groups.consumer.group import ResolvedPattern
from penstock.groups.consumer.member import ClassicSide, ConsumerMember
from penstock.groups.consumer.partitions import Partitions, from_list
from penstock.groups.consumer.states import MemberState
from penstock.protocol.codec import decode, decode_versioned, encode_versioned
from penstock.protocol.messages import group_records as messages

GROUP_EPOCH_KEY = 3
MEMBER_KEY = 5
ASSIGNMENT_EPOCH_KEY = 6
TARGET_KEY = 7
CURRENT_KEY = 8
PATTERN_KEY = 16

VALUE_VERSION = 0
_VERSION = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class GroupEpochStored:
    group_id: str
    epoch: int | None  # None: deleted, or no consumer group any more
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class AssignmentEpochStored:
    group_id: str
    epoch: int | None


@dataclass(frozen=True, slots=True)
class MemberStored:
    group_id: str
    member_id: str
    value: messages.ConsumerGroupMemberMetadataValue | None  # None: gone


@dataclass(frozen=True, slots=True)
class TargetStored:
    group_id: str
    member_id: str
    partitions: Partitions | None


@dataclass(frozen=True, slots=True)
class CurrentStored:
    group_id: str
    member_id: str
    value: messages.ConsumerGroupCurrentMemberAssignmentValue | None


@dataclass(frozen=True, slots=True)
class PatternStored:
    group_id: str
    regex: str
    resolved: ResolvedPattern | None  # None: nobody subscribes with it any more


ConsumerStored = GroupEpochStored | AssignmentEpochStored | MemberStored | TargetStored | CurrentStored | PatternStored


# ---- writing


def group_epoch_record(group_id: str, epoch: int | None, metadata_hash: int = 0) -> LogRecord:
    key = encode_versioned(messages.ConsumerGroupMetadataKey(group_id=group_id), GROUP_EPOCH_KEY)
    if epoch is None:
        return LogRecord(key, None)
    value = messages.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return LogRecord(key, encode_versioned(value, VALUE_VERSION))


def assignment_epoch_record(group_id: str, epoch: int | None) -> LogRecord:
    key = encode_versioned(messages.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), ASSIGNMENT_EPOCH_KEY)
    if epoch is None:
        return LogRecord(key, None)
    value = messages.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)
    return LogRecord(key, encode_versioned(value, VALUE_VERSION))


def member_record(group_id: str, member: ConsumerMember) -> LogRecord:
    value = messages.ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=None if member.classic is None else _classic_metadata(member.classic),
    )
    return LogRecord(_member_key(group_id, member.member_id), encode_versioned(value, VALUE_VERSION))


def _classic_metadata(classic: ClassicSide) -> messages.ClassicMemberMetadata:
    return messages.ClassicMemberMetadata(
        session_timeout_ms=classic.session_timeout_ms,
        supported_protocols=[
            messages.ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols
        ],
    )


def target_record(group_id: str, member_id: str, partitions: Partitions) -> LogRecord:
    value = messages.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=_listed(partitions))
    return LogRecord(_target_key(group_id, member_id), encode_versioned(value, VALUE_VERSION))


def current_record(group_id: str, member: ConsumerMember) -> LogRecord:
    value = messages.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        assigned_partitions=_listed(member.assigned),
        partitions_pending_revocation=_listed(member.pending_revocation),
    )
    return LogRecord(_current_key(group_id, member.member_id), encode_versioned(value, VALUE_VERSION))


def pattern_record(group_id: str, regex: str, resolved: ResolvedPattern | None) -> LogRecord:
    key = encode_versioned(
        messages.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), PATTERN_KEY
    )
    if resolved is None:
        return LogRecord(key, None)
    value = messages.ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return LogRecord(key, encode_versioned(value, VALUE_VERSION))


def member_tombstones(group_id: str, member_id: str) -> list[LogRecord]:
    keys = (_current_key(group_id, member_id), _target_key(group_id, member_id), _member_key(group_id, member_id))
    return [LogRecord(key, None) for key in keys]


def _member_key(group_id: str, member_id: str) -> bytes:
    return encode_versioned(messages.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), MEMBER_KEY)


def _target_key(group_id: str, member_id: str) -> bytes:
    return encode_versioned(
        messages.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), TARGET_KEY
    )


def _current_key(group_id: str, member_id: str) -> bytes:
    return encode_versioned(
        messages.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), CURRENT_KEY
    )


def _listed(partitions: Partitions) -> list[messages.TopicPartitions]:
    return [
        messages.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions[topic_id]))
        for topic_id in sorted(partitions)
    ]


# ---- reading


def read_consumer_record(key_type: int, record: LogRecord) -> ConsumerStored | None:
    """None for a record of a type that is not known here."""
    reader = _READERS.get(key_type)
    return None if reader is None else reader(record)


def _read_group_epoch(record: LogRecord) -> GroupEpochStored:
    key = decode(messages.ConsumerGroupMetadataKey, record.key, GROUP_EPOCH_KEY, _VERSION.size)
    if record.value is None:
        return GroupEpochStored(key.group_id, None)
    value = decode_versioned(messages.ConsumerGroupMetadataValue, record.value)
    return GroupEpochStored(key.group_id, value.epoch, value.metadata_hash)


def _read_assignment_epoch(record: LogRecord) -> AssignmentEpochStored:
    key = decode(messages.ConsumerGroupTargetAssignmentMetadataKey, record.key, ASSIGNMENT_EPOCH_KEY, _VERSION.size)
    if record.value is None:
        return AssignmentEpochStored(key.group_id, None)
    value = decode_versioned(messages.ConsumerGroupTargetAssignmentMetadataValue, record.value)
    return AssignmentEpochStored(key.group_id, value.assignment_epoch)


def _read_member(record: LogRecord) -> MemberStored:
    key = decode(messages.ConsumerGroupMemberMetadataKey, record.key, MEMBER_KEY, _VERSION.size)
    value = None
    if record.value is not None:
        value = decode_versioned(messages.ConsumerGroupMemberMetadataValue, record.value)
    return MemberStored(key.group_id, key.member_id, value)


def _read_target(record: LogRecord) -> TargetStored:
    key = decode(messages.ConsumerGroupTargetAssignmentMemberKey, record.key, TARGET_KEY, _VERSION.size)
    partitions = None
    if record.value is not None:
        value = decode_versioned(messages.ConsumerGroupTargetAssignmentMemberValue, record.value)
        partitions = from_list(value.topic_partitions)
    return TargetStored(key.group_id, key.member_id, partitions)


def _read_current(record: LogRecord) -> CurrentStored:
    key = decode(messages.ConsumerGroupCurrentMemberAssignmentKey, record.key, CURRENT_KEY, _VERSION.size)
    value = None
    if record.value is not None:
        value = decode_versioned(messages.ConsumerGroupCurrentMemberAssignmentValue, record.value)
    return CurrentStored(key.group_id, key.member_id, value)


def _read_pattern(record: LogRecord) -> PatternStored:
    key = decode(messages.ConsumerGroupRegularExpressionKey, record.key, PATTERN_KEY, _VERSION.size)
    resolved = None
    if record.value is not None:
        value = decode_versioned(messages.ConsumerGroupRegularExpressionValue, record.value)
        resolved = ResolvedPattern(frozenset(value.topics), value.version, value.timestamp)
    return PatternStored(key.group_id, key.regular_expression, resolved)


_READERS: dict[int, Callable[[LogRecord], ConsumerStored]] = {
    GROUP_EPOCH_KEY: _read_group_epoch,
    MEMBER_KEY: _read_member,
    ASSIGNMENT_EPOCH_KEY: _read_assignment_epoch,
    TARGET_KEY: _read_target,
    CURRENT_KEY: _read_current,
    PATTERN_KEY: _read_pattern,
}


def with_metadata(member: ConsumerMember, value: messages.ConsumerGroupMemberMetadataValue) -> ConsumerMember:
    """The member as a record of it says, with what it holds left as it is."""
    classic = value.classic_member_metadata
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topic_names=tuple(sorted(set(value.subscribed_topic_names))),
        topic_regex=value.subscribed_topic_regex,
        server_assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicSide(
            classic.session_timeout_ms,
            tuple((protocol.name, protocol.metadata) for protocol in classic.supported_protocols),
        ),
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        assigned=member.assigned,
        pending_revocation=member.pending_revocation,
    )


def member_state(value: int) -> MemberState:
    return MemberState(value) if value in MemberState.__members__.values() else MemberState.UNKNOWN
