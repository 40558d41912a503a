"""What the cluster is: its topics, their partitions, and who leads them, as one broker knows it now.

An image is replaced piece by piece by its one owner and read by everyone else; `generation` rises with every change, so
that whoever caches something derived from the image can tell in one comparison whether it still holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

NO_LEADER = -1
DELETED_NAMES_MAX = 1000


@dataclass(frozen=True, slots=True)
class Endpoint:
    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A broker that has announced itself. Another epoch is another life of the same broker."""

    node_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    epoch: int = 0
    stopping: bool = False  # it wants to lead nothing any more
    folder: str = ""  # the id of its data folder
    host: str = ""  # the machine it runs on, as it calls itself
    pid: int = 0


@dataclass(frozen=True, slots=True)
class PartitionState:
    leader: int  # NO_LEADER where nobody can
    leader_epoch: int
    replicas: tuple[int, ...]  # the first one is preferred as the leader
    isr: tuple[int, ...]  # in sync: every committed record is on all of them
    eligible: tuple[int, ...] = ()  # not in sync, but they hold all that is committed (KIP-966)
    adding: tuple[int, ...] = ()  # replicas that a reassignment brings
    removing: tuple[int, ...] = ()  # replicas that go when it is complete
    last_leader: int = NO_LEADER  # who led before nobody did


@dataclass(frozen=True, slots=True)
class TopicState:
    name: str
    topic_id: bytes
    partitions: tuple[PartitionState, ...]
    config: Mapping[str, str]  # only what was set on the topic; defaults are elsewhere
    internal: bool = False


@dataclass(slots=True)
class ClusterImage:
    cluster_id: str
    controller_id: int
    brokers: dict[int, BrokerState] = field(default_factory=dict)  # those that live
    departed: dict[int, BrokerState] = field(default_factory=dict)  # those that have just gone
    here: BrokerState | None = None  # this broker, which clients are told of whether it is announced or not
    topics: dict[str, TopicState] = field(default_factory=dict)
    topics_by_id: dict[bytes, TopicState] = field(default_factory=dict)
    deleted_names: dict[str, None] = field(default_factory=dict)  # the newest last, of topics that are not there again
    broker_config: dict[str, str] = field(default_factory=dict)  # cluster-wide dynamic settings
    group_configs: dict[str, Mapping[str, str]] = field(default_factory=dict)  # of groups that have their own
    unreachable: set[int] = field(default_factory=set)  # leaders to which this broker has just lost its connection
    generation: int = 0

    def put_topic(self, topic: TopicState) -> None:
        self.drop_topic(topic.name)
        self.deleted_names.pop(topic.name, None)
        self.topics[topic.name] = topic
        self.topics_by_id[topic.topic_id] = topic
        self.generation += 1

    def drop_topic(self, name: str) -> None:
        if topic := self.topics.pop(name, None):
            self.topics_by_id.pop(topic.topic_id, None)
            self.deleted_names[name] = None
            if len(self.deleted_names) > DELETED_NAMES_MAX:
                del self.deleted_names[next(iter(self.deleted_names))]
            self.generation += 1
