"""The records of __consumer_offsets: committed offsets, and the groups' own state.

A key and a value are each stored as an int16 version and then the body. The version of a key is also its type:
0 and 1 are a committed offset (only 1 is written), 2 is a group's metadata.
"""

from __future__ import annotations

from penstock.protocol.schema import BYTES, INT32, INT64, STRING, UUID, Message, Struct, array, field


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
