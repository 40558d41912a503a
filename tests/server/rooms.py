"""The rooms behind a connection, wired as the broker wires them, but for the listener, the store and the processes."""

from __future__ import annotations

import asyncio
import itertools
import random
import socket
import struct
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from penstock.cluster.model import BrokerState, ClusterImage, Endpoint, PartitionState, TopicState
from penstock.cluster.settings import BrokerSettings
from penstock.cluster.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from penstock.coordinator.runtime import Runtime
from penstock.groups.config import GroupConfig
from penstock.groups.machine import GroupMachine
from penstock.protocol.apis import RESPONSE_OF
from penstock.protocol.framing import read_response, request_frame
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.protocol.schema import Message
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.replication.replicas import Replicas
from penstock.replication.upkeep import Upkeep
from penstock.server.context import Context
from penstock.server.fetch_sessions import FetchSessions
from penstock.server.remote_transactions import RemoteTransactions
from penstock.server.router import Router
from penstock.storage.disk import Disk
from penstock.transactions.config import TransactionConfig
from penstock.transactions.machine import TransactionMachine
from penstock.transactions.marker_writer import MarkerWriter
from penstock.transactions.markers import Markers
from penstock.transport.cold_reads import ColdReads
from penstock.transport.connection import Connection
from penstock.transport.memory import MemoryBudget
from penstock.transport.peer import TcpNetwork
from penstock.transport.peers import Peers
from penstock.transport.turn import Turn
from tests.fakes import TIMEOUT_S, FakeClock, FakeCommitter, FakeSyncs, FakeWorker, until
from tests.storage.logs import NOW_MS, batch_at

LISTENER = "PLAINTEXT"

M = TypeVar("M", bound=Message)


class Client:
    """The other end of a connection: sends frames, and reads answers in their order."""

    def __init__(self, rooms: Rooms, sock: socket.socket, connection: Connection) -> None:
        self._rooms = rooms
        self._loop = rooms.loop
        self.connection = connection
        self.sock = sock
        self._asked: list[tuple[int, type[Message], int]] = []
        self._numbers = itertools.count(1)

    def frame(self, request: Message, version: int | None = None) -> bytes:
        version = type(request).versions.last if version is None else version
        number = next(self._numbers)
        self._asked.append((number, RESPONSE_OF[type(request)], version))
        return request_frame(request, version, number, "client")

    async def send(self, request: Message, version: int | None = None) -> None:
        await self.send_bytes(self.frame(request, version))

    async def send_bytes(self, data: bytes) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await self._loop.sock_sendall(self.sock, data)

    async def receive(self) -> Any:
        number, response, version = self._asked.pop(0)
        answered, message = read_response(response, await self.receive_frame(), version)
        assert answered == number, f"request {number} got the answer to {answered}"
        return message

    async def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", await self.receive_bytes(4))
        return await self.receive_bytes(size)

    async def receive_bytes(self, size: int) -> bytes:
        data = bytearray()
        async with asyncio.timeout(TIMEOUT_S):
            while len(data) < size:
                piece = await self._loop.sock_recv(self.sock, size - len(data))
                if not piece:
                    raise ConnectionResetError
                data += piece
        return bytes(data)

    async def ask(self, request: Message, version: int | None = None) -> Any:
        await self.send(request, version)
        return await self.receive()

    async def is_closed(self) -> bool:
        try:
            await self.receive_bytes(1)
        except ConnectionResetError:
            return True
        return False

    def has_answer(self) -> bool:
        try:
            return bool(self.sock.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return False

    def close(self) -> None:
        self.sock.close()


class Rooms:
    def __init__(
        self,
        folder: Path,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        disk: Disk | None = None,
        held_syncs: bool = False,
        with_memos: bool = True,
        node_id: int = 1,
        peers: Peers | None = None,
        **settings: str,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.with_memos = with_memos
        self.loop = loop or asyncio.get_running_loop()
        self.clock = FakeClock(NOW_MS)
        self.settings = BrokerSettings({name.replace("_", "."): value for name, value in settings.items()})
        self.node_id = node_id
        self.image = ClusterImage("test", 1)
        self.image.brokers[node_id] = BrokerState(node_id, (Endpoint(LISTENER, "here", 9092),))
        self.turn = Turn(self.loop, lambda: self.clock.now * 1_000_000)
        self.committer = FakeCommitter() if held_syncs else FakeSyncs(self.loop)
        self.partitions = Partitions(
            disk or Disk(), folder, self.image, self.settings, self.turn, cast(Any, self.committer), node_id
        )
        self.partitions.load()
        self.groups = Runtime(OFFSETS_TOPIC, self._new_machine, self.partitions, self.clock)
        network = TcpNetwork(self.loop, self.turn, f"broker-{node_id}")
        self.peers = peers or Peers(network, lambda node_id: None)
        self.markers = Markers(self.partitions, {OFFSETS_TOPIC: self.groups}, self.image, self.clock)
        self.marker_writer = MarkerWriter(self.markers, lambda: self.transactions, node_id, self.image, self.peers)
        self.transactions = Runtime(
            TRANSACTIONS_TOPIC, lambda: TransactionMachine(TransactionConfig()), self.partitions, self.clock,
            self.marker_writer,
        )  # fmt: skip
        self.upkeep = Upkeep(self.partitions, self.settings, cast(Any, None), self.clock)
        self.replicas = Replicas(
            node_id, self.partitions, self.image, self.settings, cast(Any, None), self.upkeep, network, self.turn,
            lambda node_id: None, lambda: 1, self.clock,
        )  # fmt: skip
        self.context = Context(
            node_id=node_id, image=self.image, settings=self.settings,
            administration=cast(Any, _Administration(self)), partitions=self.partitions, groups=self.groups,
            transactions=self.transactions, markers=self.markers, upkeep=self.upkeep, worker=cast(Any, FakeWorker()),
            fetch_sessions=FetchSessions(10, random.Random(1)), now_ms=self.clock, replicas=self.replicas,
            remote_transactions=RemoteTransactions(self.peers),
        )  # fmt: skip
        self.router = Router(self.context, self.turn)
        if not with_memos:
            self.router._produce = self.router._fetch = cast(Any, SimpleNamespace(remember=lambda *_: None))
        self.memory = MemoryBudget(64 << 20)
        self.cold_reads = ColdReads(self.loop)
        self.clients: list[Client] = []
        self._ids = itertools.count(1)
        self._member_ids = itertools.count(1)

    def _new_machine(self) -> GroupMachine:
        return GroupMachine(GroupConfig(), lambda prefix: f"{prefix}-{next(self._member_ids)}")

    # ---- topics

    def create_topic(self, name: str, partitions: int = 1, *, internal: bool = False, **config: str) -> TopicState:
        state = PartitionState(leader=1, leader_epoch=0, replicas=(1,), isr=(1,))
        named = {key.replace("_", "."): value for key, value in config.items()}
        topic = TopicState(name, next(self._ids).to_bytes(16, "big"), (state,) * partitions, named, internal)
        self.image.put_topic(topic)
        self._tell_created(topic)
        return topic

    def _tell_created(self, topic: TopicState) -> None:
        for listener in (self.partitions, self.groups, self.transactions):
            listener.topic_created(topic)

    def put_topic(self, after: TopicState) -> None:
        """As the catalog tells it, when another broker or the controller has written it."""
        before = self.image.topics.get(after.name)
        self.image.put_topic(after)
        if before is None:
            self._tell_created(after)
            return
        for listener in (self.partitions, self.groups, self.transactions):
            listener.topic_changed(before, after)

    def change_topic(self, name: str, **config: str) -> None:
        before = self.image.topics[name]
        self.put_topic(replace(before, config={key.replace("_", "."): value for key, value in config.items()}))

    def set_leader_epoch(self, name: str, epoch: int) -> None:
        before = self.image.topics[name]
        self.put_topic(replace(before, partitions=tuple(replace(p, leader_epoch=epoch) for p in before.partitions)))

    def set_partition(self, name: str, state: PartitionState, index: int = 0) -> None:
        """As the controller, another broker or this one has decided it."""
        before = self.image.topics[name]
        partitions = (*before.partitions[:index], state, *before.partitions[index + 1 :])
        after = replace(before, partitions=partitions)
        self.image.put_topic(after)
        self.partitions.topic_changed(before, after)

    def delete_topic(self, name: str) -> None:
        topic = self.image.topics[name]
        self.image.drop_topic(name)
        for listener in (self.partitions, self.groups, self.transactions):
            listener.topic_deleted(topic)

    def partition(self, name: str, index: int = 0) -> Partition:
        partition = self.partitions.get(name, index)
        assert partition is not None
        return partition

    # ---- connections

    def connect(self) -> Client:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        connection = Connection(
            self.loop, ours, host="peer", listener=LISTENER, turn=self.turn, memory=self.memory,
            cold_reads=self.cold_reads, dispatch=self.router.dispatch, frame_max=32 << 20, on_close=lambda _: None,
        )  # fmt: skip
        self.clients.append(Client(self, theirs, connection))
        return self.clients[-1]

    async def idle(self) -> None:
        """Until nothing is staged or on its way to the device."""
        committer = self.committer
        await until(lambda: not (committer.under_way or self.turn.scheduled or self.turn.writes))

    async def close(self) -> None:
        await self.router.close()
        await self.upkeep.close()
        self.marker_writer.close()
        self.transactions.close()
        self.groups.close()
        for client in self.clients:
            client.connection.close()
            client.close()
        self.turn.flush()
        await asyncio.sleep(0)


class _Administration:
    """As much of one as handlers of groups and transactions need."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms
        self._next_id = 1000

    async def ensure_topic(self, name: str) -> TopicState:
        return self._rooms.image.topics.get(name) or self._rooms.create_topic(name, 5, internal=True)

    async def next_producer_id_block(self) -> range:
        self._next_id += 1000
        return range(self._next_id - 1000, self._next_id)


# ---- requests


def batch(count: int = 1, **options: Any) -> bytes:
    return batch_at(0, count, epoch=-1, **options)


def produce(
    topic: str | bytes, records: bytes | None, index: int = 0, *, acks: int = -1, more: dict[int, bytes] | None = None
) -> ProduceRequest:
    """By the topic's name up to version 12, by its id from 13 on."""
    data = [
        PartitionProduceData(index=each, records=None if bytes_ is None else memoryview(bytes_))
        for each, bytes_ in {index: records, **(more or {})}.items()
    ]
    named = {"name": topic} if isinstance(topic, str) else {"topic_id": topic}
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(**named, partition_data=data)])


def fetch(
    topic: str | bytes,
    offset: int = 0,
    index: int = 0,
    *,
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    isolation: int = 0,
    epoch: int = -1,
    last_epoch: int = -1,
    session: tuple[int, int] = (0, -1),
) -> FetchRequest:
    """By the topic's name up to version 12, by its id from 13 on."""
    asked = FetchPartition(
        partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes, current_leader_epoch=epoch,
        last_fetched_epoch=last_epoch,
    )  # fmt: skip
    named = {"topic": topic} if isinstance(topic, str) else {"topic_id": topic}
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, isolation_level=isolation,
        session_id=session[0], session_epoch=session[1], topics=[FetchTopic(**named, partitions=[asked])],
    )  # fmt: skip
