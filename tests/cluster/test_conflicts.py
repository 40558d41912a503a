"""Writes that meet others, again and again: what is tried again rests before, has an end, and says so."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from penstock.cluster import controller as controller_module
from penstock.cluster.catalog import Conflict
from penstock.cluster.controller import CONFLICTS_MAX, Controller
from penstock.cluster.coordination import Operation
from penstock.cluster.model import BrokerState, PartitionState, TopicState
from penstock.cluster.partition_changes import ATTEMPTS, CONFLICT_REST_S, PartitionChanges
from penstock.protocol.errors import ApiError
from tests.cluster.controlled_cluster import NODE_ID, ControlledCluster
from tests.fakes import eventually

STATE = PartitionState(leader=NODE_ID, leader_epoch=0, replicas=(1, 2), isr=(1, 2))
TOPIC = TopicState("t", bytes(range(16)), (STATE,), {})
RESTS = [attempt * CONFLICT_REST_S for attempt in range(ATTEMPTS)]


@pytest.fixture
async def rests(cluster: ControlledCluster, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Every write meets another from now on. How long was rested."""
    await cluster.catalog.write_topics([TOPIC])
    rests: list[float] = []
    real = asyncio.sleep

    async def write_topics(topics: Sequence[TopicState], conditions: Sequence[Operation] = ()) -> None:
        raise Conflict("/topics/t")

    async def sleep(seconds: float) -> None:
        rests.append(seconds)
        await real(0)

    monkeypatch.setattr(cluster.catalog, "write_topics", write_topics)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    return rests


async def test_a_topic_is_not_touched_for_ever(cluster: ControlledCluster, rests: list[float]) -> None:
    changes = PartitionChanges(cluster.catalog, cluster.store, cluster.image)
    with pytest.raises(ApiError, match="others keep changing"):
        await asyncio.wait_for(changes.touch("t"), 5)
    assert rests == RESTS


async def test_a_change_of_the_in_sync_set_that_is_given_up_is_told(
    cluster: ControlledCluster, rests: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    changes = PartitionChanges(cluster.catalog, cluster.store, cluster.image)
    done: list[bool] = []
    changes.ask("t", 0, lambda state: PartitionState(1, 0, (1, 2), (1,)), done.append)
    await eventually(lambda: done == [False])
    assert [each for each in rests if each in RESTS[1:]] == RESTS[1:]
    assert "others keep changing the topic" in caplog.text
    await changes.close()


async def test_a_controller_that_meets_others_again_and_again_rests_and_says_so(
    cluster: ControlledCluster, rests: list[float], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(controller_module, "AGAIN_S", 0.001)
    controller = Controller(cluster.catalog, cluster.store, cluster.image, cluster.settings, NODE_ID)
    cluster.image.brokers[2] = BrokerState(2, ())
    await controller.start()
    del cluster.image.brokers[2]
    controller._cluster_changed()
    await eventually(lambda: caplog.text.count("can't decide") >= 2)
    told = [vars(record) for record in caplog.records if "can't decide" in record.message]
    assert (told[0]["nodes"], told[0]["attempts"]) == ("/topics/t", CONFLICTS_MAX)
    assert controller_module.SELDOM_S in rests
    await controller.close()
