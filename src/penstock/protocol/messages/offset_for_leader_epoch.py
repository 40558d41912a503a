"""OffsetForLeaderEpoch (23): where a leader epoch ends in the leader's log (KIP-320)."""

from __future__ import annotations

from penstock.protocol.schema import INT16, INT32, INT64, STRING, Message, Struct, array, field


class OffsetForLeaderPartition(Struct):
    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, "2+", default=-1)
    leader_epoch: int = field(INT32)


class OffsetForLeaderTopic(Struct):
    topic: str = field(STRING)
    partitions: list[OffsetForLeaderPartition] = field(array(OffsetForLeaderPartition))


class OffsetForLeaderEpochRequest(Message, api_key=23, versions="2-4", flexible="4+", elements_max=50_000):
    replica_id: int = field(INT32, "3+", default=-2)
    topics: list[OffsetForLeaderTopic] = field(array(OffsetForLeaderTopic))


class EpochEndOffset(Struct):
    error_code: int = field(INT16)
    partition: int = field(INT32)
    leader_epoch: int = field(INT32, "1+", default=-1)
    end_offset: int = field(INT64, default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = field(STRING)
    partitions: list[EpochEndOffset] = field(array(EpochEndOffset))


class OffsetForLeaderEpochResponse(Message, api_key=23, versions="2-4", flexible="4+"):
    throttle_time_ms: int = field(INT32, "2+")
    topics: list[OffsetForLeaderTopicResult] = field(array(OffsetForLeaderTopicResult))
