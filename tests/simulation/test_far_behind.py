"""A follower that was away comes back far behind, and whatever its log is like it arrives."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.replication.syncs import Syncs
from penstock.storage.disk import NotOpened
from tests.simulation.brokers import SimulatedBrokers, simulate
from tests.simulation.client import Client
from tests.simulation.scenarios import ALL, TOPIC

LATE = 3


async def fill(cluster: SimulatedBrokers, client: Client, count: int, size: int) -> None:
    for _ in range(count):
        leader = await client.leader(TOPIC, cluster.loop.time() + 60)
        code, _offset = await client.produce(leader, TOPIC, ["x" * size], acks=-1)
        assert code == 0


async def comes_back(cluster: SimulatedBrokers, **settings: int) -> None:
    client = Client(cluster)
    await client.create(TOPIC, ALL, min_insync_replicas=2, **settings)
    await fill(cluster, client, 1, 1000)
    await cluster.until_in_sync(TOPIC)
    cluster[LATE].kill()
    await cluster.until("it is put out", lambda: LATE not in cluster[1].knows(TOPIC).isr, 60)
    await fill(cluster, client, 40, 300_000)
    await cluster[LATE].start()
    await cluster.until_in_sync(TOPIC, seconds=60)


@pytest.mark.parametrize("flush", ["commit", "interval", "os"])
def test_with_segments_shorter_than_what_is_written_back_at_once(tmp_path: Path, flush: str) -> None:
    async def scenario() -> None:
        async with SimulatedBrokers(tmp_path, flush=flush) as cluster:
            await comes_back(cluster, segment_bytes=1 << 20)

    simulate(0, scenario)


def test_though_there_was_no_descriptor_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_back, failures = Syncs.write_back, [NotOpened(24, "Too many open files")]

    def at_first_fails(syncs: Syncs) -> bool:
        if failures:
            raise failures.pop()
        return write_back(syncs)

    monkeypatch.setattr(Syncs, "write_back", at_first_fails)

    async def scenario() -> None:
        async with SimulatedBrokers(tmp_path, flush="os") as cluster:
            await comes_back(cluster)
            assert not failures

    simulate(0, scenario)
