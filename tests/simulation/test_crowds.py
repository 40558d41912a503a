"""More clients than a broker has places for: they do without, and the brokers go on."""

from __future__ import annotations

import asyncio
from itertools import combinations
from pathlib import Path

from tests.simulation.brokers import SimulatedBrokers, simulate
from tests.simulation.client import Client, Writer
from tests.simulation.scenarios import ALL, TOPIC
from tests.simulation.sockets import SimulatedSocket

PLACES = 8


class Crowd:
    """Clients that connect and say nothing."""

    def __init__(self, cluster: SimulatedBrokers) -> None:
        self._cluster = cluster
        self._sockets: list[SimulatedSocket] = []

    async def fill(self) -> None:
        for broker in self._cluster.up:
            for _ in range(2 * PLACES):
                self._sockets.append(await self._cluster.network.connect("crowd", broker.address))


def test_clients_that_take_every_place_do_not_part_the_brokers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SimulatedBrokers(tmp_path, max_connections=PLACES, replica_lag_time_max_ms=2000) as cluster:
            client = Client(cluster)
            await client.create(TOPIC, ALL, min_insync_replicas=3)
            writer = Writer(client, cluster, TOPIC, "w", idempotent=False)
            await writer.write()
            pairs = list(combinations(cluster.machines, 2))
            for one, other in pairs:
                cluster.network.tear(one, other)
                cluster.network.cut(one, other)
            await asyncio.sleep(0.2)
            await Crowd(cluster).fill()
            for one, other in pairs:
                cluster.network.heal(one, other)
            await writer.write(patience_s=20)
            await cluster.until_in_sync(TOPIC, seconds=20)

    simulate(0, scenario)
