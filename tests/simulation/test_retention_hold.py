"""Retention that waits for a group, in a cluster: its coordinator is another broker, and dies; so does the leader."""

from __future__ import annotations

import asyncio
from pathlib import Path

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tests.simulation.brokers import SimulatedBrokers, simulate
from tests.simulation.client import AGAIN_S, Client, Writer

GROUP = "archive"
HELD, CONTROL = "held", "control"
ROUNDS_S = 5.0  # many checks of retention
AGED = {"retention_ms": 1000, "internal_segment_bytes": 100}  # each record in a segment of its own
CHECKED_OFTEN = {
    "log_retention_check_interval_ms": 500, "log_cleaner_backoff_ms": 500, "offsets_topic_num_partitions": 1,
    "offsets_topic_replication_factor": 1,
}  # fmt: skip


class Story:
    def __init__(self, cluster: SimulatedBrokers) -> None:
        self.cluster = cluster
        self.client = Client(cluster)

    async def coordinator(self) -> int:
        request = FindCoordinatorRequest(coordinator_keys=[GROUP])
        for _ in range(100):
            found = await self.client.ask(1, request, 4, FindCoordinatorResponse)
            if found is not None and found.coordinators[0].error_code == ErrorCode.NONE:
                return found.coordinators[0].node_id
            await asyncio.sleep(AGAIN_S)
        raise AssertionError("the group has no coordinator")

    async def commit(self, coordinator: int, offset: int) -> None:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topics = [OffsetCommitRequestTopic(name=HELD, partitions=[partition])]
        request = OffsetCommitRequest(group_id=GROUP, generation_id_or_member_epoch=-1, topics=topics)
        for _ in range(100):
            found = await self.client.ask(coordinator, request, 8, OffsetCommitResponse)
            if found is not None and found.topics[0].partitions[0].error_code == ErrorCode.NONE:
                return
            await asyncio.sleep(AGAIN_S)
        raise AssertionError("it can't be committed")

    async def write(self, topic: str, count: int) -> None:
        writer = Writer(self.client, self.cluster, topic, f"{topic}-{self.cluster.loop.time()}", idempotent=False)
        for _ in range(count):
            await writer.write()

    def starts(self, topic: str, *numbers: int) -> list[int]:
        return [self.cluster[number].partition(topic).log.start_offset for number in numbers]

    async def until_start(self, topic: str, offset: int, *numbers: int) -> None:
        await self.cluster.until(
            f"{topic} begins at {offset}", lambda: self.starts(topic, *numbers) == [offset] * len(numbers), 30
        )


def test_no_replica_deletes_what_the_group_has_not_committed_whoever_dies(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SimulatedBrokers(tmp_path, 3, **CHECKED_OFTEN) as cluster:
            story = Story(cluster)
            coordinator = await story.coordinator()
            leader, follower = sorted({1, 2, 3} - {coordinator})
            for topic, more in ((HELD, {"retention_hold_group": GROUP}), (CONTROL, {})):
                await story.client.create(topic, [leader, follower], **AGED, **more)
                await story.write(topic, 10)
            await story.until_start(CONTROL, 10, leader, follower)
            await asyncio.sleep(ROUNDS_S)
            assert story.starts(HELD, leader, follower) == [0, 0], "nothing is committed yet"

            await story.commit(coordinator, 4)
            await story.until_start(HELD, 4, leader, follower)

            cluster[coordinator].kill()
            await story.write(HELD, 2)
            await asyncio.sleep(ROUNDS_S)
            assert story.starts(HELD, leader, follower) == [4, 4], "nobody knows what is committed"
            assert any(f"b{leader}: warning retention waits" in line for line in cluster.trace)
            await cluster[coordinator].start()

            cluster[leader].kill()
            await cluster.until("the other leads", lambda: cluster[follower].partition(HELD).leads)
            await asyncio.sleep(ROUNDS_S)
            assert story.starts(HELD, follower) == [4], "a new leader waits too"
            await story.commit(coordinator, 7)
            await story.until_start(HELD, 7, follower)

            await cluster[leader].start()
            await story.until_start(HELD, 7, leader, follower)
            await story.commit(coordinator, 12)
            await story.until_start(HELD, 12, leader, follower)
            found = await story.client.read(HELD, cluster.loop.time() + 10, 12)
            assert found == []

    simulate(0, scenario)


def test_beyond_the_limit_only_the_leader_decides_and_followers_do_the_same(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SimulatedBrokers(tmp_path, 3, **CHECKED_OFTEN) as cluster:
            story = Story(cluster)
            await story.client.create(
                HELD, [1, 2, 3], **AGED, retention_hold_group=GROUP, retention_hold_max_bytes=500, min_insync_replicas=2
            )
            await story.write(HELD, 12)
            await asyncio.sleep(ROUNDS_S)
            (start,) = set(story.starts(HELD, 1, 2, 3))
            assert 0 < start < 12
            held = cluster[1].partition(HELD).log.size
            assert 300 < held <= 500
            warned = [line.split(": ")[0][-2:] for line in cluster.trace if "not committed" in line]
            assert warned == ["b1"], "the leader alone, and once"

    simulate(0, scenario)
