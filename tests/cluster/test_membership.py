"""A broker's own announcement, and the controller's post: what belongs to another life is left alone."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from penstock.cluster.controller import Controller
from penstock.cluster.coordination import CoordinationError, Operation, Versioned
from penstock.cluster.membership import RANDOM_BITS, Membership
from penstock.cluster.model import BrokerState, Endpoint
from penstock.cluster.nodes import BrokerEpochNode, BrokerNode, ControllerEpochNode, ControllerNode
from penstock.protocol.errors import ApiError, ErrorCode
from tests.cluster.controlled_cluster import NODE_ID, ControlledCluster
from tests.fakes import eventually, turns

HERE = (Endpoint("PLAINTEXT", "here", 9092),)
PATH = f"/brokers/{NODE_ID}"


def membership_of(cluster: ControlledCluster) -> Membership:
    return Membership(cluster.store, NODE_ID, "folder", random.Random(1).randbytes, cluster.catalog.of_cluster)


async def announced_by_another(cluster: ControlledCluster, mine: BrokerState) -> Versioned:
    """Its first version is the same as that of this one."""
    await cluster.store.delete(PATH)
    other = BrokerState(NODE_ID, HERE, epoch=mine.epoch + (1 << RANDOM_BITS), folder="folder", host="elsewhere")
    await cluster.store.create(PATH, BrokerNode(other).encode())
    return await cluster.store.get(PATH)


async def test_an_announcement_is_changed_and_withdrawn_by_the_life_that_made_it(cluster: ControlledCluster) -> None:
    membership = membership_of(cluster)
    await membership.join(HERE, None)
    await membership.retire()
    assert BrokerNode.decode(str(NODE_ID), await cluster.store.get(PATH)).broker.stopping
    await membership.leave()
    assert await cluster.store.children("/brokers") == []


async def test_an_announcement_of_another_life_is_neither_changed_nor_withdrawn(cluster: ControlledCluster) -> None:
    membership = membership_of(cluster)
    mine = await membership.join(HERE, None)
    there = await announced_by_another(cluster, mine)
    with pytest.raises(CoordinationError, match="another life"):
        await membership.retire()
    await membership.leave()
    assert await cluster.store.get(PATH) == there


async def test_epochs_rise_though_their_count_has_gone_back(cluster: ControlledCluster) -> None:
    for _ in range(3):
        membership = membership_of(cluster)
        before = await membership.join(HERE, None)
        await cluster.store.delete(PATH)
    await cluster.store.set(BrokerEpochNode.path, BrokerEpochNode(0).encode())
    membership._announce_again()
    await eventually(lambda: membership.epoch != before.epoch)
    assert membership.epoch >> RANDOM_BITS > before.epoch >> RANDOM_BITS


async def test_a_broker_announces_itself_to_its_own_cluster_only_and_says_so_once(
    cluster: ControlledCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("penstock.cluster.membership.AGAIN_S", 0.0)
    is_other = False

    async def of_cluster() -> Sequence[Operation]:
        if is_other:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper holds cluster another")
        return ()

    membership = Membership(cluster.store, NODE_ID, "folder", random.Random(1).randbytes, of_cluster)
    await membership.join(HERE, None)
    await cluster.store.delete(PATH)
    is_other = True
    membership._announce_again()
    await eventually(lambda: "holds cluster another" in caplog.text)
    await turns()
    assert await cluster.store.children("/brokers") == []
    assert caplog.text.count("holds cluster another") == 1
    is_other = False
    await eventually(lambda: "announced again" in caplog.text)


async def test_a_controller_gives_up_its_own_post_only(cluster: ControlledCluster) -> None:
    controller = Controller(cluster.catalog, cluster.store, cluster.image, cluster.settings, NODE_ID)
    await controller.start()
    term = controller.term
    assert term is not None
    epoch = await cluster.store.get(ControllerEpochNode.path)
    await cluster.store.delete(ControllerNode.path)
    later = ControllerEpochNode(term.epoch + 1, epoch.version)
    await cluster.store.set(ControllerEpochNode.path, later.encode())
    await cluster.store.create(ControllerNode.path, ControllerNode(2, later.epoch).encode())
    there = await cluster.store.get(ControllerNode.path)
    controller.term = term  # as if it had not heard of that
    await controller.close()
    assert await cluster.store.get(ControllerNode.path) == there


async def test_a_controller_that_stops_leaves_the_post_to_others(cluster: ControlledCluster) -> None:
    controller = Controller(cluster.catalog, cluster.store, cluster.image, cluster.settings, NODE_ID)
    await controller.start()
    await controller.close()
    assert ControllerNode.name not in await cluster.store.children("/election")
