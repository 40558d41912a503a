"""Transactions while their coordinator moves, dies or does not know that another has taken its place.

Whoever has done nothing wrong is never told that its transaction can't be, and what it was told is so in the end.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from penstock.cluster.topic_names import TRANSACTIONS_TOPIC
from tests.simulation.brokers import SimulatedBrokers, simulate
from tests.simulation.client import Client
from tests.simulation.scenarios import ALL, TOPIC, Schedule
from tests.simulation.transactions import BUMPING, CLASSIC, Refused, TransactionalWriter, read_committed

both_versions = pytest.mark.parametrize("version", [CLASSIC, BUMPING], ids=["classic", "bumping"])


async def judge(cluster: SimulatedBrokers, client: Client, writers: list[TransactionalWriter]) -> None:
    """What may be open still is aborted by another producer of the same id."""
    for each in writers:
        await TransactionalWriter(client, cluster, TOPIC, each.name, CLASSIC).begin()
    seen = Counter(await read_committed(client, cluster, TOPIC))
    for each in writers:
        assert [value for value in each.committed if seen[value] != 1] == [], "committed, and not there once"
        assert [value for value in each.aborted if seen[value]] == [], "aborted, and there"


@both_versions
@pytest.mark.parametrize("commit", [True, False], ids=["behind a commit", "behind an abort"])
def test_a_coordinator_that_was_replaced_does_not_take_one_transaction_for_another(
    tmp_path: Path, version: int, commit: bool
) -> None:
    """It is cut off, and clients still reach it: it knows the transaction before the open one, and no other."""

    async def scenario() -> None:
        async with SimulatedBrokers(tmp_path, transaction_state_log_num_partitions=1) as cluster:
            client = Client(cluster)
            await client.create(TOPIC, ALL, min_insync_replicas=2)
            writer = TransactionalWriter(client, cluster, TOPIC, "w", version)
            await writer.begin()
            await writer.transact(2, commit=commit)
            former = cluster.leader(TRANSACTIONS_TOPIC)
            others = [number for number in ALL if number != former]
            await asyncio.sleep(1)
            cluster.cut_off(f"b{former}")
            cluster.network.cut(client.name, f"b{former}")
            client.forget_leader(TOPIC)
            await cluster.until(
                "another coordinates", lambda: cluster[others[0]].knows(TRANSACTIONS_TOPIC).leader in others
            )
            writer.forget_coordinator()
            await writer.open(1)
            cluster.network.heal(client.name, f"b{former}")
            writer.believe(former)
            await writer.end(commit=True)
            cluster.heal()
            await judge(cluster, client, [writer])

    simulate(1, scenario)


@both_versions
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_prepared_transaction_waits_for_its_decision_through_coordinators_and_time(
    tmp_path: Path, version: int, commit: bool
) -> None:
    """Each of its coordinators dies, and clocks run ahead; one that is not in two phases is aborted meanwhile."""

    async def scenario() -> None:
        async with SimulatedBrokers(tmp_path, transaction_state_log_num_partitions=1) as cluster:
            client = Client(cluster)
            await client.create(TOPIC, ALL, min_insync_replicas=2)
            writer = TransactionalWriter(client, cluster, TOPIC, "prepared", version)
            other = TransactionalWriter(client, cluster, TOPIC, "other", version)
            await writer.begin(two_phase=True)
            await other.begin(timeout_ms=1_000)
            await writer.open(2)
            await other.open(1)
            prepared, coordinators = writer.stamp, []
            for _ in range(3):
                coordinators.append(cluster.leader(TRANSACTIONS_TOPIC))
                cluster[coordinators[-1]].kill()
                await asyncio.sleep(10)
                await cluster[coordinators[-1]].start_again()
                await cluster.until_in_sync(TRANSACTIONS_TOPIC)
                writer.forget_coordinator()
                client.forget_leader(TOPIC)
                assert await writer.keep() == prepared
            assert len(set(coordinators)) > 1, "it was another's turn"
            with pytest.raises(Refused):
                await other.end(commit=True)
            await writer.end(commit=commit)
            assert await read_committed(client, cluster, TOPIC) == (writer.committed if commit else [])
            assert len(writer.committed + writer.aborted) == 2

    simulate(1, scenario)


@pytest.mark.parametrize("seed", range(3))
def test_prepared_transactions_end_as_they_were_decided_whatever_fails(tmp_path: Path, seed: int) -> None:
    """Clocks may be set as well: nothing of this ends by time."""

    async def scenario() -> None:
        settings = {"transaction_state_log_num_partitions": 1, "replica_lag_time_max_ms": 3000}
        async with SimulatedBrokers(tmp_path, 3, seed, **settings) as cluster:
            client = Client(cluster)
            await client.create(TOPIC, ALL, min_insync_replicas=2)
            writers = [
                TransactionalWriter(client, cluster, TOPIC, f"w{version}", version) for version in (CLASSIC, BUMPING)
            ]
            tasks = [asyncio.ensure_future(each.prepare_on()) for each in writers]
            await asyncio.sleep(1)
            await Schedule(cluster, seed, power=False).run(5)
            await asyncio.sleep(5)
            for task in tasks:
                assert not task.done(), task.result()
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert all(each.committed and each.aborted for each in writers)
            await judge(cluster, client, writers)

    simulate(seed, scenario)


class Faults(Schedule):
    """All that moves coordinators. A clock that is set makes transactions time out, rightly."""

    def __init__(self, cluster: SimulatedBrokers, seed: int) -> None:
        super().__init__(cluster, seed, power=False)
        self._faults = [fault for fault in self._faults if fault != self.set_clock]


@pytest.mark.parametrize("seed", range(4))
def test_transactions_end_as_they_were_said_to_whatever_fails(tmp_path: Path, seed: int) -> None:
    async def scenario() -> None:
        settings = {"transaction_state_log_num_partitions": 1, "replica_lag_time_max_ms": 3000}
        async with SimulatedBrokers(tmp_path, 3, seed, **settings) as cluster:
            client = Client(cluster)
            await client.create(TOPIC, ALL, min_insync_replicas=2)
            writers = [
                TransactionalWriter(client, cluster, TOPIC, f"w{version}", version) for version in (CLASSIC, BUMPING)
            ]
            tasks = [asyncio.ensure_future(each.write_on()) for each in writers]
            await asyncio.sleep(1)
            await Faults(cluster, seed).run(5)
            await asyncio.sleep(5)
            for task in tasks:
                assert not task.done(), task.result()
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await judge(cluster, client, writers)

    simulate(seed, scenario)
