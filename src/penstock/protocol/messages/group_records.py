"""The records of __consumer_offsets: committed offsets, and the groups' own state.

A key and a value are each stored as an int16 version and then the body. The version of a key is also its type:
0 and 1 are a committed offset (only 1 is written), 2 is a classic group's metadata, 3 to 8 and 16 are a consumer
group's (KIP-848).
"""

from __future__ import annotations

from penstock.protocol.schema import BYTES, INT8, INT32, INT64, STRING, UUID, Message, Struct, array, field, struct


class OffsetCommitKey(Message, versions="0-1", flexible=None):
    group: str = field(STRING)
    topic: str = field(STRING)
    partition: int = field(INT32)


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    offset: int = field(INT64)
    leader_epoch: int = field(INT32, "3+", default=-1)
    metadata: str = field(STRING)
    commit_timestamp: int = field(INT64)
    expire_timestamp: int = field(INT64, "1", default=-1)
    topic_id: bytes = field(UUID, "4+", tag=0)


class GroupMetadataKey(Message, versions="2", flexible=None):
    group: str = field(STRING)


class MemberMetadata(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    rebalance_timeout: int = field(INT32, "1+", default=-1)
    session_timeout: int = field(INT32)
    subscription: bytes = field(BYTES)
    assignment: bytes = field(BYTES)


class GroupMetadataValue(Message, versions="0-4", flexible="4+"):
    protocol_type: str = field(STRING)
    generation: int = field(INT32)
    protocol: str | None = field(STRING, nullable="0+")
    leader: str | None = field(STRING, nullable="0+")
    current_state_timestamp: int = field(INT64, "2+", default=-1)
    members: list[MemberMetadata] = field(array(MemberMetadata))


class ConsumerGroupMetadataKey(Message, versions="3", flexible=None):
    group_id: str = field(STRING)


class ConsumerGroupMetadataValue(Message, versions="0", flexible="0+"):
    epoch: int = field(INT32)
    metadata_hash: int = field(INT64, tag=0)


class ConsumerGroupMemberMetadataKey(Message, versions="5", flexible=None):
    group_id: str = field(STRING)
    member_id: str = field(STRING)


class ClassicProtocol(Struct):
    name: str = field(STRING)
    metadata: bytes = field(BYTES)


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = field(INT32)
    supported_protocols: list[ClassicProtocol] = field(array(ClassicProtocol))


class ConsumerGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    instance_id: str | None = field(STRING, nullable="0+", default=None)
    rack_id: str | None = field(STRING, nullable="0+", default=None)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: list[str] = field(array(STRING))
    subscribed_topic_regex: str | None = field(STRING, nullable="0+", default=None)
    rebalance_timeout_ms: int = field(INT32, default=-1)
    server_assignor: str | None = field(STRING, nullable="0+", default=None)
    classic_member_metadata: ClassicMemberMetadata | None = field(
        struct(ClassicMemberMetadata), nullable="0+", tag=0, default=None
    )


class ConsumerGroupTargetAssignmentMetadataKey(Message, versions="6", flexible=None):
    group_id: str = field(STRING)


class ConsumerGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+"):
    assignment_epoch: int = field(INT32)


class TopicPartitions(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[int] = field(array(INT32))


class ConsumerGroupTargetAssignmentMemberKey(Message, versions="7", flexible=None):
    group_id: str = field(STRING)
    member_id: str = field(STRING)


class ConsumerGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartitions] = field(array(TopicPartitions))


class ConsumerGroupCurrentMemberAssignmentKey(Message, versions="8", flexible=None):
    group_id: str = field(STRING)
    member_id: str = field(STRING)


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    member_epoch: int = field(INT32)
    previous_member_epoch: int = field(INT32)
    state: int = field(INT8)
    assigned_partitions: list[TopicPartitions] = field(array(TopicPartitions))
    partitions_pending_revocation: list[TopicPartitions] = field(array(TopicPartitions))


class ConsumerGroupRegularExpressionKey(Message, versions="16", flexible=None):
    group_id: str = field(STRING)
    regular_expression: str = field(STRING)


class ConsumerGroupRegularExpressionValue(Message, versions="0", flexible="0+"):
    topics: list[str] = field(array(STRING))
    version: int = field(INT64)
    timestamp: int = field(INT64)
