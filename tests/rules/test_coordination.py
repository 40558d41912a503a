"""Rule 4: a broker that can't reach coordination changes nothing, serves on, and steps down when it is shown more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.cluster.model import PartitionState
from penstock.cluster.partition_changes import Change, Done, PartitionChanges
from penstock.replication.replicas import Replicas
from tests.rules.telling import ALL, TOPIC, note_if_acknowledged, tell, with_and_without, write
from tests.simulation.brokers import SimulatedBrokers, simulate
from tests.simulation.client import Client


@with_and_without
def test_a_leader_without_coordination_does_not_shrink_its_in_sync_set(
    rule: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It does not hear of its followers, and can't know that they have another leader by now."""

    async def cut_off_for_longer_than_followers_may_lag(cluster: SimulatedBrokers, client: Client) -> None:
        await client.create(TOPIC, ALL, min_insync_replicas=1)
        await write(cluster, client, 3)
        cluster.cut_off("b1")
        for number in range(3):
            await note_if_acknowledged(client, 1, f"to a leader that is cut off {number}")
        cluster.network.cut(client.name, "b1")
        client.forget_leader(TOPIC)
        await write(cluster, client, 1, "later")
        cluster.network.heal(client.name, "b1")
        cluster.heal()

    if not rule:
        _let_leaders_believe_themselves(monkeypatch)
    tell(cut_off_for_longer_than_followers_may_lag, tmp_path, rule=rule, replica_lag_time_max_ms=1000)


def _let_leaders_believe_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """What can't be written counts as written."""

    async def know_at_once(self: PartitionChanges, topic: str) -> None:
        """Nor does anyone wait until it is known what a lost answer said."""

    monkeypatch.setattr(PartitionChanges, "_find_out", know_at_once)
    change, ask = Replicas._change, PartitionChanges.ask
    asked: list[Replicas] = []

    def believe(
        self: PartitionChanges, topic: str, index: int, wanted: Change, done: Done, *, once: bool = False
    ) -> None:
        if self._store.connected:
            ask(self, topic, index, wanted, done, once=once)
            return
        state: PartitionState = self._image.topics[topic].partitions[index]
        after = wanted(state)
        in_sync = next(
            found.in_sync for each in asked if (found := each._partitions.get(topic, index)) and each._changes is self
        )
        if after is not None and in_sync is not None:
            in_sync.members = tuple(each for each in in_sync.members if each in after.isr)
        done(after is not None)

    def remember(self: Replicas, *arguments: object, **options: object) -> None:
        asked.append(self)
        change(self, *arguments, **options)

    monkeypatch.setattr(Replicas, "_change", remember)
    monkeypatch.setattr(PartitionChanges, "ask", believe)


@with_and_without
def test_a_leader_steps_down_when_it_is_shown_a_later_epoch(
    rule: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It does not reach ZooKeeper, but followers reach it, and one of them knows more. Clients could claim anything, so
    they are not believed."""

    async def scenario() -> bool:
        async with SimulatedBrokers(tmp_path, 3, 1) as cluster:
            client = Client(cluster)
            await client.create(TOPIC, ALL, min_insync_replicas=2)
            await write(cluster, client, 3)
            cluster.zookeeper.cut("b1")
            await cluster.until("another leads", lambda: cluster[2].partition(TOPIC).leads)
            assert cluster[1].partition(TOPIC).leads, "nobody has told it yet"
            third = cluster[3].broker
            assert third is not None
            epoch = cluster[2].partition(TOPIC).leader_epoch
            await client.show_epoch(1, TOPIC, epoch, follower=(3, third._membership.epoch - 1))
            assert cluster[1].partition(TOPIC).leads, "that was no broker"
            await client.show_epoch(1, TOPIC, epoch, follower=(3, third._membership.epoch))
            return not cluster[1].partition(TOPIC).leads

    if not rule:
        monkeypatch.setattr(Replicas, "shown_epoch", lambda self, partition, epoch: None)
    assert simulate(1, scenario) is rule


def test_what_needs_coordination_waits_and_what_does_not_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SimulatedBrokers(tmp_path, 3, 1, replica_lag_time_max_ms=1000) as cluster:
            client = Client(cluster)
            await client.create(TOPIC, ALL, min_insync_replicas=2)
            await write(cluster, client, 1)
            cluster.zookeeper.stop()
            await asyncio.sleep(10)
            before = cluster[1].knows(TOPIC)
            cluster[3].kill()
            writing = asyncio.ensure_future(write(cluster, client, 1, "needs the third"))
            await asyncio.sleep(10)
            assert not writing.done(), "the third is in sync until someone can write that it is not"
            assert cluster[1].knows(TOPIC) == before
            cluster.zookeeper.start()
            await asyncio.wait_for(writing, 10)
            assert set(cluster[1].knows(TOPIC).isr) == {1, 2}

    simulate(1, scenario)
