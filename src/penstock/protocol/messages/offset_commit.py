"""OffsetCommit (8): how far a group has read, partition by partition."""

from __future__ import annotations

from penstock.protocol.schema import INT16, INT32, INT64, STRING, UUID, Message, Struct, array, field


class OffsetCommitRequestPartition(Struct):
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, "6+", default=-1)
    committed_metadata: str | None = field(STRING, nullable="0+")


class OffsetCommitRequestTopic(Struct):
    name: str = field(STRING, "0-9")
    topic_id: bytes = field(UUID, "10+")
    partitions: list[OffsetCommitRequestPartition] = field(array(OffsetCommitRequestPartition))


class OffsetCommitRequest(Message, api_key=8, versions="2-10", flexible="8+", elements_max=50_000):
    group_id: str = field(STRING)
    generation_id_or_member_epoch: int = field(INT32, "1+", default=-1)
    member_id: str = field(STRING, "1+")
    group_instance_id: str | None = field(STRING, "7+", nullable="7+", default=None)
    retention_time_ms: int = field(INT64, "2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = field(array(OffsetCommitRequestTopic))


class OffsetCommitResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class OffsetCommitResponseTopic(Struct):
    name: str = field(STRING, "0-9")
    topic_id: bytes = field(UUID, "10+")
    partitions: list[OffsetCommitResponsePartition] = field(array(OffsetCommitResponsePartition))


class OffsetCommitResponse(Message, api_key=8, versions="2-10", flexible="8+"):
    throttle_time_ms: int = field(INT32, "3+")
    topics: list[OffsetCommitResponseTopic] = field(array(OffsetCommitResponseTopic))
