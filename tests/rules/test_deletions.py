"""Data of a topic goes only with word that somebody has deleted that very topic: ZooKeeper may have lost its node."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.broker.app import StartError
from penstock.cluster.catalog import Catalog
from penstock.cluster.coordination import Create, Delete, Disconnected, Operation
from penstock.cluster.deletions import NOTE_STAYS_S
from penstock.cluster.model import TopicState
from penstock.cluster.nodes import (
    DELETIONS,
    FOLDERS,
    BrokerEpochNode,
    ClusterNode,
    ControllerEpochNode,
    ProducerIdsNode,
    TopicNode,
    save,
)
from penstock.cluster.zookeeper_follow import IDENTITY
from penstock.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from penstock.replication import strays
from penstock.replication.upkeep import CHECKPOINT_EVERY_S
from penstock.testing.tree import Tree
from tests.rules.telling import ALL, TOPIC, take_out, tell, with_and_without, write
from tests.simulation.attacks import on_write, stored
from tests.simulation.brokers import SimulatedBrokers, simulate
from tests.simulation.client import Client
from tests.simulation.store import SimulatedStore

PATH = TopicNode.path_of(TOPIC)


def folders(cluster: SimulatedBrokers, number: int, end: str) -> list[str]:
    return sorted(path.name for path in cluster.machines[f"b{number}"].folder.iterdir() if path.name.endswith(end))


def id_of(cluster: SimulatedBrokers) -> str:
    return TopicNode.decode(TOPIC, stored(cluster)).topic.topic_id.hex()


def contents(tree: Tree) -> dict[str, tuple[bytes, int]]:
    return {path: (node.data, node.version) for path, node in tree._nodes.items()}


async def by_hand(cluster: SimulatedBrokers, *operations: Operation) -> None:
    """As a person does it who knows nothing of brokers."""
    store = await SimulatedStore.open(cluster.zookeeper, "a person")
    await store.multi(operations)
    await store.close()


async def delete(client: Client, broker: int) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=1000)
    found = await client.ask(broker, request, 6, DeleteTopicsResponse)
    assert found is not None
    assert found.responses[0].error_code == 0


async def create_again(client: Client, broker: int, replicas: list[int]) -> None:
    place = CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
    topic = CreatableTopic(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=[place])
    found = await client.ask(broker, CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7, CreateTopicsResponse)
    assert found is not None
    assert found.topics[0].error_code == 0
    client.forget_leader(TOPIC)


async def all_start_again(cluster: SimulatedBrokers) -> None:
    for broker in cluster.brokers.values():
        await broker.stop()
    for broker in cluster.brokers.values():
        await broker.start()


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced by another topic"])
@with_and_without
def test_a_topic_whose_node_is_lost_is_served_no_more_and_its_data_stay(
    rule: bool, replaced: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def lost_and_found(cluster: SimulatedBrokers, client: Client) -> None:
        await client.create(TOPIC, ALL, min_insync_replicas=2)
        await write(cluster, client, 3)
        await asyncio.sleep(1)  # until all replicas have heard of the last
        node = stored(cluster).data
        topic = TopicNode.decode(TOPIC, stored(cluster)).topic
        await by_hand(cluster, Delete(PATH))
        if replaced:
            await by_hand(cluster, Create(PATH, TopicNode(replace(topic, topic_id=bytes(range(16)))).encode()))
        await asyncio.sleep(10)
        if replaced:
            await by_hand(cluster, Delete(PATH))
            await asyncio.sleep(1)
        if rule:
            assert all(folders(cluster, number, ".stray") for number in ALL)
            assert any("nobody has deleted it" in line for line in cluster.trace)
        await by_hand(cluster, Create(PATH, node))
        await asyncio.sleep(1)
        await all_start_again(cluster)
        client.forget_leader(TOPIC)
        await write(cluster, client, 1, "later")

    def always_deleted(self: Catalog, topic: TopicState, *, is_deleted: bool = False) -> None:
        self._tell(lambda listener: listener.topic_deleted(topic))

    if not rule:
        take_out(monkeypatch, Catalog, "_gone", always_deleted)
    tell(lost_and_found, tmp_path, rule=rule)


def test_what_one_has_lost_while_the_node_was_lost_the_others_have_still(tmp_path: Path) -> None:
    """They start one after the other to take their folders back. None of those that are whole takes itself out."""

    async def one_loses_power(cluster: SimulatedBrokers, client: Client) -> None:
        await client.create(TOPIC, ALL, min_insync_replicas=2)
        await write(cluster, client, 8)
        await cluster.until_in_sync(TOPIC)
        node = stored(cluster).data
        await by_hand(cluster, Delete(PATH))
        await asyncio.sleep(10)
        await by_hand(cluster, Create(PATH, node))
        await asyncio.sleep(1)
        cluster[1].lose_power()
        for number in (2, 3):
            await cluster[number].stop()
            await cluster[number].start()
            await asyncio.sleep(2)
        await cluster[1].start()
        await asyncio.sleep(2)
        client.forget_leader(TOPIC)

    tell(one_loses_power, tmp_path, rule=True, flush="os")


@with_and_without
def test_a_replica_that_lost_power_while_the_node_was_lost_does_not_lead_when_it_is_there_again(
    rule: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It has started since, when nobody could be told."""

    async def starts_twice(cluster: SimulatedBrokers, client: Client) -> None:
        await client.create(TOPIC, ALL, min_insync_replicas=3)  # whoever leaves the set stays eligible
        await write(cluster, client, 4, "synced")
        await cluster[1].stop()
        await cluster[1].start()
        await cluster.until_in_sync(TOPIC)
        await write(cluster, client, 4, "unsynced")
        node = stored(cluster).data
        await by_hand(cluster, Delete(PATH))
        await asyncio.sleep(CHECKPOINT_EVERY_S + 1)
        cluster[1].lose_power()
        await cluster[1].start()
        await by_hand(cluster, Create(PATH, node))
        await asyncio.sleep(1)
        for number in (2, 3):
            cluster[number].kill()
        await cluster[1].stop()
        await cluster[1].start()
        await asyncio.sleep(2)
        for number in (2, 3):
            await cluster[number].start()
        client.forget_leader(TOPIC)

    if not rule:
        monkeypatch.setattr(strays, "suspect", lambda *arguments: None)
    tell(starts_twice, tmp_path, rule=rule, flush="os")


@pytest.mark.parametrize("other", [False, True], ids=["empty", "of another cluster"])
def test_brokers_go_on_with_what_they_knew_when_zookeeper_comes_back_without_it(other: bool, tmp_path: Path) -> None:
    async def emptied_and_restored(cluster: SimulatedBrokers, client: Client) -> None:
        await client.create(TOPIC, ALL, min_insync_replicas=2)
        await write(cluster, client, 3)
        cluster.zookeeper.stop()
        saved, cluster.zookeeper.tree = copy.deepcopy(cluster.zookeeper.tree), Tree()
        cluster.zookeeper.sessions.clear()
        if other:
            nodes = (ClusterNode("another"), ProducerIdsNode(0), BrokerEpochNode(0), ControllerEpochNode(0))
            cluster.zookeeper.tree.apply([*(Create(path) for path in FOLDERS), *(save(node) for node in nodes)], 0)
        untouched = contents(cluster.zookeeper.tree)
        cluster.zookeeper.start()
        await asyncio.sleep(5)
        await write(cluster, client, 3, "meanwhile")
        assert contents(cluster.zookeeper.tree) == untouched, "what is not this cluster's is left alone"
        assert all(cluster[number].knows(TOPIC).isr == tuple(ALL) for number in ALL)
        assert sum("ZooKeeper has lost the nodes" in line for line in cluster.trace) <= 6 * len(ALL)
        cluster.zookeeper.stop()
        cluster.zookeeper.tree = saved
        for session in {node.owner for node in saved._nodes.values()} - {0}:
            for path in saved.owned_by(session):
                saved.apply([Delete(path)], 0)
        cluster.zookeeper.start()
        await asyncio.sleep(10)
        await write(cluster, client, 1, "later")

    tell(emptied_and_restored, tmp_path, rule=True)


@pytest.mark.parametrize("empty", [True, False], ids=["empty", "of another cluster"])
def test_a_broker_that_starts_leaves_a_zookeeper_alone_that_is_not_its_cluster_s(empty: bool, tmp_path: Path) -> None:
    """It would make a cluster where there is none, and then be told that it belongs to another."""

    async def scenario() -> None:
        async with SimulatedBrokers(tmp_path, 2, 1) as cluster:
            for number in (1, 2):
                await cluster[number].stop()
            cluster.zookeeper.tree = Tree()
            if not empty:
                cluster.zookeeper.tree.apply([save(ClusterNode("another"))], 0)
            untouched = contents(cluster.zookeeper.tree)
            with pytest.raises(StartError, match="but this ZooKeeper holds none" if empty else "but this is cluster a"):
                await cluster[1].start()
            assert contents(cluster.zookeeper.tree) == untouched

    simulate(1, scenario)


def test_a_topic_that_was_deleted_is_gone_from_all_disks_and_so_is_the_note(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SimulatedBrokers(tmp_path, 3, 1, log_segment_delete_delay_ms=1000) as cluster:
            client = Client(cluster)
            for _ in range(3):
                await client.create(TOPIC, ALL, min_insync_replicas=2)
                await write(cluster, client, 3)
                cluster[3].kill()
                await delete(client, 1)
                await cluster[3].start()
                await cluster.until("the note is gone", lambda: not cluster.zookeeper.tree.children(DELETIONS), 30)
                assert not any(folders(cluster, number, end) for number in ALL for end in (".stray", f"{TOPIC}-0"))
                assert not cluster.zookeeper.tree.children("/topic-ids")
            assert not any("nobody has deleted it" in line for line in cluster.trace)

    simulate(1, scenario)


def test_the_note_of_a_deletion_goes_though_zookeeper_is_away_when_it_should(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SimulatedBrokers(tmp_path, 3, 1) as cluster:
            client = Client(cluster)
            await client.create(TOPIC, ALL, min_insync_replicas=2)
            await write(cluster, client, 3)
            await delete(client, 1)
            await asyncio.sleep(NOTE_STAYS_S - 0.5)
            cluster.zookeeper.cut("b2")
            await asyncio.sleep(1)
            assert cluster.zookeeper.tree.children(DELETIONS)
            cluster.heal()
            await cluster.until("the note is gone", lambda: not cluster.zookeeper.tree.children(DELETIONS), 30)

    simulate(1, scenario)


@pytest.mark.parametrize("same_version", [True, False], ids=["the same version", "another version"])
@with_and_without
def test_what_was_meant_for_a_deleted_topic_does_not_reach_another_of_its_name(
    rule: bool, same_version: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The controller's write is lost with its link. Until it is back the topic is deleted and made again, and its node
    has the version that the controller knows."""

    async def scenario() -> tuple[bool, list[str]]:
        async with SimulatedBrokers(tmp_path, 4, 1) as cluster:
            client = Client(cluster)
            controller = cluster.controller()
            dead, lead, other = (number for number in cluster.brokers if number != controller)
            await client.create(TOPIC, [lead, dead], min_insync_replicas=1)
            await write(cluster, client, 1, "old")
            through = cluster.zookeeper.write

            def lost(operation: Operation, write_it: object) -> None:
                cluster.zookeeper.write = through
                cluster.zookeeper.cut(f"b{controller}")
                raise Disconnected("the link is cut")

            on_write(cluster, f"b{controller}", TOPIC, lost)
            cluster[dead].kill()
            await cluster.until("the link is cut", lambda: cluster.zookeeper.write == through, 20)
            former = id_of(cluster)
            await delete(client, lead)
            await asyncio.sleep(0.05)
            await create_again(client, lead, [lead, other])
            again = id_of(cluster)
            assert again != former
            assert await client.produce(lead, TOPIC, ["precious"]) == (0, 0)
            broker = cluster[lead].broker
            if not same_version and broker is not None:
                await broker._changes.touch(TOPIC)
            cluster.zookeeper.heal(f"b{controller}")
            await asyncio.sleep(5)
            return id_of(cluster) == again, folders(cluster, lead, f"{TOPIC}-0")

    if not rule:
        take_out(monkeypatch, Catalog, "_identities", lambda *arguments: [])
    is_kept, held = simulate(1, scenario)
    assert is_kept is (rule or not same_version)
    if rule:
        assert held == [f"{TOPIC}-0"]


def test_a_topic_of_an_older_version_gets_its_id_with_the_first_change(tmp_path: Path) -> None:
    async def old(cluster: SimulatedBrokers, client: Client) -> None:
        await client.create(TOPIC, ALL, min_insync_replicas=2)
        await by_hand(cluster, Delete(f"/topic-ids/{id_of(cluster)}"))
        await write(cluster, client, 3)
        cluster[1].kill()
        await write(cluster, client, 3, "others")
        assert cluster.zookeeper.tree.children("/topic-ids") == [id_of(cluster)]
        await cluster[1].start()

    tell(old, tmp_path, rule=True)


def test_following_knows_which_node_says_whose_the_others_are() -> None:
    assert ClusterNode.path == f"/{IDENTITY}"
