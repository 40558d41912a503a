"""Takes the folder of a broker that stood alone into a cluster: what is in its own store goes to ZooKeeper.

That is possible where there is no cluster yet. Two clusters can't become one: each has groups, transactions and
producer ids of its own, and which of two would count? The first write makes the cluster, with all there is if that is
not too much for one; the rest follows. `/adoption` says whose folder it is and whether that is complete, so that one
that was interrupted goes on where it was. Last of all the folder is marked: until then it is what it was.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from penstock.broker import folder
from penstock.broker.folder import FolderError, Identity
from penstock.broker.reaching import open_zookeeper
from penstock.cluster.coordination import (
    Coordination,
    CoordinationError,
    Create,
    NodeExists,
    NoNode,
    Operation,
    Versioned,
)
from penstock.cluster.embedded import FILE_NAME, EmbeddedStore
from penstock.cluster.model import NO_LEADER, PartitionState
from penstock.cluster.nodes import (
    BROKER_CONFIGS,
    BROKERS,
    DELETIONS,
    FOLDERS,
    GROUP_CONFIGS,
    TOPICS,
    UNWRITTEN,
    BrokerConfigNode,
    BrokerEpochNode,
    ClusterNode,
    ControllerEpochNode,
    DeletionNode,
    ForeignNode,
    ProducerIdsNode,
    TopicNode,
    save,
)
from penstock.storage.disk import Disk

ADOPTED = f"{FILE_NAME}.adopted"
WRITE_BYTES_MAX = 512 * 1024  # ZooKeeper takes a mebibyte
OPERATIONS_PER_WRITE = 1_000
SHOWN_MAX = 5
DEFAULT_NODE_ID = 1


class Refused(Exception):
    """Nothing was changed; the hint says what to do."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Adopted:
    cluster_id: str
    node_id: int
    topics: int
    already: bool  # it was before, and only that is said


@dataclass(frozen=True, slots=True)
class AdoptionNode:
    cluster_id: str
    node_id: int
    complete: bool
    version: int = UNWRITTEN
    path: ClassVar[str] = "/adoption"

    def encode(self) -> bytes:
        return json.dumps(
            {"format": 1, "cluster": self.cluster_id, "node": self.node_id, "done": self.complete}
        ).encode()

    @classmethod
    def decode(cls, stored: Versioned) -> AdoptionNode:
        try:
            content = json.loads(stored.data)
            return cls(str(content["cluster"]), int(content["node"]), bool(content["done"]), stored.version)
        except (KeyError, TypeError, ValueError) as error:
            raise ForeignNode(f"{cls.path} was not written by a broker: {error!r}") from None


@dataclass(frozen=True, slots=True)
class Belongings:
    """All that the broker's own store holds."""

    cluster_id: str
    counters: list[Create]
    topics: list[TopicNode]
    others: list[Create]


async def adopt(data_dir: Path, connect: str, node_id: int | None = None, disk: Disk | None = None) -> Adopted:
    """Raises Refused."""
    disk = disk or Disk()
    if not _is_folder(data_dir):
        raise Refused(f"there is no folder {data_dir}.")
    try:
        lock = folder.lock(data_dir)
    except FolderError as error:
        raise Refused(f"{data_dir} can't be adopted: {error}") from None
    try:
        return await _adopt(disk, data_dir, connect, node_id)
    except (FolderError, ForeignNode, CoordinationError, ValueError) as error:
        raise Refused(f"{data_dir} can't be adopted: {error}.") from None
    finally:
        os.close(lock)


def _is_folder(path: Path) -> bool:
    return path.is_dir()


async def _adopt(disk: Disk, data_dir: Path, connect: str, node_id: int | None) -> Adopted:
    known = folder.read(disk, data_dir)
    zookeeper = await open_zookeeper(connect)
    try:
        if not (data_dir / FILE_NAME).exists():
            return await _adopted_before(zookeeper, data_dir, known, node_id)
        own = await EmbeddedStore.open(data_dir)
        try:
            identity, node_id = await _number(own, data_dir, known, node_id)
            belongings = await _belongings(own, identity.node_id, node_id)
        finally:
            await own.close()
        await _hand_over(zookeeper, data_dir, connect, belongings, node_id)
    finally:
        await zookeeper.close()
    folder.save(disk, data_dir, replace(identity, node_id=node_id, cluster_id=belongings.cluster_id))
    os.replace(data_dir / FILE_NAME, data_dir / ADOPTED)
    disk.sync_directory(data_dir)
    return Adopted(belongings.cluster_id, node_id, len(belongings.topics), already=False)


async def _adopted_before(
    zookeeper: Coordination, data_dir: Path, known: Identity | None, node_id: int | None
) -> Adopted:
    if known is None:
        raise Refused(f"{data_dir} is not the data folder of a broker: it has no {FILE_NAME}.")
    try:
        there = ClusterNode.decode(await zookeeper.get(ClusterNode.path)).cluster_id
    except NoNode:
        there = "none"
    if there != known.cluster_id or node_id not in (None, known.node_id):
        message = (
            f"{data_dir} belongs to a cluster already: it is broker {known.node_id} of cluster {known.cluster_id}."
        )
        raise Refused(message, f"The cluster at that ZooKeeper is {there}.")
    return Adopted(known.cluster_id, known.node_id, 0, already=True)


# ---- what there is


async def _number(
    own: Coordination, data_dir: Path, known: Identity | None, wanted: int | None
) -> tuple[Identity, int]:
    """Whose folder it is, and the number it is to have."""
    if known is None:  # of a version that did not write down whose it is
        topics = [TopicNode.decode(name, stored) for name, stored in (await own.children_with_data(TOPICS)).items()]
        replicas = {each for node in topics for partition in node.topic.partitions for each in partition.replicas}
        if len(replicas) > 1:
            raise Refused(f"{data_dir} was used under several numbers: {', '.join(map(str, sorted(replicas)))}.")
        known = folder.new(os.urandom, replicas.pop() if replicas else DEFAULT_NODE_ID)
    return known, known.node_id if wanted is None else wanted


async def _belongings(own: Coordination, before: int, after: int) -> Belongings:
    """With the new number in place of the old one."""

    async def counter(node: type[ProducerIdsNode] | type[BrokerEpochNode] | type[ControllerEpochNode]) -> Create:
        try:
            return Create(node.path, (await own.get(node.path)).data)
        except NoNode:  # of an older version
            return Create(node.path, node(0).encode())

    cluster = ClusterNode.decode(await own.get(ClusterNode.path))
    counters = [await counter(node) for node in (ProducerIdsNode, BrokerEpochNode, ControllerEpochNode)]
    stored = await own.children_with_data(TOPICS)
    topics = []
    for name, content in sorted(stored.items()):
        topic = TopicNode.decode(name, content).topic
        partitions = tuple(_renumbered(state, before, after) for state in topic.partitions)
        topics.append(TopicNode(replace(topic, partitions=partitions)))
    others = [
        Create(f"{GROUP_CONFIGS}/{name}", each.data) for name, each in (await _folder(own, GROUP_CONFIGS)).items()
    ]
    for name, each in (await _folder(own, BROKER_CONFIGS)).items():
        moved = BrokerConfigNode.name_of(after) if name == BrokerConfigNode.name_of(before) else name
        others.append(Create(f"{BROKER_CONFIGS}/{moved}", each.data))
    for name, each in (await _folder(own, DELETIONS)).items():
        node = replace(DeletionNode.decode(name, each), replicas=(after,), version=UNWRITTEN)
        others.append(Create(node.path, node.encode()))
    return Belongings(cluster.cluster_id, counters, topics, others)


async def _folder(own: Coordination, path: str) -> dict[str, Versioned]:
    try:
        return await own.children_with_data(path)
    except NoNode:
        return {}


def _renumbered(state: PartitionState, before: int, after: int) -> PartitionState:
    def number(each: int) -> int:
        return after if each == before else each

    return replace(
        state,
        leader=number(state.leader),
        replicas=tuple(map(number, state.replicas)),
        isr=tuple(map(number, state.isr)),
        eligible=tuple(map(number, state.eligible)),
        last_leader=number(state.last_leader) if state.last_leader != NO_LEADER else NO_LEADER,
    )


# ---- to the cluster


async def _hand_over(
    zookeeper: Coordination, data_dir: Path, connect: str, belongings: Belongings, node_id: int
) -> None:
    adoption = await _begun(zookeeper, data_dir, connect, belongings, node_id)
    wanted: list[Operation] = [*belongings.others, *(save(node) for node in belongings.topics)]
    writes = list(_writes(wanted))
    if adoption is None:
        first = writes.pop(0) if writes else []
        adoption = AdoptionNode(belongings.cluster_id, node_id, complete=not writes)
        made: list[Operation] = [save(ClusterNode(belongings.cluster_id)), save(adoption), *belongings.counters]
        for path in FOLDERS:
            if not await _exists(zookeeper, path):
                made.insert(0, Create(path))
        made.sort(key=lambda each: each.path.count("/"))
        try:
            await zookeeper.multi([*made, *first])
        except NodeExists:
            hint = "Is another broker being started, or another folder adopted? Try again."
            raise Refused(f"a cluster was made at {connect} this very moment.", hint) from None
        adoption = replace(adoption, version=0)
    if adoption.complete:
        return
    for write in writes:
        missing = [each for each in write if not await _exists(zookeeper, each.path)]
        if missing:
            await zookeeper.multi(missing)
    await zookeeper.multi([save(replace(adoption, complete=True))])


def _writes(operations: list[Operation]) -> Iterator[list[Operation]]:
    """As few as ZooKeeper takes."""
    write: list[Operation] = []
    size = 0
    for each in operations:
        assert isinstance(each, Create)
        if write and (size + len(each.data) > WRITE_BYTES_MAX or len(write) == OPERATIONS_PER_WRITE):
            yield write
            write, size = [], 0
        write.append(each)
        size += len(each.data)
    if write:
        yield write


async def _exists(store: Coordination, path: str) -> bool:
    try:
        await store.get(path)
    except NoNode:
        return False
    return True


async def _begun(
    zookeeper: Coordination, data_dir: Path, connect: str, belongings: Belongings, node_id: int
) -> AdoptionNode | None:
    """The adoption of this folder that was interrupted; None where there is no cluster yet."""
    try:
        there = ClusterNode.decode(await zookeeper.get(ClusterNode.path)).cluster_id
    except NoNode:
        return None
    if there != belongings.cluster_id:
        raise await _two_clusters(zookeeper, data_dir, connect, there, belongings)
    try:
        adoption = AdoptionNode.decode(await zookeeper.get(AdoptionNode.path))
    except NoNode:
        raise Refused(
            f"{connect} holds cluster {there}, of which {data_dir} seems to be a copy.", "Nothing was changed."
        ) from None
    if adoption.node_id != node_id:
        hint = f"Go on with --node-id {adoption.node_id}."
        raise Refused(f"{data_dir} was being adopted as broker {adoption.node_id}, not {node_id}.", hint)
    return adoption


async def _two_clusters(
    zookeeper: Coordination, data_dir: Path, connect: str, there: str, belongings: Belongings
) -> Refused:
    theirs = set(await _folder(zookeeper, TOPICS))
    brokers = sorted(await _folder(zookeeper, BROKERS))
    clashing = sorted(theirs & {node.topic.name for node in belongings.topics})
    facts = f"{len(theirs)} topic{'s' * (len(theirs) != 1)}, "
    facts += f"broker{'s' * (len(brokers) > 1)} {', '.join(brokers)}" if brokers else "no broker running"
    message = f"{connect} holds another cluster already: {there} ({facts})."
    if clashing:
        more = f" and {len(clashing) - SHOWN_MAX} more" if len(clashing) > SHOWN_MAX else ""
        message += f" Both have {', '.join(clashing[:SHOWN_MAX])}{more}."
    path = connect.partition("/")[0] + "/another"
    hint = (
        f"Two clusters can't become one. Adopt {data_dir} at a path that is empty (--zookeeper {path})\n"
        "and let brokers join there; or start it as it is, and copy its topics."
    )
    return Refused(message, hint)
