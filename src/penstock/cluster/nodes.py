"""The nodes that brokers keep in the coordination service: each class owns a path, its JSON and its version.

/cluster                   which cluster this is
/producer-ids              the first producer id that was not handed out
/broker-epoch              how many times a broker has announced itself
/brokers/<id>              a broker that lives; ephemeral
/election/controller       the controller; ephemeral
/election/epoch            how many controllers there were: what a controller writes is conditional on its version
/config/brokers/<id>       settings changed at runtime on one broker; `default` holds those of all brokers
/config/groups/<name>      settings of a consumer group; no node where it has none of its own
/topics/<name>             a topic: its id, its config, and each partition's leader, epoch and replicas
/deletions/<topic id>      a topic that is gone, and the brokers that may hold some of it still
/topic-ids/<topic id>      there for as long as that topic is: unlike a version, an id never comes again
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from penstock.cluster.coordination import ANY_VERSION, Check, Create, Delete, Set, Versioned
from penstock.cluster.model import NO_LEADER, BrokerState, Endpoint, PartitionState, TopicState
from penstock.cluster.topic_names import INTERNAL_TOPICS, why_illegal

FORMAT = 1
UNWRITTEN = -1  # the version of a node that was never stored
NUMBER_MAX = 2**31 - 1  # of brokers and of leader epochs: more does not fit into what clients are told
COUNTER_MAX = 2**63 - 1
TOPIC_ID_BYTES = 16

BROKER_CONFIGS = "/config/brokers"
GROUP_CONFIGS = "/config/groups"
TOPICS = "/topics"
BROKERS = "/brokers"
ELECTION = "/election"
DELETIONS = "/deletions"
TOPIC_IDS = "/topic-ids"
FOLDERS = ("/config", BROKER_CONFIGS, GROUP_CONFIGS, TOPICS, BROKERS, ELECTION, DELETIONS, TOPIC_IDS)


class ForeignNode(Exception):
    """Someone else has written it, or a newer version of this broker."""


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
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ForeignNode(f"{path} holds no JSON: {error}") from None
    _check_format(path, content)
    return content


def _check_format(path: str, content: Any) -> None:
    if not isinstance(content, dict) or "format" not in content:
        raise ForeignNode(f"{path} was not written by a broker")
    if content["format"] != FORMAT:
        raise ForeignNode(f"{path} was written by a newer version of this broker (format {content['format']})")


@contextmanager
def _well_formed(path: str) -> Iterator[None]:
    """What is missing or of the wrong kind makes a node foreign: it is left alone."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ForeignNode(f"{path} was not written by a broker: {error!r}") from None


def _number(value: Any, least: int = 0, most: int = NUMBER_MAX) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{value!r} is no number from {least} to {most}")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"{value!r} is no text")
    return value


def _config(content: Any) -> dict[str, str]:
    """What the values mean is asked where they count: a newer version may know more of them."""
    return {_text(name): _text(value) for name, value in content["config"].items()}


@dataclass(frozen=True, slots=True)
class ClusterNode:
    cluster_id: str
    version: int = UNWRITTEN
    path: ClassVar[str] = "/cluster"

    def encode(self) -> bytes:
        return _to_json(id=self.cluster_id)

    @classmethod
    def decode(cls, stored: Versioned) -> ClusterNode:
        content = _from_json(cls.path, stored.data)
        with _well_formed(cls.path):
            return cls(_text(content["id"]), stored.version)


@dataclass(frozen=True, slots=True)
class ProducerIdsNode:
    next_producer_id: int
    version: int = UNWRITTEN
    path: ClassVar[str] = "/producer-ids"

    def encode(self) -> bytes:
        return _to_json(next=self.next_producer_id)

    @classmethod
    def decode(cls, stored: Versioned) -> ProducerIdsNode:
        content = _from_json(cls.path, stored.data)
        with _well_formed(cls.path):
            return cls(_number(content["next"], most=COUNTER_MAX), stored.version)


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
        path = f"{BROKER_CONFIGS}/{cls.name_of(node_id)}"
        content = _from_json(path, stored.data)
        with _well_formed(path):
            return cls(node_id, _config(content), stored.version)


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

        path = f"{GROUP_CONFIGS}/{name}"
        content = _from_json(path, stored.data)
        with _well_formed(path):
            return cls(unquote(name), _config(content), stored.version)


@dataclass(frozen=True, slots=True)
class TopicIdNode:
    """Every change of a topic is conditional on it: the node of a topic that was deleted and made again by the same
    name may have the same version as before, and would take what was meant for the former one."""

    topic_id: bytes

    @property
    def path(self) -> str:
        return f"{TOPIC_IDS}/{self.topic_id.hex()}"

    def create(self) -> Create:
        return Create(self.path)

    def check(self) -> Check:
        return Check(self.path, ANY_VERSION)

    def remove(self) -> Delete:
        return Delete(self.path)


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
        partitions = [_partition_to_json(partition) for partition in self.topic.partitions]
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
        except (ValueError, RecursionError) as error:
            raise ForeignNode(f"{TOPICS} holds something that is no topic: {error}") from None
        finally:
            if collecting:
                gc.enable()

    @classmethod
    def decode(cls, name: str, stored: Versioned) -> TopicNode:
        return cls(cls._topic(name, _from_json(cls.path_of(name), stored.data)), stored.version)

    @classmethod
    def _topic(cls, name: str, content: Any) -> TopicState:
        """Checked here, once: whoever reads the image trusts it, and would fail at one topic for all."""
        _check_format(cls.path_of(name), content)
        with _well_formed(cls.path_of(name)):
            if reason := why_illegal(name):
                raise ValueError(reason)
            partitions = tuple([_partition_from_json(*each) for each in content["partitions"]])
            topic_id = bytes.fromhex(content["id"])
            if not partitions or len(topic_id) != TOPIC_ID_BYTES:
                raise ValueError(f"{len(partitions)} partitions, an id of {len(topic_id)} bytes")
            return TopicState(name, topic_id, partitions, _config(content), name in INTERNAL_TOPICS)


def size_at_most(topic: TopicState) -> int:
    """Whatever becomes of its partitions: everyone eligible, everyone replaced, epochs of ten digits."""
    lists = 5 * sum(len(str(replica)) + 1 for state in topic.partitions for replica in state.replicas)
    return 200 + lists + 60 * len(topic.partitions) + len(_to_json(config=dict(topic.config)))


def _partition_to_json(state: PartitionState) -> list[Any]:
    """Most partitions are at rest, and have nothing behind their in-sync replicas."""
    usual = [state.leader, state.leader_epoch, state.replicas, state.isr]
    if state.last_leader == NO_LEADER and not (state.eligible or state.adding or state.removing):
        return usual
    return [*usual, state.eligible, state.adding, state.removing, state.last_leader]


def _partition_from_json(
    leader: int,
    leader_epoch: int,
    replicas: list[int],
    isr: list[int],
    eligible: Sequence[int] = (),
    adding: Sequence[int] = (),
    removing: Sequence[int] = (),
    last_leader: int = NO_LEADER,
) -> PartitionState:
    state = PartitionState(
        leader, leader_epoch, tuple(replicas), tuple(isr), tuple(eligible), tuple(adding), tuple(removing), last_leader
    )
    if flaw := _flaw(state):
        raise ValueError(flaw)
    return state


def _flaw(state: PartitionState) -> str | None:
    """Why no broker has written this. Asked of every partition at the start, so in as few steps as can be."""
    replicas, isr = state.replicas, state.isr
    members = (*replicas, *isr, *state.eligible, *state.adding, *state.removing)
    numbers = (state.leader_epoch, state.leader, state.last_leader, *members)
    if set(map(type, numbers)) != {int} or min(numbers) < NO_LEADER or max(numbers) > NUMBER_MAX:
        return "what is to be a number is none"
    known = set(replicas)
    if not replicas or len(known) != len(replicas) or NO_LEADER in known:
        return f"replicas {replicas}"
    if not known.issuperset(members) or len(set(isr)) != len(isr):
        return f"{members[len(replicas) :]} of the replicas {replicas}"
    if state.leader != NO_LEADER and state.leader not in known:
        return f"leader {state.leader} is none of the replicas {replicas}"
    return None if state.leader_epoch >= 0 else f"leader epoch {state.leader_epoch}"


@dataclass(frozen=True, slots=True)
class BrokerEpochNode:
    count: int
    version: int = UNWRITTEN
    path: ClassVar[str] = "/broker-epoch"

    def encode(self) -> bytes:
        return _to_json(count=self.count)

    @classmethod
    def decode(cls, stored: Versioned) -> BrokerEpochNode:
        content = _from_json(cls.path, stored.data)
        with _well_formed(cls.path):
            return cls(_number(content["count"], most=COUNTER_MAX), stored.version)


@dataclass(frozen=True, slots=True)
class BrokerNode:
    broker: BrokerState
    version: int = UNWRITTEN

    @property
    def path(self) -> str:
        return f"{BROKERS}/{self.broker.node_id}"

    def encode(self) -> bytes:
        broker = self.broker
        endpoints = [(each.listener, each.host, each.port) for each in broker.endpoints]
        return _to_json(
            endpoints=endpoints, rack=broker.rack, epoch=broker.epoch, stopping=broker.stopping, folder=broker.folder,
            host=broker.host, pid=broker.pid,
        )  # fmt: skip

    def announce(self) -> Create:
        return Create(self.path, self.encode(), ephemeral=True)

    @classmethod
    def decode(cls, name: str, stored: Versioned) -> BrokerNode:
        path = f"{BROKERS}/{name}"
        content = _from_json(path, stored.data)
        with _well_formed(path):
            endpoints = tuple(
                Endpoint(str(listener), str(host), _number(port, most=65535))
                for listener, host, port in content["endpoints"]
            )
            rack = None if content["rack"] is None else _text(content["rack"])
            epoch = _number(content["epoch"], most=COUNTER_MAX)
            broker = BrokerState(
                _number(int(name)), endpoints, rack, epoch, bool(content["stopping"]),
                str(content["folder"]), str(content["host"]), int(content["pid"]),
            )  # fmt: skip
            return cls(broker, stored.version)


@dataclass(frozen=True, slots=True)
class ControllerNode:
    node_id: int
    epoch: int
    version: int = UNWRITTEN
    name: ClassVar[str] = "controller"
    path: ClassVar[str] = f"{ELECTION}/controller"

    def encode(self) -> bytes:
        return _to_json(node=self.node_id, epoch=self.epoch)

    def announce(self) -> Create:
        return Create(self.path, self.encode(), ephemeral=True)

    @classmethod
    def decode(cls, stored: Versioned) -> ControllerNode:
        content = _from_json(cls.path, stored.data)
        with _well_formed(cls.path):
            return cls(_number(content["node"]), _number(content["epoch"]), stored.version)


@dataclass(frozen=True, slots=True)
class ControllerEpochNode:
    epoch: int
    version: int = UNWRITTEN
    path: ClassVar[str] = f"{ELECTION}/epoch"

    def encode(self) -> bytes:
        return _to_json(epoch=self.epoch)

    @classmethod
    def decode(cls, stored: Versioned) -> ControllerEpochNode:
        content = _from_json(cls.path, stored.data)
        with _well_formed(cls.path):
            return cls(_number(content["epoch"]), stored.version)


@dataclass(frozen=True, slots=True)
class DeletionNode:
    """Kept until every replica has deleted what it holds, so that a broker that was away knows what it may delete."""

    topic_id: bytes
    name: str
    replicas: tuple[int, ...]
    version: int = UNWRITTEN

    @property
    def path(self) -> str:
        return f"{DELETIONS}/{self.topic_id.hex()}"

    def encode(self) -> bytes:
        return _to_json(name=self.name, replicas=self.replicas)

    def remove(self) -> Delete:
        return Delete(self.path, self.version)

    @classmethod
    def decode(cls, name: str, stored: Versioned) -> DeletionNode:
        path = f"{DELETIONS}/{name}"
        content = _from_json(path, stored.data)
        with _well_formed(path):
            replicas = tuple(_number(each) for each in content["replicas"])
            return cls(bytes.fromhex(name), str(content["name"]), replicas, stored.version)
