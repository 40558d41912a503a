"""The image and its copy in the coordination store, kept in step.

Invariant: a change is durable in the store before it is in the image, and in the image before anyone is told. The
catalog follows what every broker of the cluster writes, and writes conditionally itself; who decides on changes are the
administration, the controller and the leaders of partitions.

What is told may come late, behind what this broker has written or read itself. So an older version is asked about
before it counts: ZooKeeper may have been restored from an older state, or a node deleted and made again.

That a topic's node is gone does not say that anybody has deleted the topic: ZooKeeper may have lost it. Whoever deletes
a topic leaves a note, and without one the topic is lost: it is served no more, and its data stay.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Protocol

from penstock.cluster.coordination import (
    BadVersion,
    Check,
    Coordination,
    CoordinationError,
    Create,
    DataTooLarge,
    NodeExists,
    NoNode,
    Operation,
    Result,
    Session,
    Set,
    Versioned,
)
from penstock.cluster.embedded import EmbeddedStore
from penstock.cluster.identity import RandomBytes, new_uuid, show_uuid
from penstock.cluster.model import NO_LEADER, ClusterImage, TopicState
from penstock.cluster.nodes import (
    BROKER_CONFIGS,
    BROKERS,
    DELETIONS,
    ELECTION,
    FOLDERS,
    GROUP_CONFIGS,
    TOPICS,
    UNWRITTEN,
    BrokerConfigNode,
    BrokerEpochNode,
    BrokerNode,
    ClusterNode,
    ControllerEpochNode,
    ControllerNode,
    DeletionNode,
    ForeignNode,
    GroupConfigNode,
    ProducerIdsNode,
    TopicIdNode,
    TopicNode,
    save,
    size_at_most,
)
from penstock.cluster.settings import BROKER_SETTINGS, TOPIC_SETTINGS, BrokerSettings, SettingError, unusable
from penstock.cluster.topic_names import NameIndex
from penstock.protocol.errors import ApiError, ErrorCode

log = logging.getLogger(__name__)

WRITE_BYTES_MAX = 512 * 1024
WRITE_TOPICS_MAX = 100
LOOK_AGAIN_S = 1.0  # until what could not be asked is asked again
NOTE_S = 5.0  # so long the note of a deletion may be behind the deletion


class TopicListener(Protocol):
    """Told of every change after it is durable and in the image. Who fails here is logged; the change stands."""

    def topic_created(self, topic: TopicState) -> None: ...
    def topic_changed(self, before: TopicState, after: TopicState) -> None: ...
    def topic_deleted(self, topic: TopicState) -> None: ...

    def topic_lost(self, topic: TopicState) -> None:
        """Its node is gone or holds another topic, and nothing says that somebody has deleted it."""
        ...

    def lost_topic_deleted(self, topic: TopicState) -> None:
        """It was told as lost, and now there is word that it was deleted. Another may have its name by now."""
        ...


class Conflict(Exception):
    """Someone else has written what this write was conditional on; the image has what they wrote."""


class Catalog:
    def __init__(self, store: Coordination, image: ClusterImage, settings: BrokerSettings, node_id: int) -> None:
        self.store = store
        self.names = NameIndex()
        self.in_doubt = False  # a write failed that may have happened: read everything before the next one
        self.deletions: dict[str, DeletionNode] = {}  # by topic id
        self._lost: dict[str, TopicState] = {}  # by topic id
        self._is_doubtful = False  # since the last connect nobody has looked whose nodes these are
        self._image = image
        self._settings = settings
        self._node_id = node_id
        self._versions: dict[str, int] = {}  # of topic nodes
        self._foreign: set[str] = set()  # names of topics whose nodes no broker has written
        self._broker_configs: dict[str, BrokerConfigNode] = {}
        self._group_configs: dict[str, GroupConfigNode] = {}
        self._broker_versions: dict[int, int] = {}
        self._certain = ""  # the path of what is told, if nothing newer of it can be known
        self._doubted: dict[str, None] = {}  # paths of which something older was told than is known
        self._looking: asyncio.Task[None] | None = None
        self._listeners: list[TopicListener] = []
        self._cluster_listeners: list[Callable[[], None]] = []
        self._folders = {
            BROKER_CONFIGS: self._broker_config_told,
            GROUP_CONFIGS: self._group_config_told,
            BROKERS: self._broker_told,
            ELECTION: self._election_told,
            DELETIONS: self._deletion_told,
            TOPICS: self._topic_told,
        }
        store.on_session(self._session)

    @property
    def is_alone(self) -> bool:
        """Whether nobody but this broker writes to the store."""
        return isinstance(self.store, EmbeddedStore)

    async def close(self) -> None:
        self._doubted.clear()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    def subscribe(self, listener: TopicListener) -> None:
        self._listeners.append(listener)

    def on_cluster(self, changed: Callable[[], None]) -> None:
        """Called when brokers come, change or go, and when the controller does."""
        self._cluster_listeners.append(changed)

    # ---- reading

    async def load(self, random_bytes: RandomBytes) -> None:
        """Fills the image from the store, which is made ready first if it is new, and follows it from then on."""
        await self._prepare(random_bytes)
        self._image.cluster_id = ClusterNode.decode(await self.store.get(ClusterNode.path)).cluster_id
        for folder in self._folders:
            if folder != TOPICS:
                for name, content in (await self.store.follow(folder, self._folders[folder])).items():
                    self._folders[folder](name, content)
        self._take_topics(await self.store.follow(TOPICS, self._topic_told))

    async def reread(self) -> None:
        """Finds out what the store holds after a write whose outcome is not known. What came or went while a folder was
        read may have been told already, and would not be told again: it is asked for by name."""
        await self._check_cluster()
        for folder, told in self._folders.items():
            try:
                stored = await self.store.children_with_data(folder)
            except CoordinationError as error:
                raise unreadable(error) from error
            known = self._known(folder)
            for name, content in stored.items():
                if name in known:
                    told(name, content)
            await self.refresh([f"{folder}/{name}" for name in sorted(known ^ stored.keys())])
        self.in_doubt = False

    async def refresh(self, paths: Collection[str]) -> None:
        """Does not wait for what others wrote there to be told. What is found counts even if it is older than what was
        known, unless something else was learned while it was read."""
        if paths:
            await self._check_cluster()
        for path in paths:
            folder, _, name = path.rpartition("/")
            if told := self._folders.get(folder):
                known = self._age(folder, name)
                content: Versioned | None
                try:
                    content = await self.store.get(path)
                except NoNode:
                    content = None
                except CoordinationError as error:
                    raise unreadable(error) from error
                if self._age(folder, name) == known:
                    self._certain = path
                try:
                    told(name, content)
                finally:
                    self._certain = ""

    def _age(self, folder: str, name: str) -> int | None:
        """How new what is known of it is, as a number that rises unless the store goes back."""
        if folder == TOPICS:
            return self._versions.get(name)
        broker = self._image.brokers.get(int(name)) if folder == BROKERS and name.isdigit() else None
        return broker.epoch if broker is not None else None

    def _counts(self, folder: str, name: str, age: int) -> bool:
        """Whether what was told is to be believed now: if it is older than what is known, it is asked about first."""
        path, known = f"{folder}/{name}", self._age(folder, name)
        if known is None or age >= known:
            return True
        if self._certain == path:
            log.warning("ZooKeeper has gone back to an older state of a node", extra={"node": path})
            return True
        self._doubted[path] = None
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look_again())
        return False

    async def _look_again(self) -> None:
        while self._doubted:
            paths, self._doubted = self._doubted, {}
            try:
                await self.refresh(paths)
            except ApiError as error:
                self._doubted = {**paths, **self._doubted}
                log.debug("looked at again later: %s", error)
                await asyncio.sleep(LOOK_AGAIN_S)

    def _session(self, session: Session) -> None:
        self._is_doubtful = True

    async def find_cluster(self) -> str:
        """The id of the cluster that the store holds; "" if it holds none. Nothing is made for that."""
        found = await self._find_cluster()
        return found.cluster_id if found is not None else ""

    async def _find_cluster(self) -> ClusterNode | None:
        try:
            return ClusterNode.decode(await self.store.get(ClusterNode.path))
        except NoNode:
            return None
        except (CoordinationError, ForeignNode) as error:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"Cluster state can't be read: {error}") from error

    async def of_cluster(self) -> list[Operation]:
        """What a write depends on that would be possible between another cluster's nodes, too. Raises ApiError if these
        are not this cluster's."""
        version = await self._check_cluster()
        return [] if self.is_alone else [Check(ClusterNode.path, version)]

    async def _check_cluster(self) -> int:
        """Raises ApiError if ZooKeeper has lost this cluster's nodes, or holds another's: they say nothing about this
        one, and nothing is written between them. The version of the node that tells."""
        if self.is_alone:
            return UNWRITTEN
        found = await self._find_cluster()
        if found is None or found.cluster_id != self._image.cluster_id:
            name = found.cluster_id if found is not None else "none"
            problem = f"ZooKeeper holds cluster {name}, and this broker belongs to {self._image.cluster_id}"
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, problem)
        self._is_doubtful = False
        return found.version

    async def read(self, path: str) -> Versioned:
        try:
            return await self.store.get(path)
        except CoordinationError as error:
            raise unreadable(error) from error

    def _known(self, folder: str) -> set[str]:
        if folder == TOPICS:
            return set(self._image.topics)
        if folder == BROKERS:
            return {str(node_id) for node_id in self._broker_versions}
        if folder == ELECTION:
            return {ControllerNode.name}
        if folder == BROKER_CONFIGS:
            return set(self._broker_configs)
        return set(self._group_configs if folder == GROUP_CONFIGS else self.deletions)

    async def _prepare(self, random_bytes: RandomBytes) -> None:
        cluster = ClusterNode(show_uuid(new_uuid(random_bytes)))
        counters = (save(ProducerIdsNode(0)), save(BrokerEpochNode(0)), save(ControllerEpochNode(0)))
        wanted = [*(Create(path) for path in FOLDERS), save(cluster), *counters]
        missing: list[Operation] = []
        for operation in wanted:
            try:
                await self.store.get(operation.path)
            except NoNode:
                missing.append(operation)
        try:
            if missing:
                await self.store.multi(missing)
        except NodeExists:  # another broker of a new cluster was faster
            await self._prepare(random_bytes)

    # ---- what the store tells

    def _broker_config_told(self, name: str, content: Versioned | None) -> None:
        if content is None:
            self._broker_configs.pop(name, None)
        else:
            with _foreign_left_alone():
                self._broker_configs[name] = BrokerConfigNode.decode(_node_id_of(name), content)
        self._apply_broker_configs()

    def _group_config_told(self, name: str, content: Versioned | None) -> None:
        if content is None:
            if known := self._group_configs.pop(name, None):
                self._image.group_configs.pop(known.group_id, None)
            return
        with _foreign_left_alone():
            node = self._group_configs[name] = GroupConfigNode.decode(name, content)
            self._image.group_configs[node.group_id] = node.config

    def _broker_told(self, name: str, content: Versioned | None) -> None:
        if content is None:
            if name.isdigit() and int(name) in self._broker_versions:
                del self._broker_versions[int(name)]
                self._image.brokers.pop(int(name), None)
                self._cluster_changed()
            return
        with _foreign_left_alone():
            node = BrokerNode.decode(name, content)
            if not self._counts(BROKERS, name, node.broker.epoch):
                return  # of a former life
            self._broker_versions[node.broker.node_id] = node.version
            if self._image.brokers.get(node.broker.node_id) != node.broker:
                self._image.brokers[node.broker.node_id] = node.broker
                self._cluster_changed()

    def _election_told(self, name: str, content: Versioned | None) -> None:
        if name != ControllerNode.name:
            return
        with _foreign_left_alone():
            node = ControllerNode.decode(content) if content is not None else None
            self._image.controller_id = node.node_id if node else NO_LEADER
            self._cluster_changed()

    def _deletion_told(self, name: str, content: Versioned | None) -> None:
        if content is None:
            self.deletions.pop(name, None)
            return
        with _foreign_left_alone():
            self.deletions[name] = DeletionNode.decode(name, content)
            self._explained(name)

    def _take_topics(self, stored: dict[str, Versioned]) -> None:
        """At the start, in one go. Tells nobody."""
        try:
            nodes = TopicNode.decode_all(stored)
        except ForeignNode:  # one of them: find out which
            nodes = []
            for name, content in stored.items():
                with _foreign_left_alone():
                    self._foreign.add(name)
                    nodes.append(TopicNode.decode(name, content))
                    self._foreign.discard(name)
        for node in nodes:
            self._versions[node.topic.name] = node.version
            self._put_topic(node.topic, tell=False)

    def _topic_told(self, name: str, content: Versioned | None) -> None:
        if content is None:
            self._foreign.discard(name)
            if name in self._image.topics:
                self._remove_topic(name)
            return
        with _foreign_left_alone():
            self._foreign.add(name)
            node = TopicNode.decode(name, content)
            self._foreign.discard(name)
            known = self._image.topics.get(name)
            is_known = known is not None and known.topic_id == node.topic.topic_id
            if is_known and not self._counts(TOPICS, name, node.version):
                return  # this broker has written since
            self._versions[name] = node.version
            if node.topic != self._image.topics.get(name):
                self._put_topic(node.topic)

    # ---- writing

    async def write(self, operations: Sequence[Operation]) -> list[Result]:
        """All or nothing. Raises Conflict if something was not as it is in the image."""
        if self._is_doubtful:
            await self._check_cluster()
        try:
            return await self.store.multi(operations)
        except DataTooLarge as error:
            raise ApiError(ErrorCode.POLICY_VIOLATION, f"Too large to be stored: {error}") from error
        except (BadVersion, NodeExists, NoNode) as error:
            await self.refresh([operation.path for operation in operations])
            raise Conflict(str(error)) from error
        except CoordinationError as error:
            self.in_doubt = True
            log.error("cluster state was not written: %r", error)
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"Cluster state can't be written: {error}") from error

    async def write_topics(self, topics: Sequence[TopicState], conditions: Sequence[Operation] = ()) -> None:
        """Creates or changes them, all in one write."""
        operations = [self.topic_write(topic) for topic in topics]
        results = await self._write_topics(topics, [*operations, *conditions, *self._identities(operations, topics)])
        for topic, result in zip(topics, results):
            self._written(topic, result if isinstance(result, int) else 0)

    async def _write_topics(self, topics: Sequence[TopicState], operations: Sequence[Operation]) -> list[Result]:
        try:
            return await self.write(operations)
        except Conflict as conflict:
            if isinstance(conflict.__cause__, NoNode):
                await self._identify(topics)
            raise

    def _identities(self, writes: Sequence[Create | Set], topics: Sequence[TopicState]) -> list[Operation]:
        """What keeps a write from reaching a later topic of the same name. A broker that stands alone knows of all."""
        if self.is_alone:
            return []
        nodes = [TopicIdNode(topic.topic_id) for topic in topics]
        return [node.create() if isinstance(write, Create) else node.check() for node, write in zip(nodes, writes)]

    async def _identify(self, topics: Sequence[TopicState]) -> None:
        """Topics that were made by an older version, or alone, have no node of their id yet."""
        for topic in topics:
            stored = self._image.topics.get(topic.name)
            if self.is_alone or stored is None or stored.topic_id != topic.topic_id:
                continue
            condition = Check(TopicNode.path_of(topic.name), self._versions[topic.name])
            try:
                await self.store.multi([condition, TopicIdNode(topic.topic_id).create()])
            except (BadVersion, NodeExists, NoNode):
                pass  # whoever wants to write looks again
            except CoordinationError as error:
                raise unreadable(error) from error

    def is_foreign(self, name: str) -> bool:
        return name in self._foreign

    def version_of(self, name: str) -> int:
        """The version of the topic's node that the image has; -1 if it has none."""
        return self._versions.get(name, -1)

    async def write_apart(self, topics: Sequence[TopicState], conditions: Sequence[Operation] = ()) -> None:
        """Many topics that have nothing to do with each other, as many at a time as fit into a write. One that can't be
        written is logged and left out."""
        for some in _portions([topic for topic in topics if not self.is_foreign(topic.name)]):
            await self._write_some(some, conditions)

    async def _write_some(self, topics: Sequence[TopicState], conditions: Sequence[Operation]) -> None:
        try:
            await self.write_topics(topics, conditions)
        except ApiError as error:
            if error.code == ErrorCode.REQUEST_TIMED_OUT:
                raise
            if len(topics) == 1:
                log.error("not written: %s", error, extra={"topic": topics[0].name})
                return
            half = len(topics) // 2
            await self._write_some(topics[:half], conditions)
            await self._write_some(topics[half:], conditions)

    def topic_write(self, topic: TopicState) -> Create | Set:
        """The write that turns the topic into this, unless someone else has changed it."""
        if topic.name in self._foreign:
            problem = f"{TopicNode.path_of(topic.name)} holds something that no broker has written: it is left alone"
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, problem)
        known = self._versions.get(topic.name)
        return save(TopicNode(topic) if known is None else TopicNode(topic, known))

    def _written(self, topic: TopicState, version: int) -> None:
        """Unless something newer was told of meanwhile."""
        known, current = self._versions.get(topic.name), self._image.topics.get(topic.name)
        if current is not None and known is not None and (current.topic_id != topic.topic_id or known >= version):
            return
        self._versions[topic.name] = version
        self._put_topic(topic)

    async def delete_topics(self, topics: Sequence[TopicState]) -> None:
        operations: list[Operation] = []
        for topic in topics:
            holders = tuple(sorted({replica for partition in topic.partitions for replica in partition.replicas}))
            operations.append(save(DeletionNode(topic.topic_id, topic.name, holders)))
            operations.append(TopicNode(topic, self._versions[topic.name]).remove())
            if not self.is_alone:
                operations.append(TopicIdNode(topic.topic_id).remove())
        await self._write_topics(topics, operations)
        for topic in topics:
            self._explained(topic.topic_id.hex())
            current = self._image.topics.get(topic.name)
            if current is not None and current.topic_id == topic.topic_id:
                self._remove_topic(topic.name, is_deleted=True)

    async def write_broker_config(self, node_id: int | None, config: dict[str, str]) -> None:
        node = BrokerConfigNode(node_id, config, self.broker_config(node_id).version)
        (result,) = await self.write([save(node)])
        version = result if isinstance(result, int) else 0
        self._broker_configs[node.name_of(node_id)] = BrokerConfigNode(node_id, config, version)
        self._apply_broker_configs()

    def broker_config(self, node_id: int | None) -> BrokerConfigNode:
        return self._broker_configs.get(BrokerConfigNode.name_of(node_id)) or BrokerConfigNode(node_id, {})

    async def write_group_config(self, group_id: str, config: dict[str, str]) -> None:
        """A config without settings is none."""
        node = GroupConfigNode(group_id, config, self.group_config(group_id).version)
        (result,) = await self.write([save(node) if config else node.remove()])
        name = node.name_of(group_id)
        if config:
            version = result if isinstance(result, int) else 0
            self._group_configs[name] = GroupConfigNode(group_id, config, version)
            self._image.group_configs[group_id] = config
        else:
            self._group_configs.pop(name, None)
            self._image.group_configs.pop(group_id, None)

    def group_config(self, group_id: str) -> GroupConfigNode:
        return self._group_configs.get(GroupConfigNode.name_of(group_id)) or GroupConfigNode(group_id, {})

    # ---- telling

    def _apply_broker_configs(self) -> None:
        """What can't be used is left out, and stays in the node for whoever mends it."""
        self._image.broker_config = dict(self.broker_config(None).config)
        self._image.generation += 1
        cluster, broker = (_usable(self.broker_config(each)) for each in (None, self._node_id))
        try:
            self._settings.set_dynamic(cluster=cluster, broker=broker)
        except SettingError as error:
            log.error("the settings in %s are ignored: %s", BROKER_CONFIGS, error)

    def _cluster_changed(self) -> None:
        self._image.generation += 1
        for changed in tuple(self._cluster_listeners):
            try:
                changed()
            except Exception:
                log.exception("a listener failed on a change of brokers")

    def _put_topic(self, topic: TopicState, *, tell: bool = True) -> None:
        before = self._image.topics.get(topic.name)
        self._lost.pop(topic.topic_id.hex(), None)
        if topic.config and (before is None or before.config != topic.config):
            for name, error in unusable(topic.config, TOPIC_SETTINGS).items():
                log.error("the default of %s counts for %s: %s", name, TopicNode.path_of(topic.name), error)
        self.names.add(topic.name)
        self._image.put_topic(topic)
        if not tell:
            return
        if before is not None and before.topic_id == topic.topic_id:
            self._tell(lambda listener: listener.topic_changed(before, topic))
            return
        if before is not None:
            self._gone(before)
        self._tell(lambda listener: listener.topic_created(topic))

    def _remove_topic(self, name: str, *, is_deleted: bool = False) -> None:
        topic = self._image.topics[name]
        self._versions.pop(name, None)
        self.names.remove(name)
        self._image.drop_topic(name)
        self._gone(topic, is_deleted=is_deleted)

    def _gone(self, topic: TopicState, *, is_deleted: bool = False) -> None:
        topic_id = topic.topic_id.hex()
        if is_deleted or topic_id in self.deletions:
            self._tell(lambda listener: listener.topic_deleted(topic))
            return
        self._lost[topic_id] = topic
        self._tell(lambda listener: listener.topic_lost(topic))
        asyncio.get_running_loop().call_later(NOTE_S, self._complain, topic_id)

    def _explained(self, topic_id: str) -> None:
        """Topics and notes are followed apart: either may be told first."""
        if topic := self._lost.pop(topic_id, None):
            self._tell(lambda listener: listener.lost_topic_deleted(topic))

    def _complain(self, topic_id: str) -> None:
        topic = self._lost.get(topic_id)
        if topic is None or topic.topic_id in self._image.topics_by_id:
            return
        if not any(self._node_id in state.replicas for state in topic.partitions):
            return  # its note may have come and gone while this broker, which held nothing, did not hear
        log.error(
            "a topic is not in ZooKeeper any more, and nobody has deleted it: it is not served, and what this broker "
            "held of it is set aside in folders that end in .stray. Bring back the node of the topic and start the "
            "brokers again, or remove the folders if it is not wanted",
            extra={"topic": topic.name, "topic_id": topic_id},
        )

    def _tell(self, call: Callable[[TopicListener], None]) -> None:
        for listener in tuple(self._listeners):
            try:
                call(listener)
            except Exception:
                log.exception("a listener failed on a change of topics")


class _foreign_left_alone:
    """What no broker of this version has written is neither used nor overwritten."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, ForeignNode):
            log.error("ignored: %s", error)
            return True
        return False


def _usable(node: BrokerConfigNode) -> dict[str, str]:
    faults = unusable(node.config, BROKER_SETTINGS)
    for name, error in faults.items():
        log.error("%s in %s is ignored: %s", name, node.path, error)
    return {name: value for name, value in node.config.items() if name not in faults}


def _portions(topics: Sequence[TopicState]) -> Iterator[Sequence[TopicState]]:
    some: list[TopicState] = []
    size = 0
    for topic in topics:
        bytes_most = size_at_most(topic)
        if some and (size + bytes_most > WRITE_BYTES_MAX or len(some) >= WRITE_TOPICS_MAX):
            yield some
            some, size = [], 0
        some.append(topic)
        size += bytes_most
    if some:
        yield some


def _node_id_of(name: str) -> int | None:
    return int(name) if name.isdigit() else None


def unreadable(error: CoordinationError) -> ApiError:
    return ApiError(ErrorCode.REQUEST_TIMED_OUT, f"Cluster state can't be read: {error}")
