"""Rule 1: a new leader starts an epoch, and followers reconcile by epoch before they fetch, never by high watermark."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.broker import suspicion
from penstock.cluster import elections
from penstock.cluster.model import NO_LEADER, PartitionState
from penstock.replication.fetcher import Fetcher
from penstock.server.replica_fetch import ReplicaSession
from tests.rules.telling import ALL, TOPIC, note_if_acknowledged, take_out, tell, with_and_without, write
from tests.simulation.brokers import SimulatedBrokers
from tests.simulation.client import Client


async def two_leaders_append(cluster: SimulatedBrokers, client: Client) -> None:
    """The cut-off leader and its successor give the same offsets to different records."""
    await client.create(TOPIC, ALL, min_insync_replicas=2)
    await write(cluster, client, 3)
    cluster.cut_off("b1")
    assert (await client.produce(1, TOPIC, ["not committed"], acks=1))[0] == 0
    await cluster.until("another leads", lambda: cluster[2].partition(TOPIC).leads)
    cluster.network.cut(client.name, "b1")
    client.forget_leader(TOPIC)
    await write(cluster, client, 3, "later")
    cluster.network.heal(client.name, "b1")
    cluster.heal()


@with_and_without
def test_a_new_leader_starts_an_epoch(rule: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def without_epoch(state: PartitionState, leader: int) -> PartitionState:
        return replace(state, leader=leader, last_leader=state.leader if leader == NO_LEADER else NO_LEADER)

    if not rule:
        monkeypatch.setattr(elections, "_led_by", without_epoch)
    tell(two_leaders_append, tmp_path, rule=rule)


@with_and_without
def test_followers_cut_off_what_their_leader_does_not_have(
    rule: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not rule:
        take_out(
            monkeypatch, Fetcher, "_part", lambda self, key, following, epoch, end: self._go_on(key, following, True)
        )
        take_out(monkeypatch, ReplicaSession, "_diverges", lambda self, partition, asked: None)
    tell(two_leaders_append, tmp_path, rule=rule)


@with_and_without
def test_followers_do_not_cut_at_their_high_watermark(
    rule: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A follower is told late of what is committed. If it threw that away when it begins to follow, and its leader died
    at that moment, the only copies would be gone (KIP-101)."""
    part = Fetcher._part
    at_that_moment: list[Callable[[], None]] = []

    def begins_to_follow(self: Fetcher, key: Any, following: Any, epoch: int, end_offset: int) -> None:
        if rule:
            part(self, key, following, epoch, end_offset)
        else:
            partition = following.partition
            self._carry_out(key, following, self._keeper.truncate(partition, partition.high_watermark), True)
        while at_that_moment:
            at_that_moment.pop()()

    async def leader_dies_as_it_begins(cluster: SimulatedBrokers, client: Client) -> None:
        await client.create(TOPIC, [1, 2], min_insync_replicas=2)
        await write(cluster, client, 3)
        cluster[2].kill()  # before it knows that the third is committed
        at_that_moment.append(cluster[1].kill)
        await cluster[2].start()
        await cluster.until("it leads", lambda: cluster[2].partition(TOPIC).leads)
        await cluster[1].start()
        client.forget_leader(TOPIC)
        await write(cluster, client, 1, "later")

    take_out(monkeypatch, Fetcher, "_part", begins_to_follow)
    tell(leader_dies_as_it_begins, tmp_path, rule=rule, members=[1, 2])


@with_and_without
def test_a_leader_that_lost_power_begins_another_epoch(
    rule: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its followers may have what it has lost. In its former epoch it would give their offsets to other records."""

    async def back_before_it_was_missed(cluster: SimulatedBrokers, client: Client) -> None:
        await client.create(TOPIC, ALL, min_insync_replicas=2)
        await write(cluster, client, 3)
        assert (await client.produce(1, TOPIC, ["written, not yet synced"], acks=1))[0] == 0
        await cluster.until("followers have it", lambda: cluster[2].partition(TOPIC).local_end.offset == 4, 0.09)
        cluster.network.isolate("b1", cluster.machines)
        cluster[1].lose_power()
        await cluster[1].start()
        other = asyncio.ensure_future(note_if_acknowledged(client, 1, "another at its place"))
        await asyncio.sleep(0.5)
        cluster.heal()
        await other
        cluster[1].kill()
        client.forget_leader(TOPIC)
        await write(cluster, client, 1, "later")
        await cluster[1].start()

    if not rule:
        monkeypatch.setattr(suspicion, "vacate", lambda state, node_id: state)
    tell(back_before_it_was_missed, tmp_path, rule=rule, slow={"b1": (0.2, 0.2)})
