"""OffsetFetch (9): the offsets that groups have committed."""

from __future__ import annotations

from penstock.protocol.schema import BOOL, INT16, INT32, INT64, STRING, UUID, Message, Struct, array, field


class OffsetFetchRequestTopic(Struct):
    name: str = field(STRING, "0-7")
    partition_indexes: list[int] = field(array(INT32), "0-7")


class OffsetFetchRequestTopics(Struct):
    name: str = field(STRING, "8-9")
    topic_id: bytes = field(UUID, "10+")
    partition_indexes: list[int] = field(array(INT32), "8+")


class OffsetFetchRequestGroup(Struct):
    group_id: str = field(STRING, "8+")
    member_id: str | None = field(STRING, "9+", nullable="9+", default=None)
    member_epoch: int = field(INT32, "9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = field(array(OffsetFetchRequestTopics), "8+", nullable="8+")


class OffsetFetchRequest(Message, api_key=9, versions="1-10", flexible="6+", elements_max=15_000):
    group_id: str = field(STRING, "0-7")
    topics: list[OffsetFetchRequestTopic] | None = field(array(OffsetFetchRequestTopic), "0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = field(array(OffsetFetchRequestGroup), "8+")
    require_stable: bool = field(BOOL, "7+")


class OffsetFetchResponsePartition(Struct):
    partition_index: int = field(INT32, "0-7")
    committed_offset: int = field(INT64, "0-7")
    committed_leader_epoch: int = field(INT32, "5-7", default=-1)
    metadata: str | None = field(STRING, "0-7", nullable="0-7")
    error_code: int = field(INT16, "0-7")


class OffsetFetchResponseTopic(Struct):
    name: str = field(STRING, "0-7")
    partitions: list[OffsetFetchResponsePartition] = field(array(OffsetFetchResponsePartition), "0-7")


class OffsetFetchResponsePartitions(Struct):
    partition_index: int = field(INT32, "8+")
    committed_offset: int = field(INT64, "8+")
    committed_leader_epoch: int = field(INT32, "8+", default=-1)
    metadata: str | None = field(STRING, "8+", nullable="8+")
    error_code: int = field(INT16, "8+")


class OffsetFetchResponseTopics(Struct):
    name: str = field(STRING, "8-9")
    topic_id: bytes = field(UUID, "10+")
    partitions: list[OffsetFetchResponsePartitions] = field(array(OffsetFetchResponsePartitions), "8+")


class OffsetFetchResponseGroup(Struct):
    group_id: str = field(STRING, "8+")
    topics: list[OffsetFetchResponseTopics] = field(array(OffsetFetchResponseTopics), "8+")
    error_code: int = field(INT16, "8+")


class OffsetFetchResponse(Message, api_key=9, versions="1-10", flexible="6+"):
    throttle_time_ms: int = field(INT32, "3+")
    topics: list[OffsetFetchResponseTopic] = field(array(OffsetFetchResponseTopic), "0-7")
    error_code: int = field(INT16, "2-7")
    groups: list[OffsetFetchResponseGroup] = field(array(OffsetFetchResponseGroup), "8+")
