"""Clients that go on all the time and write down when something worked, so that an outage is a gap in what they wrote.

`RawProducer` does what a cluster needs at the least: refused, it asks for metadata every 50 ms and goes where it is
sent. `UserProducer` and `UserConsumer` are confluent-kafka as it comes.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from penstock.protocol.framing import read_response, request_frame
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.protocol.record_batch import Record, build_batch
from penstock.protocol.schema import Message as ProtocolMessage

PAUSE_S = 0.01  # between an acknowledgement and the next record
AGAIN_S = 0.05
METADATA_S_MAX = 0.5
ANSWER_S_MAX = 30.0
END_S_MAX = 10.0
VALUE = b"x" * 100

Address = tuple[str, int]
M = TypeVar("M", bound=ProtocolMessage)


class Refused(Exception):
    """By a broker that does not lead, or not yet."""


class Times:
    """When something worked, for each partition. Written by one thread and read by another."""

    def __init__(self, partitions: int) -> None:
        self._times: list[list[float]] = [[] for _ in range(partitions)]

    def note(self, partition: int) -> None:
        self._times[partition].append(time.monotonic())

    def count_since(self, partition: int, since: float) -> int:
        return sum(1 for each in reversed(self._times[partition]) if each > since)

    def longest_gap_s(self, partitions: Iterable[int], since: float, until: float) -> float:
        """The longest that one of them waited: from the last time before `since` on."""
        longest = 0.0
        for partition in partitions:
            times = list(self._times[partition])
            before = max((each for each in times if each <= since), default=since)
            inside = [before, *(each for each in times if since < each <= until), until]
            longest = max(longest, *(after - each for each, after in pairwise(inside)))
        return longest


class Watcher(ABC):
    """Runs on a thread of its own until it is closed."""

    name = ""

    def __init__(self, topic: str, partitions: int) -> None:
        self.topic = topic
        self.times = Times(partitions)
        self._partitions = range(partitions)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{self.name} of {topic}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join(END_S_MAX)

    @abstractmethod
    def _run(self) -> None: ...


class RawProducer(Watcher):
    name = "raw producer"

    def __init__(self, addresses: Sequence[Address], topic: str, partitions: int) -> None:
        super().__init__(topic, partitions)
        self._addresses = list(addresses)

    def _run(self) -> None:
        asyncio.run(self._produce_all())

    async def _produce_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for partition in self._partitions:
                group.create_task(self._produce_on(partition))

    async def _produce_on(self, partition: int) -> None:
        while not self._ended.is_set():
            try:
                address = await self._leader_of(partition)
                await self._produce_to(address, partition)
            except (OSError, EOFError, Refused, TimeoutError):
                await asyncio.sleep(AGAIN_S)

    async def _produce_to(self, address: Address, partition: int) -> None:
        """Until it is refused."""
        reader, writer = await asyncio.open_connection(*address)
        try:
            while not self._ended.is_set():
                batch = build_batch([Record(0, int(time.time() * 1000), None, VALUE)])
                data = PartitionProduceData(index=partition, records=memoryview(batch))
                topic = TopicProduceData(name=self.topic, partition_data=[data])
                request = ProduceRequest(acks=-1, timeout_ms=int(ANSWER_S_MAX * 1000), topic_data=[topic])
                answer = await _ask(reader, writer, request, 9, ProduceResponse, ANSWER_S_MAX)
                if answer.responses[0].partition_responses[0].error_code:
                    raise Refused
                self.times.note(partition)
                await asyncio.sleep(PAUSE_S)
        finally:
            writer.close()

    async def _leader_of(self, partition: int) -> Address:
        """As the first that answers says. Who answered comes first the next time."""
        for address in tuple(self._addresses):
            try:
                answer = await self._metadata(address)
            except (OSError, EOFError, TimeoutError):
                self._addresses.remove(address)
                self._addresses.append(address)
                continue
            brokers = {each.node_id: (each.host, each.port) for each in answer.brokers}
            for each in answer.topics[0].partitions if answer.topics else ():
                if each.partition_index == partition and each.leader_id in brokers:
                    return brokers[each.leader_id]
            raise Refused
        raise Refused

    async def _metadata(self, address: Address) -> MetadataResponse:
        async with asyncio.timeout(METADATA_S_MAX):
            reader, writer = await asyncio.open_connection(*address)
        try:
            wanted = [MetadataRequestTopic(name=self.topic)]
            request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
            return await _ask(reader, writer, request, 9, MetadataResponse, METADATA_S_MAX)
        finally:
            writer.close()


async def _ask(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    request: ProtocolMessage,
    version: int,
    response: type[M],
    seconds: float,
) -> M:
    async with asyncio.timeout(seconds):
        writer.write(request_frame(request, version, 1, "bench"))
        size = int.from_bytes(await reader.readexactly(4), "big")
        return read_response(response, await reader.readexactly(size), version)[1]


class UserProducer(Watcher):
    name = "confluent-kafka"

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(topic, partitions)
        self._bootstrap = bootstrap
        self._producer = self._new_producer()
        self._shall_begin_anew = threading.Event()
        self.failed = 0

    def _new_producer(self) -> Producer:
        return Producer({"bootstrap.servers": self._bootstrap, "acks": "all", "log_level": 0})

    def begin_anew(self) -> None:
        """As a client that has seen no outage. librdkafka waits before it connects to a broker, twice as long each time
        within ten seconds even where it succeeded: after a few outages in a minute it would wait for itself."""
        self._shall_begin_anew.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            if self._shall_begin_anew.is_set():
                self._producer.flush(END_S_MAX)
                self._producer = self._new_producer()
                self._shall_begin_anew.clear()
            for partition in self._partitions:
                try:
                    self._producer.produce(self.topic, VALUE, partition=partition, on_delivery=self._delivered)
                except BufferError:
                    break  # as much as it holds waits for the cluster
            self._producer.poll(PAUSE_S)
            self._ended.wait(PAUSE_S / 2)
        self._producer.purge()
        self._producer.flush(1)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        partition = message.partition()
        if error is None and partition is not None:
            self.times.note(partition)
        elif not self._ended.is_set():
            self.failed += 1


class UserConsumer(Watcher):
    """Reads what is written from now on, without a group."""

    name = "consumer"

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(topic, partitions)
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False,
             "auto.offset.reset": "latest", "log_level": 0}
        )  # fmt: skip
        self._consumer.assign([TopicPartition(topic, partition) for partition in self._partitions])

    def _run(self) -> None:
        while not self._ended.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                partition = message.partition()
                assert partition is not None
                self.times.note(partition)
        self._consumer.close()
