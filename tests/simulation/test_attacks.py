"""Stories that an attacker found: a broker, its link or its device fails at the one moment at which it hurts most.

Where what prevents the harm is small enough to be taken out, the story is told without it too, to show that it notices.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.app import Unreachable
from penstock.cluster.catalog import Catalog
from penstock.cluster.coordination import Operation, Set
from penstock.cluster.nodes import TopicNode
from penstock.cluster.partition_changes import PartitionChanges
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.replication.in_sync import InSyncReplicas
from penstock.replication.partition import Partition
from penstock.replication.replicas import Key, Replicas
from penstock.server.replica_fetch import Place
from penstock.storage.segment import CorruptSegment
from tests.rules.telling import ALL, TOPIC, note_if_acknowledged, take_out, tell, with_and_without, write
from tests.simulation.attacks import delete_before, fill_disk_for_a_moment, in_sync, on_write, slow_down_writes, stored
from tests.simulation.brokers import SimulatedBrokers, simulate
from tests.simulation.client import Client, Writer
from tests.simulation.verdict import violations

# ---- changes of the in-sync set


@with_and_without
def test_a_replica_counts_until_it_is_known_that_it_was_not_taken_in(
    rule: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The third was taken in, and the leader loses the answer with its link to ZooKeeper and to the third. If it
    forgot about it, what it acknowledges would be missing where the next leader is."""

    async def the_answer_is_lost(cluster: SimulatedBrokers, client: Client) -> None:
        await client.create(TOPIC, [1, 3, 2], min_insync_replicas=2)
        await write(cluster, client, 1)
        cluster[3].kill()
        await cluster.until("the two are left", lambda: in_sync(cluster) == (1, 2))
        await write(cluster, client, 1, "by two")
        taken_in = asyncio.Event()

        def lost(operation: Operation, write_it: Callable[[], object]) -> object:
            answer = write_it()
            if 3 in in_sync(cluster):
                cluster.zookeeper.cut("b1")
                cluster.network.cut("b1", "b3")
                taken_in.set()
            return answer

        on_write(cluster, "b1", TOPIC, lost)
        await cluster[3].start()
        await asyncio.wait_for(taken_in.wait(), 20)
        for number in range(3):
            await note_if_acknowledged(client, 1, f"in doubt {number}")
        await cluster.until("the third leads", lambda: cluster[3].partition(TOPIC).leads, 30)
        cluster.heal()
        client.forget_leader(TOPIC)
        await write(cluster, client, 1, "later")

    async def know_at_once(self: PartitionChanges, topic: str) -> None:
        """As if it had not been made."""

    if not rule:
        monkeypatch.setattr(PartitionChanges, "_find_out", know_at_once)
    tell(the_answer_is_lost, tmp_path, rule=rule, replica_lag_time_max_ms=1000)


@with_and_without
def test_whoever_is_taken_in_is_the_one_who_showed_that_it_has_all(
    rule: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """ZooKeeper is slow, and changes of in-sync sets wait for their turn. Meanwhile the third loses its power, and with
    it what was not synced; it is back, and says that it does not count. A change that was asked for before that, and
    whose turn comes then, is void."""
    topics = [f"t{number:02}" for number in range(20)]

    async def scenario() -> list[str]:
        async with SimulatedBrokers(tmp_path, 3, 1, replica_lag_time_max_ms=1000) as cluster:
            client = Client(cluster)
            for topic in topics:
                await client.create(topic, [1, 3, 2], min_insync_replicas=2, flush="os")
            writers = [Writer(client, cluster, topic, topic, idempotent=False) for topic in topics]
            for writer in writers:
                await writer.write()
            cluster[3].kill()
            await cluster.until("it is out", lambda: all(3 not in in_sync(cluster, topic) for topic in topics))
            for writer in writers:
                await writer.write()
            await cluster[3].start()
            slow_down_writes(cluster[1], 0.15)
            await asyncio.sleep(0.5)
            cluster[3].lose_power()
            await cluster[3].start()
            cluster.network.cut("b1", "b3")  # it can't fetch what it lacks
            found: dict[str, None] = {}
            for _ in range(50):
                await asyncio.sleep(0.1)
                found |= dict.fromkeys(topic for topic in topics if lacks_committed(cluster, topic))
            return list(found)

    def lacks_committed(cluster: SimulatedBrokers, topic: str) -> bool:
        committed = cluster[1].partition(topic).high_watermark
        return 3 in in_sync(cluster, topic) and cluster[3].partition(topic).log.end_offset < committed

    if not rule:
        monkeypatch.setattr(Catalog, "version_of", lambda self, name: 0)
    assert bool(simulate(1, scenario)) is not rule


def test_a_replica_that_is_heard_of_late_by_its_leader_is_taken_in_though_nothing_is_written(tmp_path: Path) -> None:
    """The new replica knows of itself before its leader does, and has nothing to fetch."""

    async def scenario() -> None:
        async with SimulatedBrokers(tmp_path, 3, 1) as cluster:
            client = Client(cluster)
            await client.create(TOPIC, [1, 2])
            await asyncio.sleep(1)
            cluster.zookeeper.cut("b1")
            wanted = ReassignablePartition(partition_index=0, replicas=[1, 2, 3])
            request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=TOPIC, partitions=[wanted])])
            found = await client.ask(2, request, 0, AlterPartitionReassignmentsResponse)
            assert found is not None
            assert found.responses[0].partitions[0].error_code == 0
            await cluster.until("it knows of itself", lambda: 3 in cluster[3].knows(TOPIC).replicas)
            await asyncio.sleep(1)
            cluster.heal()
            await cluster.until("it is in sync", lambda: sorted(in_sync(cluster)) == ALL, 20)

    simulate(1, scenario)


# ---- replicas that can't be trusted


@with_and_without
def test_a_replica_that_heals_does_not_count_while_it_does(
    rule: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A follower cuts its log to fetch again what was damaged, and at that moment the leader dies. What it is told of
    who is in sync is a little old, so the story is told at several moments."""
    moments = range(0, 36, 3)  # milliseconds

    async def scenario(folder: Path, seconds: float) -> list[str]:
        async with SimulatedBrokers(folder, 3, 1) as cluster:
            client = Client(cluster)
            await client.create(TOPIC, ALL, min_insync_replicas=2)
            await write(cluster, client, 10)
            await asyncio.sleep(1 + seconds)
            trusted = find_damage(cluster)
            await cluster.until("it has cut its log", lambda: bool(trusted), 60)
            await cluster.until("another leads", lambda: cluster.leader(TOPIC) != 1, 30)
            cluster.heal()
            await cluster[1].start()
            client.forget_leader(TOPIC)
            await write(cluster, client, 1, "later")
            found = await violations(cluster, client, TOPIC)
            return [*found, *(["it counted while it was cut"] if trusted[0] else [])]

    def find_damage(cluster: SimulatedBrokers) -> list[bool]:
        """By the second, which leads to the leader's death; whether it counted when it had cut its log."""
        broker, partition = cluster[2].broker, cluster[2].partition(TOPIC)
        trusted: list[bool] = []
        assert broker is not None
        real = broker._upkeep.cut

        async def cut(*arguments: Any, **options: Any) -> None:
            await real(*arguments, **options)
            if not trusted:
                trusted.append(2 in in_sync(cluster))
                cluster.network.cut("b1", "b2")
                cluster.loop.call_later(0.05, cluster[1].kill)

        broker._upkeep.cut = cut
        broker.replicas.unreadable(partition, 3, CorruptSegment("damaged"))
        return trusted

    if not rule:
        take_out_what_keeps_a_replica_out(monkeypatch)
    found: list[str] = []
    for moment in moments:
        folder = tmp_path / str(moment)
        folder.mkdir()
        found += simulate(1, partial(scenario, folder, moment / 1000))
        if found:
            break
    assert bool(found) is not rule, "\n".join(found)


def take_out_what_keeps_a_replica_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on fetching, its leader takes what it said before for what it has, and nobody's write is made to fail."""
    take_out(monkeypatch, InSyncReplicas, "forget", lambda self, replica: None)
    unfollow = Replicas._unfollow

    def unless_it_heals(self: Replicas, key: Key) -> None:
        if key not in self._healing:
            unfollow(self, key)

    async def touch_nothing(self: PartitionChanges, name: str) -> None:
        """Whoever was about to write does."""

    monkeypatch.setattr(Replicas, "_unfollow", unless_it_heals)
    monkeypatch.setattr(Replicas, "_give_up", Replicas._leave)
    monkeypatch.setattr(PartitionChanges, "touch", touch_nothing)


@with_and_without
def test_a_replica_whose_disk_has_failed_is_put_out_once(
    rule: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def scenario() -> int:
        async with SimulatedBrokers(tmp_path, 3, 1) as cluster:
            client = Client(cluster)
            await client.create(TOPIC, ALL, min_insync_replicas=2)
            await write(cluster, client, 1)
            await asyncio.sleep(1)
            before = stored(cluster).version
            cluster[2].partition(TOPIC).stop(OSError(errno.EIO, "I/O error"))
            await cluster.until("it is out", lambda: in_sync(cluster) == (1, 3), 5)
            await asyncio.sleep(20)
            if rule:
                assert in_sync(cluster) == (1, 3)
            return stored(cluster).version - before

    if not rule:
        take_out_what_keeps_a_replica_out(monkeypatch)
    writes = simulate(1, scenario)
    assert writes == 1 if rule else writes > 10


# ---- epochs, deleted records


@with_and_without
def test_an_epoch_that_could_not_be_saved_is_saved_with_the_next_batch(
    rule: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The disk is full for a moment. An epoch in memory alone would be gone after a restart, and records of it would be
    taken for those of a former leader."""

    async def scenario() -> list[str]:
        async with SimulatedBrokers(tmp_path, 3, 1) as cluster:
            client = Client(cluster)
            await client.create(TOPIC, ALL, min_insync_replicas=2)
            await write(cluster, client, 5)
            cluster[1].kill()
            await cluster.until("the second leads", lambda: cluster.leader(TOPIC) == 2, 30)
            failed = fill_disk_for_a_moment(cluster[2])
            await write(cluster, client, 5, "later")
            assert failed
            await cluster[1].start()
            await cluster.until_in_sync(TOPIC)
            await cluster[2].stop()
            await cluster[2].start()
            found = await violations(cluster, client, TOPIC)
            return [*found, *(line for line in cluster.trace if "committed records were truncated" in line)]

    def begin_in_memory(self: Partition, epoch: int) -> None:
        if epoch > self.log.epochs.latest:
            self.log.begin_epoch(epoch, durable=False)

    if not rule:
        take_out(monkeypatch, Partition, "_begin_epoch", begin_in_memory)
    found = simulate(1, scenario)
    assert bool(found) is not rule, "\n".join(found)


@with_and_without
def test_what_was_deleted_is_not_there_again_when_another_leads(
    rule: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing more is written to the partition, so followers learn of it though there is nothing to fetch, and before
    it is said that the records are gone."""

    async def scenario() -> bool:
        async with SimulatedBrokers(tmp_path, 3, 1) as cluster:
            client = Client(cluster)
            await client.create(TOPIC, ALL, min_insync_replicas=2)
            await write(cluster, client, 10)
            await asyncio.sleep(1)
            answer = await delete_before(client, 7)
            starts = {broker.partition(TOPIC).log.start_offset for broker in cluster.up}
            cluster[1].kill()
            await cluster.until("another leads", lambda: cluster.leader(TOPIC) != 1, 30)
            kept = await client.read(TOPIC, cluster.loop.time() + 10, start=7)
            assert kept == [(offset, f"w-{offset}") for offset in (7, 8, 9)]
            gone, _ = await client.fetch(cluster.leader(TOPIC), TOPIC, 0)
            return answer == (0, 7) and starts == {7} and not gone

    def if_more_is_committed(self: Place, high_watermark: int, start: int, of_commits: bool) -> bool:
        return self.told[0] != high_watermark

    if not rule:
        take_out(monkeypatch, Place, "is_to_learn", if_more_is_committed)
    assert simulate(1, scenario) is rule


def test_a_follower_that_can_not_be_told_of_a_deletion_is_waited_for_only_as_long_as_asked(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SimulatedBrokers(tmp_path, 3, 1) as cluster:
            client = Client(cluster)
            await client.create(TOPIC, ALL, min_insync_replicas=2)
            await write(cluster, client, 10)
            await asyncio.sleep(1)
            cluster.network.cut("b1", "b3")
            assert await delete_before(client, 7) == (ErrorCode.REQUEST_TIMED_OUT, 0)
            cluster.network.heal("b1", "b3")
            assert await delete_before(client, 7) == (0, 7)
            cluster[3].kill()
            await cluster.until("it is known to be gone", lambda: 3 not in cluster[1].broker.image.brokers)
            assert await delete_before(client, 9) == (0, 9)

    simulate(1, scenario)


# ---- what ZooKeeper holds, and does not do


@with_and_without
def test_a_topic_that_nobody_can_read_keeps_no_other_from_a_leader(
    rule: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def scenario() -> bool:
        async with SimulatedBrokers(tmp_path, 3, 1) as cluster:
            client = Client(cluster)
            for topic in ("bad", TOPIC):
                await client.create(topic, ALL, min_insync_replicas=2)
            await write(cluster, client, 1)
            someone = await cluster.machines["b2"].store()
            await someone.multi([Set(TopicNode.path_of("bad"), b"garbage")])
            await asyncio.sleep(1)
            cluster[1].kill()
            await asyncio.sleep(10)
            assert stored(cluster, "bad").data == b"garbage", "it is left alone"
            if rule:
                await write(cluster, client, 1, "later")
                assert not [line for line in cluster.trace if "can't decide" in line]
            return cluster.leader(TOPIC) in (2, 3)

    if not rule:
        monkeypatch.setattr(Catalog, "write_apart", Catalog.write_topics)
    assert simulate(1, scenario) is rule


def test_a_broker_that_loses_zookeeper_as_it_starts_says_so_and_may_try_again(tmp_path: Path) -> None:
    async def lost_when_it_gives_up_what_it_led(cluster: SimulatedBrokers, client: Client) -> None:
        await client.create(TOPIC, ALL, min_insync_replicas=2)
        await write(cluster, client, 1)
        cluster[1].kill()
        on_write(cluster, "b1", TOPIC, lambda operation, write_it: cluster.zookeeper.cut("b1"))
        with pytest.raises(Unreachable, match="can't be written"):
            await cluster[1].start()
        del cluster.zookeeper.write
        cluster.heal()
        await cluster[1].start()

    tell(lost_when_it_gives_up_what_it_led, tmp_path, rule=True)
