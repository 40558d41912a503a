"""Nodes that no broker has written: they are named in the log and left alone, and everything else goes on."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from penstock.cluster.catalog import Catalog
from penstock.cluster.controller import Controller
from penstock.cluster.coordination import Create, Set
from penstock.cluster.model import NO_LEADER, ClusterImage, TopicState
from penstock.cluster.nodes import ProducerIdsNode
from penstock.cluster.settings import BrokerSettings
from penstock.protocol.errors import ApiError
from tests.cluster.controlled_cluster import NODE_ID, ControlledCluster
from tests.fakes import eventually

AN_ID = "00" * 15 + "01"


async def put(cluster: ControlledCluster, path: str, content: Any) -> None:
    data = json.dumps({"format": 1, **content}).encode()
    await cluster.store.multi([Create(path, data)])


async def started_again(cluster: ControlledCluster) -> tuple[ClusterImage, BrokerSettings]:
    """What another broker makes of the store when it starts."""
    image, settings = ClusterImage("", NO_LEADER), BrokerSettings()
    await Catalog(cluster.store, image, settings, 2).load(random.Random(9).randbytes)
    return image, settings


@pytest.fixture
async def two(tmp_path: Path) -> Any:
    cluster = await ControlledCluster(tmp_path, brokers=2).start()
    yield cluster
    await cluster.stop()


async def test_a_topic_that_no_broker_has_written_is_named_and_left_out(
    two: ControlledCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await two.administration.create_topic("good")
    await put(two, "/topics/bad", {"id": AN_ID, "partitions": [[1, None, [1, 2], [2]]], "config": {}})
    await eventually(lambda: "/topics/bad" in caplog.text)
    caplog.clear()
    image, _ = await started_again(two)
    assert list(image.topics) == ["good"]
    assert [each.levelname for each in caplog.records if "/topics/bad" in each.message] == ["ERROR"]


async def test_a_topics_value_that_is_not_admitted_is_named_and_the_default_counts(
    two: ControlledCluster, caplog: pytest.LogCaptureFixture
) -> None:
    content = {"id": AN_ID, "partitions": [[1, 0, [1, 2], [1, 2]]], "config": {"min.insync.replicas": "abc"}}
    await put(two, "/topics/odd", content)
    image, settings = await started_again(two)
    assert settings.effective(image.topics["odd"].config)["min.insync.replicas"] == 1
    assert "the default of min.insync.replicas counts for /topics/odd" in caplog.text


async def test_leaders_are_elected_beside_a_topic_that_can_not_be_decided_on(
    two: ControlledCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = Controller.settled

    def settled(self: Controller, topic: TopicState) -> TopicState:
        if topic.name == "odd":
            raise ValueError("odd")
        return real(self, topic)

    monkeypatch.setattr(Controller, "settled", settled)
    controller = Controller(two.catalog, two.store, two.image, two.settings, NODE_ID)
    await controller.start()
    for name in ("odd", "good"):
        await two.administration.create_topic(name, assignments=[(0, [2, 1])])
    two.image.brokers.pop(2)
    controller._cluster_changed()
    await eventually(lambda: two.image.topics["good"].partitions[0].leader == 1)
    assert two.image.topics["odd"].partitions[0].leader == 2
    assert "a topic is left as it is" in caplog.text
    await controller.close()


@pytest.mark.parametrize("content", [{}, {"config": "x"}, {"config": {"log.cleaner.backoff.ms": 5}}])
async def test_brokers_start_and_change_beside_a_config_that_no_broker_has_written(
    two: ControlledCluster, content: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await two.catalog.write_broker_config(2, {"log.cleaner.backoff.ms": "7"})
    await put(two, "/config/brokers/default", content)
    await put(two, "/config/groups/g", content)
    _, settings = await started_again(two)
    assert settings.get("log.cleaner.backoff.ms") == 7
    for path in ("/config/brokers/default", "/config/groups/g"):
        assert path in caplog.text


async def test_a_brokers_value_that_is_not_admitted_is_ignored_and_the_others_count(
    two: ControlledCluster, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"log.cleaner.backoff.ms": "x", "max.connections": "70", "from.the.future": "1"}
    await put(two, "/config/brokers/default", {"config": config})
    _, settings = await started_again(two)
    assert settings.get("max.connections") == 70
    assert "log.cleaner.backoff.ms in /config/brokers/default is ignored" in caplog.text


async def test_values_that_contradict_each_other_leave_the_settings_as_they_were(
    two: ControlledCluster, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"log.cleaner.min.compaction.lag.ms": "10", "log.cleaner.max.compaction.lag.ms": "5"}
    await put(two, "/config/brokers/default", {"config": config})
    _, settings = await started_again(two)
    assert settings.topic_default("min.compaction.lag.ms") == 0
    assert "the settings in /config/brokers are ignored" in caplog.text


async def test_who_asks_for_a_producer_id_is_told_which_node_is_corrupt(two: ControlledCluster) -> None:
    version = (await two.store.get(ProducerIdsNode.path)).version
    await two.store.multi([Set(ProducerIdsNode.path, b'{"format":1}', version)])
    with pytest.raises(ApiError, match="/producer-ids"):
        await two.administration._next_producer_id_block()
