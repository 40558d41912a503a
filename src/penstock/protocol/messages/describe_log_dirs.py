"""DescribeLogDirs (35): the directories of a broker, and how much each partition holds there.

What a partition keeps for a group (`retention.hold.group`) is our own: a tagged field that other clients pass over.
"""

from __future__ import annotations

from penstock.protocol.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    OWN_TAGS_FROM,
    STRING,
    Message,
    Struct,
    array,
    field,
    struct,
)


class DescribableLogDirTopic(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class DescribeLogDirsRequest(Message, api_key=35, versions="1-5", flexible="2+"):
    topics: list[DescribableLogDirTopic] | None = field(array(DescribableLogDirTopic), nullable="0+")


class RetentionHold(Struct):
    group_id: str = field(STRING)
    committed_offset: int = field(INT64, default=-1)
    held_bytes: int = field(INT64)
    over_limit: bool = field(BOOL)


class DescribeLogDirsPartition(Struct):
    partition_index: int = field(INT32)
    partition_size: int = field(INT64)
    offset_lag: int = field(INT64)
    is_future_key: bool = field(BOOL)
    retention_hold: RetentionHold | None = field(struct(RetentionHold), "2+", tag=OWN_TAGS_FROM, default=None)


class DescribeLogDirsTopic(Struct):
    name: str = field(STRING)
    partitions: list[DescribeLogDirsPartition] = field(array(DescribeLogDirsPartition))


class DescribeLogDirsResult(Struct):
    error_code: int = field(INT16)
    log_dir: str = field(STRING)
    topics: list[DescribeLogDirsTopic] = field(array(DescribeLogDirsTopic))
    total_bytes: int = field(INT64, "4+", default=-1)
    usable_bytes: int = field(INT64, "4+", default=-1)
    is_cordoned: bool = field(BOOL, "5+")


class DescribeLogDirsResponse(Message, api_key=35, versions="1-5", flexible="2+"):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16, "3+")
    results: list[DescribeLogDirsResult] = field(array(DescribeLogDirsResult))
