"""What partitions keep for the group that retention waits for (`retention.hold.group`), as their leaders tell it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.cli.connection import REQUEST_TIMEOUT_S, Key
from penstock.cli.raw import Address, ask
from penstock.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

VERSION = 4


@dataclass(frozen=True, slots=True)
class Hold:
    group: str
    committed: int | None
    held_bytes: int
    over_limit: bool  # what the group has not committed was deleted

    def as_document(self) -> dict[str, Any]:
        return {
            "group": self.group, "committed": self.committed, "held_bytes": self.held_bytes,
            "over_limit": self.over_limit,
        }  # fmt: skip

    def sentence(self, key: Key) -> str:
        topic, partition = key
        committed = "nothing" if self.committed is None else f"up to offset {self.committed}"
        kept = (
            f"{topic}[{partition}] holds {self.held_bytes:,} bytes for {self.group}, which has committed {committed}."
        )
        return f"! {kept} Over the limit: what was not committed is deleted." if self.over_limit else kept


def described_replicas(
    address: Address, topics: list[DescribableLogDirTopic] | None = None, timeout_s: float = REQUEST_TIMEOUT_S
) -> Iterator[tuple[Key, DescribeLogDirsPartition]]:
    """Those of one broker; all of them if no topics are named. Raises a Problem if it does not answer."""
    answer = ask(address, DescribeLogDirsRequest(topics=topics), VERSION, DescribeLogDirsResponse, timeout_s)
    for result in answer.results:
        for topic in result.topics:
            for each in topic.partitions:
                yield (topic.name, each.partition_index), each


def hold_of(replica: DescribeLogDirsPartition) -> Hold | None:
    told = replica.retention_hold
    if told is None:
        return None
    committed = told.committed_offset if told.committed_offset >= 0 else None
    return Hold(told.group_id, committed, told.held_bytes, told.over_limit)
