"""A client of simulated brokers: asks with real request frames over the simulated network, and tries again.

It is as patient as a good client: it asks any broker who leads, follows, and repeats what was not answered. What was
acknowledged, and what a reader has seen, is remembered, to be judged at the end.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.protocol.record_batch import Record, build_batch, read_batches, read_records
from penstock.protocol.schema import Message
from penstock.transport.peer import Address, Peer
from penstock.transport.turn import Turn
from tests.simulation.brokers import SimulatedBrokers

ANSWER_S_MAX = 3.0
PRODUCE_TIMEOUT_MS = 2000
AGAIN_S = 0.1
FETCH_BYTES = 1 << 20
M = TypeVar("M", bound=Message)


class GaveUp(AssertionError):
    """Nobody did what was asked for, for longer than it should take."""


@dataclass(slots=True)
class History:
    """What a client was promised of one partition."""

    acknowledged: dict[str, int] = field(default_factory=dict)  # where each value is
    once: set[str] = field(default_factory=set)  # values of idempotent producers
    seen: dict[int, str] = field(default_factory=dict)  # by readers


class Client:
    def __init__(self, cluster: SimulatedBrokers, name: str = "client") -> None:
        self._cluster = cluster
        self.name = name
        self._turn = Turn(cluster.loop, cluster.loop.wall_ns)
        self._host = cluster.network.host(name, self._turn)
        self._peers: dict[int, Peer] = {}
        self._leaders: dict[str, int] = {}
        self._ids: dict[str, bytes] = {}
        self.histories: dict[str, History] = {}

    def history(self, topic: str) -> History:
        return self.histories.setdefault(topic, History())

    def note(self, what: str) -> None:
        self._cluster.note(self.name, what)

    # ---- asking

    async def ask(
        self, broker: int, request: Message, version: int, response: type[M], timeout_s: float = ANSWER_S_MAX
    ) -> M | None:
        """None if it does not answer."""
        address: Address = self._cluster[broker].address
        if broker not in self._peers:
            self._peers[broker] = self._host.peer(lambda: address)
        future: asyncio.Future[M | None] = self._cluster.loop.create_future()

        def answered(message: M | None) -> None:
            if isinstance(message, FetchResponse):  # what it refers to is the turn's
                for topic in message.responses:
                    for data in topic.partitions:
                        data.records = bytes(data.records or b"")
            if not future.done():
                future.set_result(message)

        self._peers[broker].ask(request, version, response, answered, timeout_s)
        return await future

    async def _learn(self, topic: str) -> int:
        """Who leads, as any broker says who says anything; asked for again until someone knows."""
        brokers = list(self._cluster.brokers)
        start = self._cluster.random.randrange(len(brokers))
        for number in brokers[start:] + brokers[:start]:
            wanted = [MetadataRequestTopic(topic_id=bytes(16), name=topic)]
            request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
            found = await self.ask(number, request, 12, MetadataResponse, timeout_s=0.5)
            if found is None or not found.topics or found.topics[0].error_code:
                continue
            self._ids[topic] = found.topics[0].topic_id
            self._leaders[topic] = found.topics[0].partitions[0].leader_id
            if self._leaders[topic] in self._cluster.brokers:
                break
        return self._leaders.get(topic, -1)

    async def leader(self, topic: str, deadline: float) -> int:
        while self._leaders.get(topic, -1) not in self._cluster.brokers:
            await self._learn(topic)
            if self._cluster.loop.time() > deadline:
                raise GaveUp(f"nobody leads {topic}")
            await asyncio.sleep(AGAIN_S if self._leaders.get(topic, -1) == -1 else 0)
        return self._leaders[topic]

    def forget_leader(self, topic: str) -> None:
        self._leaders.pop(topic, None)

    # ---- topics

    async def create(self, topic: str, replicas: list[int], **config: object) -> None:
        """One partition, on these brokers, led by the first of them."""
        entries = [
            CreatableTopicConfig(name=name.replace("_", "."), value=str(value)) for name, value in config.items()
        ]
        assignment = [CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)]
        wanted = CreatableTopic(
            name=topic, num_partitions=-1, replication_factor=-1, assignments=assignment, configs=entries
        )
        found = await self.ask(replicas[0], CreateTopicsRequest(topics=[wanted]), 7, CreateTopicsResponse)
        assert found is not None
        assert found.topics[0].error_code == 0, found.topics[0]
        self.note(f"created {topic}")

    # ---- writing

    async def produce(
        self,
        broker: int,
        topic: str,
        values: list[str],
        producer: tuple[int, int, int] = (-1, -1, -1),
        acks: int = -1,
        timeout_s: float = ANSWER_S_MAX,
    ) -> tuple[int, int]:
        """One attempt: an error code, UNKNOWN_SERVER_ERROR if there is no answer, and the offset."""
        now_ms = self._cluster.loop.wall_ns() // 1_000_000
        records = [Record(slot, now_ms, None, value.encode()) for slot, value in enumerate(values)]
        batch = build_batch(records, producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2])
        data = [PartitionProduceData(index=0, records=memoryview(batch))]
        request = ProduceRequest(
            acks=acks, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=[TopicProduceData(name=topic, partition_data=data)]
        )
        found = await self.ask(broker, request, 9, ProduceResponse, timeout_s)
        if found is None:
            return ErrorCode.UNKNOWN_SERVER_ERROR, -1
        answer = found.responses[0].partition_responses[0]
        return answer.error_code, answer.base_offset

    async def producer_id(self, deadline: float) -> int:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        while self._cluster.loop.time() < deadline:
            for number in self._cluster.brokers:
                found = await self.ask(number, request, 4, InitProducerIdResponse)
                if found is not None and not found.error_code:
                    return found.producer_id
            await asyncio.sleep(AGAIN_S)
        raise GaveUp("nobody has a producer id")

    # ---- reading

    async def read(self, topic: str, deadline: float, start: int = 0) -> list[tuple[int, str]]:
        """All that is committed from an offset on, now, as its leader says."""
        self.forget_leader(topic)
        found: list[tuple[int, str]] = []
        while self._cluster.loop.time() < deadline:
            leader = await self.leader(topic, deadline)
            some, high_watermark = await self.fetch(leader, topic, start)
            found += some
            start = found[-1][0] + 1 if found else start
            if high_watermark < 0:
                self.forget_leader(topic)
                await asyncio.sleep(AGAIN_S)
            elif not some or start >= high_watermark:
                return found
        raise GaveUp(f"{topic} can't be read")

    async def fetch(self, broker: int, topic: str, offset: int) -> tuple[list[tuple[int, str]], int]:
        """One attempt: what there is, and the high watermark, which is -1 if there is no answer or another."""
        if topic not in self._ids:
            await self._learn(topic)
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
        topics = [FetchTopic(topic_id=self._ids.get(topic, bytes(16)), partitions=[partition])]
        request = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=FETCH_BYTES, topics=topics)
        found = await self.ask(broker, request, 16, FetchResponse)
        if found is None or found.error_code or not found.responses or found.responses[0].partitions[0].error_code:
            return [], -1
        data = found.responses[0].partitions[0]
        records: list[tuple[int, str]] = []
        for _, batch in read_batches(data.records):
            for record in read_records(batch, 1 << 20, check_crc=True, compacted=True):
                if record.offset >= offset:
                    assert record.value is not None
                    records.append((record.offset, record.value.decode()))
        return records, data.high_watermark

    async def show_epoch(self, broker: int, topic: str, epoch: int, follower: tuple[int, int]) -> None:
        """Fetches as a follower would that knows of this leader epoch; it is given by its number and broker epoch."""
        if topic not in self._ids:
            await self._learn(topic)
        partition = FetchPartition(
            partition=0, current_leader_epoch=epoch, fetch_offset=0, partition_max_bytes=FETCH_BYTES
        )
        topics = [FetchTopic(topic_id=self._ids[topic], partitions=[partition])]
        claimed = ReplicaState(replica_id=follower[0], replica_epoch=follower[1])
        request = FetchRequest(replica_state=claimed, max_wait_ms=0, min_bytes=0, session_epoch=0, topics=topics)
        await self.ask(broker, request, 17, FetchResponse)


class Writer:
    """Writes numbered values one after the other, each until it is acknowledged by all in-sync replicas."""

    def __init__(self, client: Client, cluster: SimulatedBrokers, topic: str, name: str, *, idempotent: bool) -> None:
        self._client = client
        self._cluster = cluster
        self._topic = topic
        self._name = name
        self._idempotent = idempotent
        self._producer_id = -1
        self._sequence = 0
        self.longest_s = 0.0

    async def write(self, patience_s: float = 120.0) -> int:
        """The next value; its offset."""
        client, topic, began = self._client, self._topic, self._cluster.loop.time()
        deadline = began + patience_s
        if self._idempotent and self._producer_id < 0:
            self._producer_id = await client.producer_id(deadline)
        value = f"{self._name}-{self._sequence}"
        producer = (self._producer_id, 0, self._sequence) if self._idempotent else (-1, -1, -1)
        while True:
            leader = await client.leader(topic, deadline)
            code, offset = await client.produce(leader, topic, [value], producer)
            if code == 0:
                break
            client.note(f"{value} to {leader}: {ErrorCode(code).name}")
            if self._cluster.loop.time() > deadline:
                raise GaveUp(f"{value} was not acknowledged within {patience_s} s")
            client.forget_leader(topic)
            await asyncio.sleep(AGAIN_S)
        history = client.history(topic)
        history.acknowledged[value] = offset
        if self._idempotent:
            history.once.add(value)
        self._sequence += 1
        self.longest_s = max(self.longest_s, self._cluster.loop.time() - began)
        client.note(f"{value} is at {offset}")
        return offset

    async def write_on(self, pause_s: float) -> None:
        """Until it is cancelled."""
        while True:
            await self.write()
            await asyncio.sleep(self._cluster.random.uniform(0, 2 * pause_s))


class Reader:
    """Reads all from the beginning, then what follows, whoever leads."""

    def __init__(self, client: Client, cluster: SimulatedBrokers, topic: str) -> None:
        self._client = client
        self._cluster = cluster
        self._topic = topic
        self._next = 0

    async def read_on(self, pause_s: float) -> None:
        seen = self._client.history(self._topic).seen
        while True:
            leader = await self._client.leader(self._topic, self._cluster.loop.time() + 120.0)
            found, high_watermark = await self._client.fetch(leader, self._topic, self._next)
            if high_watermark < 0:
                self._client.forget_leader(self._topic)
            for offset, value in found:
                seen[offset] = value
                self._next = offset + 1
            await asyncio.sleep(pause_s)
