"""DescribeLogDirs: how much room partitions take in the data folder, how much is left, and what is kept for groups."""

from __future__ import annotations

import os

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    RetentionHold,
)
from penstock.replication.holds import Hold
from penstock.server.context import Call, Context


def handle(context: Context, call: Call[DescribeLogDirsRequest]) -> DescribeLogDirsResponse:
    folder = os.path.abspath(context.partitions.data_dir)
    result = DescribeLogDirsResult(log_dir=folder, topics=_topics(context, call.request))
    try:
        space = os.statvfs(folder)
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    else:
        result.total_bytes = space.f_blocks * space.f_frsize
        result.usable_bytes = space.f_bavail * space.f_frsize
    return DescribeLogDirsResponse(results=[result])


def _topics(context: Context, request: DescribeLogDirsRequest) -> list[DescribeLogDirsTopic]:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    topics: dict[str, DescribeLogDirsTopic] = {}
    holds = context.upkeep.holds()
    for (name, index), size in sorted(context.partitions.sizes().items()):
        if wanted is None or (name, index) in wanted:
            topic = topics.setdefault(name, DescribeLogDirsTopic(name=name))
            hold = holds.get((name, index))
            topic.partitions.append(
                DescribeLogDirsPartition(
                    partition_index=index, partition_size=size, retention_hold=_shown(hold) if hold else None
                )
            )
    return list(topics.values())


def _shown(hold: Hold) -> RetentionHold:
    return RetentionHold(
        group_id=hold.group,
        committed_offset=hold.committed,
        held_bytes=hold.held_bytes,
        over_limit=hold.over_limit,
    )
