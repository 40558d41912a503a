"""Several brokers' rooms in one loop, which reach each other through their routers.

What they know of the cluster is told by the test, as the controller would; replicas are copied when the test says so.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from penstock.cluster.model import BrokerState, Endpoint, PartitionState, TopicState
from penstock.protocol.schema import Message
from penstock.replication import copying
from penstock.transport.peer import Answered
from penstock.transport.peers import Peers
from tests.fakes import FakePeers, until
from tests.server.rooms import LISTENER, Rooms
from tests.storage.logs import NOW_MS

Fault = Callable[[int, Message], str | None]


class LinkedPeers(FakePeers):
    """Which reach the routers of other brokers. `fault` says of a request what becomes of it: "lost" on its way there,
    its answer "unheard", "twice" there, or nothing unusual."""

    def __init__(self, brokers: dict[int, Rooms]) -> None:
        self._brokers = brokers
        self.sent: list[tuple[int, Message]] = []
        self.fault: Fault = lambda node_id, request: None
        self._tasks: set[asyncio.Task[None]] = set()

    def told(self, node_id: int, request: Message, version: int, answered: Answered) -> None:
        self.sent.append((node_id, request))
        task = asyncio.ensure_future(self._tell(node_id, request, version, answered))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell(self, node_id: int, request: Message, version: int, answered: Answered) -> None:
        fault = self.fault(node_id, request)
        answer = None
        if fault != "lost":
            for _ in range(2 if fault == "twice" else 1):
                answer = await self._brokers[node_id].connect().ask(request, version)
        answered(None if fault == "unheard" else answer)

    def of(self, kind: type[Message]) -> list[Any]:
        return [request for _, request in self.sent if isinstance(request, kind)]

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()


class LinkedRooms:
    def __init__(self, folder: Path, count: int = 2) -> None:
        self.brokers: dict[int, Rooms] = {}
        self.peers: dict[int, LinkedPeers] = {}
        self._ids = itertools.count(1000)
        states = [
            BrokerState(node_id, (Endpoint(LISTENER, f"broker-{node_id}", 9092),)) for node_id in range(1, count + 1)
        ]
        for state in states:
            peers = self.peers[state.node_id] = LinkedPeers(self.brokers)
            rooms = self.brokers[state.node_id] = Rooms(
                folder / str(state.node_id), node_id=state.node_id, peers=cast(Peers, peers)
            )
            rooms.image.brokers = {each.node_id: each for each in states}

    def create(
        self, name: str, leaders: Sequence[int], replicas: tuple[int, ...] | None = None, *, internal: bool = False
    ) -> None:
        """A partition for each leader. With other replicas, the leader alone is in sync."""
        states = tuple(PartitionState(leader, 0, replicas or (leader,), (leader,)) for leader in leaders)
        topic = TopicState(name, next(self._ids).to_bytes(16, "big"), states, {}, internal)
        for rooms in self.brokers.values():
            rooms.put_topic(topic)

    def elect(self, name: str, index: int, leader: int, *, told: Sequence[int] | None = None) -> None:
        """Told to these brokers, or to all."""
        for node_id in told or self.brokers:
            rooms = self.brokers[node_id]
            topic = rooms.image.topics[name]
            state = topic.partitions[index]
            isr = (leader,) if leader >= 0 else state.isr
            state = replace(state, leader=leader, leader_epoch=state.leader_epoch + 1, isr=isr)
            partitions = (*topic.partitions[:index], state, *topic.partitions[index + 1 :])
            rooms.put_topic(replace(topic, partitions=partitions))

    async def copy(self, name: str, index: int, source: int, target: int) -> None:
        """The follower fetches all that it does not have."""
        leader, follower = self.brokers[source].partition(name, index), self.brokers[target].partition(name, index)
        while (found := leader.log.read(follower.log.next_offset, 1 << 20, leader.log.end)) is not None:
            copying.copy(follower, memoryview(bytearray(found.read())), NOW_MS)
            await self.brokers[target].idle()
        await until(lambda: follower.local_end.offset == leader.log.end_offset)

    async def close(self) -> None:
        for peers in self.peers.values():
            peers.close()
        for rooms in self.brokers.values():
            await rooms.close()
