"""What ZooKeeper knows of the cluster, asked from outside."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from penstock.cluster.coordination import Versioned
from penstock.cluster.model import PartitionState, TopicState
from penstock.cluster.nodes import BROKERS, TOPICS, BrokerNode, ControllerNode, TopicNode
from penstock.cluster.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from penstock.server.group_calls import java_hash

CONNECT_S = 30.0
NOBODY = -1


class Truth:
    """Keeps one connection, and makes another where that one has failed: ZooKeeper may have been killed meanwhile."""

    def __init__(self, connect: str) -> None:
        self._connect = connect
        self._kept: KazooClient | None = None
        logging.getLogger("kazoo").setLevel(logging.CRITICAL)

    @contextlib.contextmanager
    def _client(self) -> Iterator[KazooClient]:
        if self._kept is None:
            self._kept = KazooClient(hosts=self._connect, timeout=10)
            self._kept.start(CONNECT_S)
        try:
            yield self._kept
        except NoNodeError:
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.stop()
            kept.close()

    def brokers(self) -> dict[int, int]:
        """The processes of those that have announced themselves: a node may be left from a former life."""
        with self._client() as client, contextlib.suppress(NoNodeError):
            names = client.get_children(BROKERS)
            nodes = [BrokerNode.decode(name, _versioned(client, f"{BROKERS}/{name}")) for name in names]
            return {node.broker.node_id: node.broker.pid for node in nodes}
        return {}

    def controller(self) -> int:
        with self._client() as client, contextlib.suppress(NoNodeError):
            return ControllerNode.decode(_versioned(client, ControllerNode.path)).node_id
        return NOBODY

    def topics(self) -> list[TopicState]:
        with self._client() as client, contextlib.suppress(NoNodeError):
            return [_topic(client, name) for name in client.get_children(TOPICS)]
        return []

    def topic(self, name: str) -> TopicState:
        with self._client() as client:
            return _topic(client, name)

    def leader(self, topic: str, partition: int = 0) -> int:
        return self.topic(topic).partitions[partition].leader

    def group_coordinator(self, group: str) -> int:
        return self._coordinator(OFFSETS_TOPIC, group)

    def transaction_coordinator(self, transactional_id: str) -> int:
        return self._coordinator(TRANSACTIONS_TOPIC, transactional_id)

    def _coordinator(self, topic: str, key: str) -> int:
        partitions = self.topic(topic).partitions
        return partitions[java_hash(key) % len(partitions)].leader

    def why_not_whole(self, processes: Mapping[int, int]) -> str | None:
        """None if all brokers live in these processes, one of them controls, and every replica is in sync."""
        try:
            if (found := self.brokers()) != processes:
                return f"brokers {found} instead of {dict(processes)}"
            if (controller := self.controller()) not in processes:
                return f"{controller} controls"
            for topic in self.topics():
                for number, state in enumerate(topic.partitions):
                    if not _is_whole(state):
                        return f"{topic.name}-{number} is {state}"
        except (KazooException, KazooTimeoutError) as error:
            return f"ZooKeeper: {error!r}"
        return None


def _is_whole(state: PartitionState) -> bool:
    at_rest = not (state.eligible or state.adding or state.removing)
    return at_rest and state.leader in state.isr and set(state.isr) == set(state.replicas)


def _versioned(client: KazooClient, path: str) -> Versioned:
    data, stat = client.get(path)
    return Versioned(data, stat.version)


def _topic(client: KazooClient, name: str) -> TopicState:
    return TopicNode.decode(name, _versioned(client, TopicNode.path_of(name))).topic
