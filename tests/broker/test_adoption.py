"""A folder is adopted whole, however often that is interrupted, and never into another's cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.broker import adoption, folder
from penstock.broker.adoption import Refused, adopt
from penstock.cluster.coordination import Create, Disconnected, Operation, Result
from penstock.cluster.embedded import EmbeddedStore
from penstock.cluster.model import PartitionState, TopicState
from penstock.cluster.nodes import (
    FOLDERS,
    TOPICS,
    BrokerConfigNode,
    ClusterNode,
    GroupConfigNode,
    ProducerIdsNode,
    TopicNode,
    save,
)
from penstock.cluster.zookeeper import ZooKeeperStore
from penstock.storage.disk import Disk

NAMES = [f"topic-{number}" for number in range(9)]


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    """What broker 3 leaves behind that stood alone."""
    store = await EmbeddedStore.open(tmp_path)
    await store.multi([Create(path) for path in FOLDERS])
    await store.multi([save(ClusterNode("the-cluster")), save(ProducerIdsNode(4000))])
    await store.multi(
        [save(BrokerConfigNode(3, {"log.retention.hours": "7"})), save(GroupConfigNode("a/b", {"x": "1"}))]
    )
    for name in NAMES:
        partition = PartitionState(leader=3, leader_epoch=5, replicas=(3,), isr=(3,))
        await store.multi([save(TopicNode(TopicState(name, os.urandom(16), (partition,) * 2, {"flush": "os"})))])
    await store.close()
    folder.save(Disk(), tmp_path, folder.Identity("the-folder", 3, "the-cluster", "a-boot"))
    return tmp_path


async def stored(connect: str, path: str) -> dict[str, Any]:
    store = await ZooKeeperStore.open(connect)
    try:
        return {
            name: json.loads(each.data) for name, each in (await store.children_with_data(path)).items() if each.data
        }
    finally:
        await store.close()


def interrupted_after(writes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write is small, and ZooKeeper goes away when it has made so many."""
    monkeypatch.setattr(adoption, "OPERATIONS_PER_WRITE", 2)
    made = 0
    multi = ZooKeeperStore.multi

    async def failing(store: ZooKeeperStore, operations: Sequence[Operation]) -> list[Result]:
        nonlocal made
        if made == writes:
            raise Disconnected("gone")
        made += 1
        return await multi(store, operations)

    monkeypatch.setattr(ZooKeeperStore, "multi", failing)


async def test_all_of_it_is_there_under_the_new_number(data: Path, zookeeper_path: str) -> None:
    done = await adopt(data, zookeeper_path, 8)
    assert (done.cluster_id, done.node_id, done.topics, done.already) == ("the-cluster", 8, len(NAMES), False)
    topics = await stored(zookeeper_path, TOPICS)
    assert sorted(topics) == NAMES
    assert {json.dumps(topic["partitions"]) for topic in topics.values()} == {json.dumps([[8, 5, [8], [8]]] * 2)}
    assert await stored(zookeeper_path, "/config/brokers") == {
        "8": {"format": 1, "config": {"log.retention.hours": "7"}}
    }
    assert list(await stored(zookeeper_path, "/config/groups")) == ["a%2Fb"]
    assert (await stored(zookeeper_path, "/"))["producer-ids"] == {"format": 1, "next": 4000}
    assert folder.read(Disk(), data) == folder.Identity("the-folder", 8, "the-cluster", "a-boot")
    assert not (data / "cluster.db").exists()
    assert (data / "cluster.db.adopted").exists()
    assert (await adopt(data, zookeeper_path)).already
    with pytest.raises(Refused, match="is broker 8 of cluster the-cluster"):
        await adopt(data, zookeeper_path, 9)


@pytest.mark.parametrize("writes", range(7))
async def test_one_that_was_interrupted_goes_on(
    writes: int, data: Path, zookeeper_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        interrupted_after(writes, patched)
        with pytest.raises(Refused, match="gone"):
            await adopt(data, zookeeper_path)
        assert (data / "cluster.db").exists(), "until it is complete, the folder is what it was"
    if writes:
        with pytest.raises(Refused, match="being adopted as broker 3, not 4"):
            await adopt(data, zookeeper_path, 4)
    assert (await adopt(data, zookeeper_path)).topics == len(NAMES)
    assert sorted(await stored(zookeeper_path, TOPICS)) == NAMES
    assert not (data / "cluster.db").exists()


async def test_what_was_deleted_since_is_not_brought_back(
    data: Path, zookeeper_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZooKeeper had all of it, and only the folder was not marked yet."""

    def full(*_: object) -> None:
        raise folder.FolderError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(folder, "save", full)
        with pytest.raises(Refused, match="the disk is full"):
            await adopt(data, zookeeper_path)
    store = await ZooKeeperStore.open(zookeeper_path)
    await store.delete(f"{TOPICS}/topic-4")
    await store.close()
    await adopt(data, zookeeper_path)
    assert sorted(await stored(zookeeper_path, TOPICS)) == [name for name in NAMES if name != "topic-4"]


async def test_a_copy_of_an_adopted_folder_is_refused(data: Path, zookeeper_path: str) -> None:
    store = await ZooKeeperStore.open(zookeeper_path)
    await store.multi([save(ClusterNode("the-cluster"))])
    await store.close()
    with pytest.raises(Refused, match="seems to be a copy"):
        await adopt(data, zookeeper_path)
