"""The image and its copy in the coordination store, kept in step.

Invariant: a change is durable in the store before it is in the image, and in the image before anyone is told. Who
decides on changes is the controller; the catalog only reads, writes conditionally, and tells.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.cluster.coordination import (
    Coordination,
    CoordinationError,
    Create,
    DataTooLarge,
    Disconnected,
    NodeExists,
    NoNode,
    Operation,
    Result,
    Versioned,
)
from penstock.cluster.identity import RandomBytes, new_uuid, show_uuid
from penstock.cluster.model import ClusterImage, TopicState
from penstock.cluster.nodes import (
    BROKER_CONFIGS,
    FOLDERS,
    GROUP_CONFIGS,
    TOPICS,
    BrokerConfigNode,
    ClusterNode,
    GroupConfigNode,
    ProducerIdsNode,
    TopicNode,
    save,
)
from penstock.cluster.settings import BrokerSettings
from penstock.cluster.topic_names import NameIndex
from penstock.protocol.errors import ApiError, ErrorCode

log = logging.getLogger(__name__)


class TopicListener(Protocol):
    """Told of every change after it is durable and in the image. Who fails here is logged; the change stands."""

    def topic_created(self, topic: TopicState) -> None: ...
    def topic_changed(self, before: TopicState, after: TopicState) -> None: ...
    def topic_deleted(self, topic: TopicState) -> None: ...


class Catalog:
    def __init__(self, store: Coordination, image: ClusterImage, settings: BrokerSettings, node_id: int) -> None:
        self.names = NameIndex()
        self.in_doubt = False  # a write failed that may have happened: read everything before the next one
        self._store = store
        self._image = image
        self._settings = settings
        self._node_id = node_id
        self._versions: dict[str, int] = {}  # of topic nodes
        self._broker_configs: dict[int | None, BrokerConfigNode] = {}
        self._group_configs: dict[str, GroupConfigNode] = {}
        self._listeners: list[TopicListener] = []

    def subscribe(self, listener: TopicListener) -> None:
        self._listeners.append(listener)

    # ---- reading

    async def load(self, random_bytes: RandomBytes) -> None:
        """Fills the image from the store, which is made ready first if it is new. Tells nobody."""
        await self._prepare(random_bytes)
        self._image.cluster_id = ClusterNode.decode(await self._store.get(ClusterNode.path)).cluster_id
        self._image.controller_id = self._node_id
        await self._read_broker_configs()
        await self._read_group_configs()
        await self._read_topics(tell=False)

    async def reread(self) -> None:
        """Finds out what the store holds after a write whose outcome is not known."""
        try:
            await self._read_broker_configs()
            await self._read_group_configs()
            await self._read_topics(tell=True)
        except CoordinationError as error:
            raise unreadable(error) from error
        self.in_doubt = False

    async def read(self, path: str) -> Versioned:
        try:
            return await self._store.get(path)
        except CoordinationError as error:
            raise unreadable(error) from error

    async def _prepare(self, random_bytes: RandomBytes) -> None:
        cluster = ClusterNode(show_uuid(new_uuid(random_bytes)))
        wanted = [*(Create(path) for path in FOLDERS), save(cluster), save(ProducerIdsNode(0))]
        missing: list[Operation] = []
        for operation in wanted:
            try:
                await self._store.get(operation.path)
            except NoNode:
                missing.append(operation)
        try:
            if missing:
                await self._store.multi(missing)
        except NodeExists:  # another broker of a new cluster was faster
            await self._prepare(random_bytes)

    async def _read_broker_configs(self) -> None:
        stored = await self._store.children_with_data(BROKER_CONFIGS)
        self._broker_configs = {
            node_id: BrokerConfigNode.decode(node_id, content)
            for node_id in (None, self._node_id)
            if (content := stored.get(BrokerConfigNode.name_of(node_id)))
        }
        self._apply_broker_configs()

    async def _read_group_configs(self) -> None:
        stored = await self._store.children_with_data(GROUP_CONFIGS)
        nodes = [GroupConfigNode.decode(name, content) for name, content in stored.items()]
        self._group_configs = {node.group_id: node for node in nodes}
        self._image.group_configs = {node.group_id: node.config for node in nodes}

    async def _read_topics(self, *, tell: bool) -> None:
        stored = await self._store.children_with_data(TOPICS)
        for name in self._image.topics.keys() - stored.keys():
            self._remove_topic(name, tell=tell)
        for node in TopicNode.decode_all(stored):
            if node.topic != self._image.topics.get(node.topic.name):
                self._put_topic(node.topic, tell=tell)
            self._versions[node.topic.name] = node.version

    # ---- writing

    async def write(self, operations: Sequence[Operation]) -> list[Result]:
        try:
            return await self._store.multi(operations)
        except DataTooLarge as error:
            raise ApiError(ErrorCode.POLICY_VIOLATION, f"Too large to be stored: {error}") from error
        except CoordinationError as error:
            self.in_doubt = True
            log.error("cluster state was not written: %r", error)
            if isinstance(error, Disconnected):
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"Cluster state can't be written: {error}") from error
            raise ApiError(ErrorCode.NOT_CONTROLLER, f"Someone else has changed {error}") from error

    async def write_topics(self, topics: Sequence[TopicState]) -> None:
        """Creates or changes them, all in one write."""
        nodes = [TopicNode(topic, self._versions[topic.name]) if topic.name in self._versions else TopicNode(topic)
                 for topic in topics]  # fmt: skip
        results = await self.write([save(node) for node in nodes])
        for topic, result in zip(topics, results):
            self._versions[topic.name] = result if isinstance(result, int) else 0
        for topic in topics:
            self._put_topic(topic)

    async def delete_topics(self, topics: Sequence[TopicState]) -> None:
        await self.write([TopicNode(topic, self._versions[topic.name]).remove() for topic in topics])
        for topic in topics:
            self._remove_topic(topic.name)

    async def write_broker_config(self, node_id: int | None, config: dict[str, str]) -> None:
        node = self.broker_config(node_id)
        (result,) = await self.write([save(BrokerConfigNode(node_id, config, node.version))])
        version = result if isinstance(result, int) else 0
        self._broker_configs[node_id] = BrokerConfigNode(node_id, config, version)
        self._apply_broker_configs()

    def broker_config(self, node_id: int | None) -> BrokerConfigNode:
        return self._broker_configs.get(node_id) or BrokerConfigNode(node_id, {})

    async def write_group_config(self, group_id: str, config: dict[str, str]) -> None:
        """A config without settings is none."""
        node = GroupConfigNode(group_id, config, self.group_config(group_id).version)
        (result,) = await self.write([save(node) if config else node.remove()])
        if config:
            version = result if isinstance(result, int) else 0
            self._group_configs[group_id] = GroupConfigNode(group_id, config, version)
            self._image.group_configs[group_id] = config
        else:
            del self._group_configs[group_id], self._image.group_configs[group_id]

    def group_config(self, group_id: str) -> GroupConfigNode:
        return self._group_configs.get(group_id) or GroupConfigNode(group_id, {})

    # ---- telling

    def _apply_broker_configs(self) -> None:
        self._image.broker_config = dict(self.broker_config(None).config)
        self._image.generation += 1
        self._settings.set_dynamic(cluster=self._image.broker_config, broker=self.broker_config(self._node_id).config)

    def _put_topic(self, topic: TopicState, *, tell: bool = True) -> None:
        before = self._image.topics.get(topic.name)
        self.names.add(topic.name)
        self._image.put_topic(topic)
        if not tell:
            return
        if before is not None and before.topic_id == topic.topic_id:
            self._tell(lambda listener: listener.topic_changed(before, topic))
            return
        if before is not None:
            self._tell(lambda listener: listener.topic_deleted(before))
        self._tell(lambda listener: listener.topic_created(topic))

    def _remove_topic(self, name: str, *, tell: bool = True) -> None:
        topic = self._image.topics[name]
        self._versions.pop(name, None)
        self.names.remove(name)
        self._image.drop_topic(name)
        if tell:
            self._tell(lambda listener: listener.topic_deleted(topic))

    def _tell(self, call: Callable[[TopicListener], None]) -> None:
        for listener in tuple(self._listeners):
            try:
                call(listener)
            except Exception:
                log.exception("a listener failed on a change of topics")


def unreadable(error: CoordinationError) -> ApiError:
    return ApiError(ErrorCode.REQUEST_TIMED_OUT, f"Cluster state can't be read: {error}")
