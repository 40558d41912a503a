"""Fetch (1): record batches from a partition's log, to consumers and to followers."""

from __future__ import annotations

from typing import Any

from penstock.protocol.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    Message,
    Struct,
    array,
    field,
    struct,
)


class ReplicaState(Struct):
    replica_id: int = field(INT32, "15+", default=-1)
    replica_epoch: int = field(INT64, "15+", default=-1)


class FetchPartition(Struct):
    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, "9+", default=-1)
    fetch_offset: int = field(INT64)
    last_fetched_epoch: int = field(INT32, "12+", default=-1)
    log_start_offset: int = field(INT64, "5+", default=-1)
    partition_max_bytes: int = field(INT32)
    replica_directory_id: bytes = field(UUID, "17+", tag=0)
    high_watermark: int = field(INT64, "18+", tag=1, default=0x7FFFFFFFFFFFFFFF)


class FetchTopic(Struct):
    topic: str = field(STRING, "0-12")
    topic_id: bytes = field(UUID, "13+")
    partitions: list[FetchPartition] = field(array(FetchPartition))


class ForgottenTopic(Struct):
    topic: str = field(STRING, "7-12")
    topic_id: bytes = field(UUID, "13+")
    partitions: list[int] = field(array(INT32), "7+")


class FetchRequest(Message, api_key=1, versions="4-18", flexible="12+", elements_max=50_000):
    cluster_id: str | None = field(STRING, "12+", nullable="12+", tag=0, default=None)
    replica_id: int = field(INT32, "0-14", default=-1)
    replica_state: ReplicaState | None = field(struct(ReplicaState), "15+", tag=1, default=None)
    max_wait_ms: int = field(INT32)
    min_bytes: int = field(INT32)
    max_bytes: int = field(INT32, "3+", default=0x7FFFFFFF)
    isolation_level: int = field(INT8, "4+")
    session_id: int = field(INT32, "7+")
    session_epoch: int = field(INT32, "7+", default=-1)
    topics: list[FetchTopic] = field(array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = field(array(ForgottenTopic), "7+")
    rack_id: str = field(STRING, "11+")


class EpochEndOffset(Struct):
    epoch: int = field(INT32, "12+", default=-1)
    end_offset: int = field(INT64, "12+", default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(INT32, "12+", default=-1)
    leader_epoch: int = field(INT32, "12+", default=-1)


class SnapshotId(Struct):
    end_offset: int = field(INT64, default=-1)
    epoch: int = field(INT32, default=-1)


class AbortedTransaction(Struct):
    producer_id: int = field(INT64, "4+")
    first_offset: int = field(INT64, "4+")


class PartitionData(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    high_watermark: int = field(INT64)
    last_stable_offset: int = field(INT64, "4+", default=-1)
    log_start_offset: int = field(INT64, "5+", default=-1)
    diverging_epoch: EpochEndOffset | None = field(struct(EpochEndOffset), "12+", tag=0, default=None)
    current_leader: LeaderIdAndEpoch | None = field(struct(LeaderIdAndEpoch), "12+", tag=1, default=None)
    snapshot_id: SnapshotId | None = field(struct(SnapshotId), "12+", tag=2, default=None)
    aborted_transactions: list[AbortedTransaction] | None = field(array(AbortedTransaction), "4+", nullable="4+")
    preferred_read_replica: int = field(INT32, "11+", default=-1)
    records: Any = field(RECORDS, nullable="0+")  # a memoryview when read; when written, anything that has a size


class FetchableTopicResponse(Struct):
    topic: str = field(STRING, "0-12")
    topic_id: bytes = field(UUID, "13+")
    partitions: list[PartitionData] = field(array(PartitionData))


class NodeEndpoint(Struct):
    node_id: int = field(INT32, "16+")
    host: str = field(STRING, "16+")
    port: int = field(INT32, "16+")
    rack: str | None = field(STRING, "16+", nullable="16+", default=None)


class FetchResponse(Message, api_key=1, versions="4-18", flexible="12+"):
    throttle_time_ms: int = field(INT32, "1+")
    error_code: int = field(INT16, "7+")
    session_id: int = field(INT32, "7+")
    responses: list[FetchableTopicResponse] = field(array(FetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "16+", tag=0)
