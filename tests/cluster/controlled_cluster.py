"""The administration over the embedded store, with all it needs, and the two fakes that the tests of it share."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from penstock.cluster.administration import Administration
from penstock.cluster.catalog import Catalog
from penstock.cluster.coordination import Disconnected, Operation, Result
from penstock.cluster.embedded import EmbeddedStore
from penstock.cluster.model import BrokerState, ClusterImage, Endpoint, TopicState
from penstock.cluster.settings import BrokerSettings

NODE_ID = 1
LISTENER = "PLAINTEXT"


class RememberingListener:
    """Writes down what it is told, and whether the image already knew."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self.told: list[tuple[str, str]] = []

    def topic_created(self, topic: TopicState) -> None:
        assert self._image.topics[topic.name] is topic
        self.told.append(("created", topic.name))

    def topic_changed(self, before: TopicState, after: TopicState) -> None:
        assert self._image.topics[after.name] is after
        assert before != after
        self.told.append(("changed", after.name))

    def topic_deleted(self, topic: TopicState) -> None:
        assert self._image.topics.get(topic.name) is not topic
        self.told.append(("deleted", topic.name))

    def topic_lost(self, topic: TopicState) -> None:
        assert self._image.topics.get(topic.name) is not topic
        self.told.append(("lost", topic.name))

    def lost_topic_deleted(self, topic: TopicState) -> None:
        assert topic.topic_id not in self._image.topics_by_id
        self.told.append(("deleted after all", topic.name))


class FailingStore(EmbeddedStore):
    """Loses its connection when told to: before a write happens, or after."""

    fail_before = fail_after = False

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        if self.fail_before:
            raise Disconnected("no connection")
        results = await super().multi(operations)
        if self.fail_after:
            raise Disconnected("connection lost")
        return results


class ControlledCluster:
    def __init__(self, folder: Path, settings: dict[str, str] | None = None, brokers: int = 1) -> None:
        self._folder = folder
        self.settings = BrokerSettings(settings or {})
        self.image = ClusterImage("", -1)
        for node_id in range(NODE_ID, NODE_ID + brokers):
            endpoint = Endpoint(LISTENER, f"host{node_id}", 9092)
            self.image.brokers[node_id] = BrokerState(node_id, (endpoint,), rack=None)
        self.listener = RememberingListener(self.image)

    async def start(self) -> ControlledCluster:
        self.store = await FailingStore.open(self._folder)
        randbytes = random.Random(7).randbytes
        self.catalog = catalog = Catalog(self.store, self.image, self.settings, NODE_ID)
        self.administration = Administration(catalog, self.image, self.settings, NODE_ID, randbytes)
        await catalog.load(randbytes)
        catalog.subscribe(self.listener)
        return self

    async def stop(self) -> None:
        await self.administration.close()
        await self.catalog.close()
        await self.store.close()
