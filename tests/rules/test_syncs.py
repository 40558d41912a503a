"""Rule 6: a failed sync stops the replica. What the device did not take is never acknowledged, nor tried again."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.replication.partition import Partition
from penstock.storage.log import LogPosition
from tests.rules.telling import ALL, TOPIC, note_if_acknowledged, take_out, tell, with_and_without, write
from tests.simulation.brokers import SimulatedBrokers
from tests.simulation.client import Client


@with_and_without
def test_a_replica_whose_device_fails_counts_for_nothing(
    rule: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """If it did, and led when the power is back, others would have to give up what they hold."""

    async def device_fails_and_then_the_power(cluster: SimulatedBrokers, client: Client) -> None:
        await client.create(TOPIC, ALL, min_insync_replicas=2)
        await write(cluster, client, 3)
        cluster.machines["b1"].device_fails = True
        for number in range(3):
            await note_if_acknowledged(client, 1, f"on a device that fails {number}")
        if rule:
            await cluster.until("another leads", lambda: cluster.leader(TOPIC) == 2, 10)
            client.forget_leader(TOPIC)
            await write(cluster, client, 2, "by the others")
        for broker in cluster.up:
            broker.lose_power()
        cluster.machines["b1"].device_fails = False
        for broker in cluster.brokers.values():
            await broker.start()
        client.forget_leader(TOPIC)
        await write(cluster, client, 2, "later")

    if not rule:
        synced = Partition._synced

        def deaf(self: Partition, end: LogPosition, error: OSError | None) -> None:
            synced(self, end, None)

        take_out(monkeypatch, Partition, "_synced", deaf)
    tell(device_fails_and_then_the_power, tmp_path, rule=rule)
