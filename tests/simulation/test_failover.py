"""Whole brokers under a virtual clock: three of them part and meet again, lose ZooKeeper, the controller, their power.

Every story is judged at its end: nothing that was acknowledged or read is lost, nothing of an idempotent producer is
there twice, and the folders of all replicas hold the same bytes.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from penstock.cluster.departures import TOLD_S
from penstock.cluster.model import ClusterImage
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.rules.telling import write
from tests.simulation import scenarios
from tests.simulation.attacks import delete_before, in_sync, slow_down_writes
from tests.simulation.brokers import SimulatedBroker, SimulatedBrokers, simulate
from tests.simulation.client import Client, Writer
from tests.simulation.scenarios import ALL, TOPIC, digest

REPOSITORY = Path(__file__).parents[2]


def run(name: str, seed: int) -> str:
    """In a folder of its own; the digest of its trace."""
    with tempfile.TemporaryDirectory() as folder:
        trace: list[str] = simulate(seed, lambda: getattr(scenarios, name)(Path(folder), seed))
        return digest(trace)


def in_another_process(name: str, seed: int, hash_seed: int) -> str:
    program = f"from tests.simulation.test_failover import run; print(run({name!r}, {seed}))"
    source = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": source}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_cut_off_leader_is_replaced_and_gives_up_what_was_not_committed() -> None:
    assert len({run("parting", seed) for seed in range(3)}) == 3, "another seed gives another run"


@pytest.mark.parametrize("name", ["parting", "random_faults"])
def test_the_same_seed_gives_the_same_run_in_any_process(name: str) -> None:
    assert in_another_process(name, 7, hash_seed=1) == in_another_process(name, 7, hash_seed=2) == run(name, 7)


def test_zookeeper_may_be_away_for_a_minute_while_writes_go_on() -> None:
    run("without_zookeeper", 1)


def test_a_controller_that_dies_is_replaced_before_anyone_needs_it() -> None:
    run("controller_lost", 1)


@pytest.mark.parametrize("seed", range(4))
def test_a_leader_that_lost_power_comes_back_as_one_who_has_to_catch_up(seed: int) -> None:
    run("leader_without_power", seed)


@pytest.mark.parametrize("seed", range(4))
def test_a_leader_that_is_back_before_it_was_missed_leads_in_another_epoch(seed: int) -> None:
    run("reborn_leader", seed)


@pytest.mark.parametrize("seed", range(100, 120))
def test_nothing_is_lost_whatever_fails(seed: int) -> None:
    run("random_faults", seed)


def test_a_broker_that_was_given_up_by_mistake_announces_itself_anew(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SimulatedBrokers(tmp_path) as cluster:
            client = Client(cluster)
            await client.create(TOPIC, ALL, min_insync_replicas=2)
            await Writer(client, cluster, TOPIC, "w", idempotent=False).write()
            someone = await cluster.machines["b2"].store()
            await someone.delete("/brokers/1")
            await cluster.until("it is out", lambda: cluster.leader(TOPIC) == 2, seconds=5)
            await cluster.until_in_sync(TOPIC, seconds=20)

    simulate(0, scenario)


@pytest.mark.parametrize("ahead_s", [-3600.0, 3600.0])
def test_a_clock_that_is_set_keeps_nobody_in_sync_and_puts_nobody_out(tmp_path: Path, ahead_s: float) -> None:
    async def scenario() -> None:
        async with SimulatedBrokers(tmp_path, replica_lag_time_max_ms=2000) as cluster:
            client = Client(cluster)
            await client.create(TOPIC, ALL, min_insync_replicas=2)
            writer = Writer(client, cluster, TOPIC, "w", idempotent=False)
            await writer.write()
            cluster.machines["b1"].ahead_s = ahead_s
            cluster.network.cut("b1", "b3")
            began = cluster.loop.time()
            await writer.write()
            assert 1.0 < cluster.loop.time() - began < 10.0

    simulate(0, scenario)


def test_followers_learn_what_is_committed_though_nothing_more_is_written(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SimulatedBrokers(tmp_path) as cluster:
            client = Client(cluster)
            await client.create(TOPIC, ALL, min_insync_replicas=2)
            writer = Writer(client, cluster, TOPIC, "w", idempotent=False)
            cluster[3].kill()
            await writer.write()
            await cluster[3].start()

            def all_know() -> bool:
                return {broker.partition(TOPIC).high_watermark for broker in cluster.up} == {1}

            await cluster.until("all know what is committed", all_know, seconds=5)

    simulate(0, scenario)


def test_a_follower_that_is_back_before_its_leader_hears_that_it_was_put_out_is_taken_in_again(tmp_path: Path) -> None:
    """It has asked for all that there is by then, and nothing more is written."""

    async def scenario() -> None:
        async with SimulatedBrokers(tmp_path, 3, 1) as cluster:
            client = Client(cluster)
            assert cluster.controller() == 1
            await client.create(TOPIC, [2, 3], min_insync_replicas=2)
            await write(cluster, client, 3)
            await cluster.until_in_sync(TOPIC, [2, 3])
            slow_down_writes(cluster[1], 1.0)
            cluster[3].kill()
            await cluster[3].start()
            assert cluster[2].knows(TOPIC).isr == (2, 3)
            await cluster.until("it is put out", lambda: cluster[2].knows(TOPIC).isr == (2,), 5)
            await cluster.until("it is taken in again", lambda: set(in_sync(cluster)) == {2, 3}, 10)
            await write(cluster, client, 1, "later")

    simulate(1, scenario)


def test_clients_are_told_for_a_while_of_a_broker_that_has_gone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SimulatedBrokers(tmp_path, 3, 1) as cluster:
            client = Client(cluster)

            async def told() -> list[int]:
                found = await client.ask(1, MetadataRequest(topics=[]), 12, MetadataResponse)
                assert found is not None
                return sorted(broker.node_id for broker in found.brokers)

            await cluster[3].stop()
            await cluster.until("it is gone", lambda: 3 not in image_of(cluster[1]).brokers)
            assert await told() == [1, 2, 3]
            await asyncio.sleep(TOLD_S)
            assert await told() == [1, 2]
            await cluster[3].start()
            await cluster.until("it is back", lambda: 3 in image_of(cluster[1]).brokers)
            assert await told() == [1, 2, 3]
            assert not image_of(cluster[1]).departed

    simulate(1, scenario)


def test_a_broker_whose_announcement_is_gone_is_told_of_once(tmp_path: Path) -> None:
    """It announces itself again, and serves meanwhile."""

    async def scenario() -> None:
        async with SimulatedBrokers(tmp_path, 3, 1) as cluster:
            client = Client(cluster)
            await (await cluster.machines["b2"].store()).delete("/brokers/1")
            for _ in range(2000):
                found = await client.ask(1, MetadataRequest(topics=[]), 12, MetadataResponse)
                assert found is not None
                told = [broker.node_id for broker in found.brokers]
                assert sorted(told) == [1, 2, 3]
                await asyncio.sleep(0.001)

    simulate(1, scenario)


def test_a_session_of_followers_goes_on_for_ever(tmp_path: Path) -> None:
    """The number of a fetch begins again at 1 behind the last."""

    async def scenario() -> None:
        async with SimulatedBrokers(tmp_path, 3, 1) as cluster:
            client = Client(cluster)
            await client.create(TOPIC, ALL, min_insync_replicas=3)
            writer = Writer(client, cluster, TOPIC, "w", idempotent=False)
            await writer.write()
            await cluster.until_in_sync(TOPIC)
            leader = cluster[1].broker
            assert leader is not None
            for follower in (2, 3):
                broker = cluster[follower].broker
                assert broker is not None
                fetcher = broker.replicas._fetchers[1]
                session = leader.router.context.replica_sessions[follower]
                ahead = 0x7FFFFFFC - session.epoch
                fetcher._session_epoch += ahead
                session.epoch += ahead
            sessions = dict(leader.router.context.replica_sessions)
            for _ in range(8):
                await writer.write(patience_s=2)
            assert leader.router.context.replica_sessions == sessions, "they are still the same"

    simulate(1, scenario)


def image_of(machine: SimulatedBroker) -> ClusterImage:
    assert machine.broker is not None
    return machine.broker.image


def test_a_follower_whose_records_are_all_deleted_comes_back(tmp_path: Path) -> None:
    """Its only epoch is one that its leader has no more: that is no reason to part, since nothing of it is left."""

    async def scenario() -> None:
        async with SimulatedBrokers(tmp_path, 3, 1) as cluster:
            client = Client(cluster)
            await client.create(TOPIC, ALL, min_insync_replicas=1)
            await write(cluster, client, 10)
            await delete_before(client, 10)
            await asyncio.sleep(1)
            await cluster[3].stop()
            await cluster[1].stop()
            await cluster.until("another leads", lambda: cluster.leader(TOPIC) == 2)
            client.forget_leader(TOPIC)
            await write(cluster, client, 3, "later")
            await cluster[3].start()
            await cluster.until("it is in sync again", lambda: 3 in in_sync(cluster))
            assert cluster[3].partition(TOPIC).log.end_offset == 13

    simulate(1, scenario)
