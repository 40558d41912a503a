"""ZooKeeper goes back: somebody brings back a node, or all of it, as it was before."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path

from penstock.cluster.coordination import Create, Delete
from penstock.cluster.model import NO_LEADER
from penstock.cluster.nodes import TopicNode
from penstock.replication.epochs_ahead import SKIPPED as EPOCHS_SKIPPED
from penstock.testing.tree import Tree
from tests.rules.telling import ALL, TOPIC, tell, write
from tests.simulation.attacks import in_sync, stored
from tests.simulation.brokers import SimulatedBrokers
from tests.simulation.client import Client

PATH = TopicNode.path_of(TOPIC)


async def away_and_back(cluster: SimulatedBrokers, number: int) -> None:
    """Two changes of the in-sync set."""
    cluster[number].kill()
    await cluster.until("it is out", lambda: number not in in_sync(cluster))
    await cluster[number].start()
    await cluster.until_in_sync(TOPIC)


async def restore(cluster: SimulatedBrokers, former: Tree) -> None:
    """With no session that it could know. What comes is numbered behind all that was."""
    cluster.zookeeper.stop()
    await asyncio.sleep(1)
    transaction = cluster.zookeeper.tree._transaction
    cluster.zookeeper.tree = copy.deepcopy(former)
    cluster.zookeeper.tree._transaction = transaction + 1000
    cluster.zookeeper.sessions.clear()
    for session in {node.owner for node in former._nodes.values()} - {0}:
        for path in cluster.zookeeper.tree.owned_by(session):
            cluster.zookeeper.tree.apply([Delete(path)], 0)
    cluster.zookeeper.start()


def test_a_node_that_is_brought_back_before_anyone_hears_that_it_was_gone_is_decided_on(tmp_path: Path) -> None:
    """Its version begins anew, and is lower than the one that brokers know."""

    async def brought_back(cluster: SimulatedBrokers, client: Client) -> None:
        await client.create(TOPIC, ALL, min_insync_replicas=2)
        await write(cluster, client, 3)
        await away_and_back(cluster, 3)
        data = stored(cluster).data
        for operation in (Delete(PATH), Create(PATH, data)):
            _, changes = cluster.zookeeper.tree.apply([operation], 0)
            cluster.zookeeper._fire(changes)
        await asyncio.sleep(1)
        before = cluster.zookeeper.tree._transaction
        cluster[1].kill()
        await cluster.until("another leads", lambda: cluster.leader(TOPIC) in (2, 3), 20)
        client.forget_leader(TOPIC)
        await write(cluster, client, 1, "later")
        assert cluster.zookeeper.tree._transaction - before < 20, "it is not tried again and again"
        await cluster[1].start()

    tell(brought_back, tmp_path, rule=True)


def test_brokers_that_run_take_up_with_a_zookeeper_that_was_restored_from_an_older_state(tmp_path: Path) -> None:
    async def restored(cluster: SimulatedBrokers, client: Client) -> None:
        await client.create(TOPIC, ALL, min_insync_replicas=2)
        await write(cluster, client, 3)
        former = copy.deepcopy(cluster.zookeeper.tree)
        await away_and_back(cluster, 3)
        await write(cluster, client, 3, "since")
        await restore(cluster, former)
        await asyncio.sleep(5)
        cluster[1].kill()
        await cluster.until("another leads", lambda: cluster.leader(TOPIC) in (2, 3), 20)
        client.forget_leader(TOPIC)
        await write(cluster, client, 1, "later")
        await cluster[1].start()

    tell(restored, tmp_path, rule=True)


async def led_by_others_since(cluster: SimulatedBrokers, client: Client, turns: int) -> Tree:
    """ZooKeeper's data as they were before leaders changed, each of whom has written something."""
    await client.create(TOPIC, ALL, min_insync_replicas=2)
    await write(cluster, client, 4)
    await cluster.until_in_sync(TOPIC)
    former = copy.deepcopy(cluster.zookeeper.tree)
    for turn in range(turns):
        for number in (1, 2):
            cluster[number].kill()
            gone = (number, NO_LEADER)
            await cluster.until("another leads", lambda gone=gone: cluster[3].knows(TOPIC).leader not in gone)
            client.forget_leader(TOPIC)
            await write(cluster, client, 2, f"turn {turn} of {number}")
            await cluster[number].start()
            await cluster.until_in_sync(TOPIC)
    return former


def test_epochs_are_not_given_out_again_by_a_zookeeper_that_was_restored_while_all_were_down(tmp_path: Path) -> None:
    """What was written since is lost, as far as it is; but replicas must not hold different records for ever."""

    async def restored(cluster: SimulatedBrokers, client: Client) -> None:
        former = await led_by_others_since(cluster, client, 4)
        cluster[2].kill()
        await cluster.until("another leads", lambda: cluster[3].knows(TOPIC).leader not in (2, NO_LEADER))
        client.forget_leader(TOPIC)
        await write(cluster, client, 2, "the last")
        for number in (1, 3):
            cluster[number].kill()
        await asyncio.sleep(5)
        await restore(cluster, former)
        client.histories.clear()
        for _ in range(2):
            for number in ALL:
                await cluster[number].start()
            await asyncio.sleep(5)
            client.forget_leader(TOPIC)
            await write(cluster, client, 3, f"again {cluster.loop.time()}")
            await asyncio.sleep(30)
            for number in ALL:
                cluster[number].kill()
            await asyncio.sleep(3)
        for number in ALL:
            await cluster[number].start()
        client.forget_leader(TOPIC)
        assert any("gone back to an older leader epoch" in line for line in cluster.trace)

    tell(restored, tmp_path, rule=True)


def test_brokers_that_run_get_a_later_epoch_from_a_zookeeper_that_was_restored(tmp_path: Path) -> None:
    """They hold roles of later epochs than it knows, and would take up no others."""

    async def restored(cluster: SimulatedBrokers, client: Client) -> None:
        former = await led_by_others_since(cluster, client, 2)
        await restore(cluster, former)
        await asyncio.sleep(10)
        client.forget_leader(TOPIC)
        await write(cluster, client, 3, "later")
        assert {broker.knows(TOPIC).leader_epoch > EPOCHS_SKIPPED for broker in cluster.up} == {True}
        await cluster.until_in_sync(TOPIC)
        leader = cluster.leader(TOPIC)
        cluster[leader].kill()
        client.forget_leader(TOPIC)
        await write(cluster, client, 1, "and others")
        await cluster[leader].start()

    tell(restored, tmp_path, rule=True)
