"""Rule 2: what is committed is on every in-sync replica of the same epoch, and there are enough of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.replication.in_sync import UNKNOWN, InSyncReplicas
from tests.rules.telling import ALL, TOPIC, note_if_acknowledged, take_out, tell, with_and_without, write
from tests.simulation.brokers import SimulatedBrokers
from tests.simulation.client import Client


@with_and_without
def test_the_high_watermark_counts_every_in_sync_replica(
    rule: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A leader that is cut off can't commit, whatever it believes."""

    async def cut_off_leader_is_written_to(cluster: SimulatedBrokers, client: Client) -> None:
        await client.create(TOPIC, ALL, min_insync_replicas=2)
        await write(cluster, client, 3)
        cluster.cut_off("b1")
        await note_if_acknowledged(client, 1, "to a leader that is cut off")
        await cluster.until("another leads", lambda: cluster[2].partition(TOPIC).leads)
        cluster.network.cut(client.name, "b1")
        client.forget_leader(TOPIC)
        await write(cluster, client, 1, "later")
        cluster.network.heal(client.name, "b1")
        cluster.heal()

    if not rule:
        take_out(monkeypatch, InSyncReplicas, "committed", lambda self, local_offset: local_offset)
    tell(cut_off_leader_is_written_to, tmp_path, rule=rule)


@with_and_without
def test_nothing_is_committed_by_fewer_than_min_insync_replicas(
    rule: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The last one in sync would be the only one to have it; the others are still allowed to lead (KIP-966)."""

    async def the_last_one_is_written_to(cluster: SimulatedBrokers, client: Client) -> None:
        await client.create(TOPIC, ALL, min_insync_replicas=2)
        await write(cluster, client, 3)
        for number in (2, 3):
            cluster[number].kill()
        await cluster.until("it stands alone", lambda: cluster[1].knows(TOPIC).isr == (1,))
        await note_if_acknowledged(client, 1, "to the last one")
        cluster[1].kill()
        await cluster[2].start()
        await cluster[3].start()
        client.forget_leader(TOPIC)
        await write(cluster, client, 3, "later")
        await cluster[1].start()

    if not rule:
        take_out(monkeypatch, InSyncReplicas, "enough", True)
        take_out(monkeypatch, InSyncReplicas, "committed", _whoever_is_left)
    tell(the_last_one_is_written_to, tmp_path, rule=rule)


def _whoever_is_left(in_sync: InSyncReplicas, local_offset: int) -> int:
    return min([local_offset, *(in_sync.position(each) for each in in_sync.members if each != in_sync.node_id)])


@with_and_without
def test_a_follower_joins_the_in_sync_set_only_past_the_start_of_the_epoch(
    rule: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A new leader may not know yet that the end of its log is committed: its high watermark proves too little."""

    async def joins_as_the_leader_dies(cluster: SimulatedBrokers, client: Client) -> None:
        await client.create(TOPIC, ALL, min_insync_replicas=2)
        await write(cluster, client, 3)
        await cluster.until_in_sync(TOPIC)
        known = {broker.partition(TOPIC).high_watermark for broker in cluster.up}
        await cluster.until("all know that", lambda: known == {3} or all(
            broker.partition(TOPIC).high_watermark == 3 for broker in cluster.up), 5)  # fmt: skip
        cluster.network.cut("b1", "b3")
        writing = asyncio.ensure_future(write(cluster, client, 1, "committed by two"))
        await cluster.until("the second has it", lambda: cluster[2].partition(TOPIC).local_end.offset == 4, 1)
        cluster.network.cut("b1", "b2", both_ways=False)  # it is not told that this is committed
        await writing
        assert cluster[2].partition(TOPIC).high_watermark == 3
        cluster.network.slow_down("b2", "b3", 0.5)
        cluster[1].kill()
        await cluster.until("the second leads", lambda: cluster[2].partition(TOPIC).leads)
        await cluster.until("the third has fetched", lambda: _position(cluster) != UNKNOWN, 20)
        await asyncio.sleep(0.05)
        cluster[2].kill()
        await asyncio.sleep(5)
        leads = cluster[3].partition(TOPIC).leads
        client.note(f"the third leads: {leads}")
        cluster.network.slow_down("b2", "b3", 0.0)
        cluster.heal()
        await cluster[2].start()
        await cluster[1].start()

    def knows_no_start(self: InSyncReplicas, replica: int, high_watermark: int) -> bool:
        is_outside = replica not in self.members and not self.is_changing(replica)
        return is_outside and self.position(replica) >= high_watermark

    if not rule:
        take_out(monkeypatch, InSyncReplicas, "may_join", knows_no_start)
    tell(joins_as_the_leader_dies, tmp_path, rule=rule, replica_lag_time_max_ms=1000)


def _position(cluster: SimulatedBrokers) -> int:
    in_sync = cluster[2].partition(TOPIC).in_sync
    return in_sync.position(3) if in_sync is not None else UNKNOWN
