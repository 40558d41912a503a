"""Producers begin while ZooKeeper can't be reached, as they go on then."""

from __future__ import annotations

import asyncio
from pathlib import Path

from penstock.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.simulation.brokers import SimulatedBrokers, simulate
from tests.simulation.client import Client


def test_every_broker_gives_ids_to_producers_that_begin_while_zookeeper_is_away(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SimulatedBrokers(tmp_path, 3) as cluster:
            client = Client(cluster)
            await asyncio.sleep(5)
            for number in (1, 2, 3):
                cluster.zookeeper.cut(f"b{number}")
            await asyncio.sleep(1)
            given: set[int] = set()
            for number in (1, 2, 3):
                request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
                answer = await client.ask(number, request, 4, InitProducerIdResponse)
                assert answer is not None
                assert answer.error_code == 0
                given.add(answer.producer_id)
            assert len(given) == 3

    simulate(0, scenario)
