"""A connection that does what it is told: any request in any version, as many as wished before one answer is read."""

from __future__ import annotations

import socket
import struct
from collections import deque
from typing import Any

from penstock.protocol.apis import RESPONSE_OF
from penstock.protocol.framing import read_response, request_frame
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from penstock.protocol.record_batch import Record, build_batch
from penstock.protocol.schema import Message

TIMEOUT_S = 20.0


class ClosedByBroker(Exception):
    pass


class Wire:
    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0
        self._pending: deque[tuple[int, type[Message], int]] = deque()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, request: Message, version: int | None = None) -> int:
        """The correlation id, by which the answer will be known."""
        correlation_id, frame = self.frame(request, version)
        self.sock.sendall(frame)
        return correlation_id

    def frame(self, request: Message, version: int | None = None) -> tuple[int, bytes]:
        version = type(request).versions.last if version is None else version
        self._correlation_id += 1
        self._pending.append((self._correlation_id, RESPONSE_OF[type(request)], version))
        return self._correlation_id, request_frame(request, version, self._correlation_id, "wire")

    def receive(self) -> Any:
        """The next answer, which must be that to the oldest request."""
        correlation_id, response_type, version = self._pending.popleft()
        answered, response = read_response(response_type, self.receive_frame(), version)
        assert answered == correlation_id, f"request {correlation_id} got the answer to {answered}"
        return response

    def ask(self, request: Message, version: int | None = None) -> Any:
        self.send(request, version)
        return self.receive()

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self.receive_bytes(4))
        return self.receive_bytes(size)

    def receive_bytes(self, size: int) -> bytes:
        data = bytearray(size)
        view, have = memoryview(data), 0
        while have < size:
            received = self.sock.recv_into(view[have:])
            if not received:
                raise ClosedByBroker
            have += received
        return bytes(data)

    # ---- what many tests do

    def topic_id(self, topic: str) -> bytes:
        response = self.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
        return response.topics[0].topic_id

    def produce(self, topic: str, batch: bytes, *, partition: int = 0, acks: int = -1) -> PartitionProduceResponse:
        return (
            self.ask(produce_request(topic, batch, partition=partition, acks=acks), 12)
            .responses[0]
            .partition_responses[0]
        )

    def fetch(self, topic: str, offset: int, **options: Any) -> PartitionData:
        return self.ask(fetch_request(topic, offset, **options), 12).responses[0].partitions[0]


def produce_request(topic: str, batch: bytes | None, *, partition: int = 0, acks: int = -1) -> ProduceRequest:
    """For the versions that name topics: up to 12."""
    data = PartitionProduceData(index=partition, records=None if batch is None else memoryview(batch))
    return ProduceRequest(
        acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def fetch_request(
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    max_bytes: int = 1 << 20,
    min_bytes: int = 1,
    wait_ms: int = 500,
    isolation_level: int = 0,
) -> FetchRequest:
    """For the versions that name topics: up to 12."""
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=[FetchTopic(topic=topic, partitions=[asked])],
    )


def batch_of(*values: bytes, timestamp_ms: int = 1_700_000_000_000, **options: Any) -> bytes:
    records = [Record(offset, timestamp_ms + offset, b"key", value) for offset, value in enumerate(values)]
    return build_batch(records, **options)
