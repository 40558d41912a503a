"""The nodes that the controller keeps in the coordination service: each class owns a path, its JSON and its version.

/cluster                   which cluster this is
/producer-ids              the first producer id that was not handed out
/config/brokers/<id>       settings changed at runtime on one broker; `default` holds those of all brokers
/config/groups/<name>      settings of a consumer group; no node where it has none of its own
/topics/<name>             a topic: its id, its config, and each partition's leader, epoch and replicas
"""

from __future__ import annotations

import gc
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from penstock.cluster.coordination import Create, Delete, Set, Versioned
from penstock.cluster.model import PartitionState, TopicState
from penstock.cluster.topic_names import INTERNAL_TOPICS

FORMAT = 1
UNWRITTEN = -1  # the version of a node that was never stored

BROKER_CONFIGS = "/config/brokers"
GROUP_CONFIGS = "/config/groups"
TOPICS = "/topics"
FOLDERS = ("/config", BROKER_CONFIGS, GROUP_CONFIGS, TOPICS)


class StoredNode(Protocol):
    @property
    def version(self) -> int: ...
    @property
    def path(self) -> str: ...
    def encode(self) -> bytes: ...


def save(node: StoredNode) -> Create | Set:
    """The write that stores this node, unless someone else has written it since it was read."""
    if node.version == UNWRITTEN:
        return Create(node.path, node.encode())
    return Set(node.path, node.encode(), node.version)


def _to_json(**content: Any) -> bytes:
    return json.dumps({"format": FORMAT, **content}, separators=(",", ":")).encode()


def _from_json(path: str, data: bytes) -> Any:
    content = json.loads(data)
    _check_format(path, content)
    return content


def _check_format(path: str, content: Any) -> None:
    if content["format"] != FORMAT:
        raise ValueError(f"{path} was written by a newer version of this broker (format {content['format']})")


@dataclass(frozen=True, slots=True)
class ClusterNode:
    cluster_id: str
    version: int = UNWRITTEN
    path: ClassVar[str] = "/cluster"

    def encode(self) -> bytes:
        return _to_json(id=self.cluster_id)

    @classmethod
    def decode(cls, stored: Versioned) -> ClusterNode:
        return cls(_from_json(cls.path, stored.data)["id"], stored.version)


@dataclass(frozen=True, slots=True)
class ProducerIdsNode:
    next_producer_id: int
    version: int = UNWRITTEN
    path: ClassVar[str] = "/producer-ids"

    def encode(self) -> bytes:
        return _to_json(next=self.next_producer_id)

    @classmethod
    def decode(cls, stored: Versioned) -> ProducerIdsNode:
        return cls(_from_json(cls.path, stored.data)["next"], stored.version)


@dataclass(frozen=True, slots=True)
class BrokerConfigNode:
    node_id: int | None  # None: of every broker
    config: Mapping[str, str]
    version: int = UNWRITTEN

    @property
    def path(self) -> str:
        return f"{BROKER_CONFIGS}/{self.name_of(self.node_id)}"

    @staticmethod
    def name_of(node_id: int | None) -> str:
        return "default" if node_id is None else str(node_id)

    def encode(self) -> bytes:
        return _to_json(config=dict(self.config))

    @classmethod
    def decode(cls, node_id: int | None, stored: Versioned) -> BrokerConfigNode:
        return cls(node_id, _from_json(cls.name_of(node_id), stored.data)["config"], stored.version)


@dataclass(frozen=True, slots=True)
class GroupConfigNode:
    group_id: str
    config: Mapping[str, str]
    version: int = UNWRITTEN

    @property
    def path(self) -> str:
        return f"{GROUP_CONFIGS}/{self.name_of(self.group_id)}"

    @staticmethod
    def name_of(group_id: str) -> str:
        """A group may be called anything; slashes and names of dots alone would be no node."""
        from urllib.parse import quote

        return quote(group_id, safe="").replace(".", "%2E")

    def encode(self) -> bytes:
        return _to_json(config=dict(self.config))

    def remove(self) -> Delete:
        return Delete(self.path, self.version)

    @classmethod
    def decode(cls, name: str, stored: Versioned) -> GroupConfigNode:
        from urllib.parse import unquote

        return cls(unquote(name), _from_json(name, stored.data)["config"], stored.version)


@dataclass(frozen=True, slots=True)
class TopicNode:
    topic: TopicState
    version: int = UNWRITTEN

    @property
    def path(self) -> str:
        return self.path_of(self.topic.name)

    @staticmethod
    def path_of(name: str) -> str:
        return f"{TOPICS}/{name}"

    def encode(self) -> bytes:
        partitions = [(p.leader, p.leader_epoch, p.replicas, p.isr) for p in self.topic.partitions]
        return _to_json(id=self.topic.topic_id.hex(), partitions=partitions, config=dict(self.topic.config))

    def remove(self) -> Delete:
        return Delete(self.path, self.version)

    @classmethod
    def decode_all(cls, stored: Mapping[str, Versioned]) -> list[TopicNode]:
        """In one go, because a start with thousands of topics is to be quick: a third of it would be the collector,
        looking for garbage where there is none."""
        collecting = gc.isenabled()
        gc.disable()
        try:
            contents = json.loads(b"[" + b",".join(each.data for each in stored.values()) + b"]")
            return [
                cls(cls._topic(name, content), each.version)
                for (name, each), content in zip(stored.items(), contents, strict=True)
            ]
        finally:
            if collecting:
                gc.enable()

    @classmethod
    def decode(cls, name: str, stored: Versioned) -> TopicNode:
        (node,) = cls.decode_all({name: stored})
        return node

    @classmethod
    def _topic(cls, name: str, content: Any) -> TopicState:
        _check_format(name, content)
        partitions = tuple(
            [
                PartitionState(leader, leader_epoch, tuple(replicas), tuple(isr))
                for leader, leader_epoch, replicas, isr in content["partitions"]
            ]
        )
        topic_id = bytes.fromhex(content["id"])
        return TopicState(name, topic_id, partitions, content["config"], name in INTERNAL_TOPICS)
