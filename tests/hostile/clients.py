"""Clients that say what they like: a socket, frames made by hand, and what came of them."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any, TypeVar

from penstock.protocol.apis import RESPONSE_OF
from penstock.protocol.framing import read_response, request_frame
from penstock.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from penstock.protocol.record_batch import Record, build_batch
from penstock.protocol.schema import Message

ANSWER_TIMEOUT_S = 10.0
NOW_MS = 1_700_000_000_000
PRODUCE_VERSION = 11
FETCH_VERSION = 12

R = TypeVar("R", bound=Message)


def sized(body: bytes, claimed: int | None = None) -> bytes:
    """A frame that claims to have the length of its body, or another."""
    return struct.pack(">i", len(body) if claimed is None else claimed) + body


def header(api_key: int, version: int, client_id: bytes | None = b"hostile", tags: bytes = b"") -> bytes:
    """What stands before the body of a request; `tags` is what flexible versions have there."""
    size = -1 if client_id is None else len(client_id)
    return struct.pack(">hhih", api_key, version, 7, size) + (client_id or b"") + tags


def batch_of(*values: bytes, **options: Any) -> bytes:
    return build_batch([Record(i, NOW_MS, b"key", value) for i, value in enumerate(values or (b"value",))], **options)


def produce_request(topic: str, *batches: bytes, partition: int = 0, acks: int = -1) -> ProduceRequest:
    """All batches to one partition, each in a place of its own."""
    data = [PartitionProduceData(index=partition, records=memoryview(batch)) for batch in batches]
    topics = [TopicProduceData(name=topic, partition_data=data)]
    return ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=topics)


def fetch_request(topic: str, *asked: FetchPartition, **options: Any) -> FetchRequest:
    partitions = list(asked) or [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
    options = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **options}
    return FetchRequest(topics=[FetchTopic(topic=topic, partitions=partitions)], **options)


class RawClient:
    """One connection. Whoever closes it first, nothing here raises for it: that is for the test to judge."""

    def __init__(self, port: int, timeout_s: float = ANSWER_TIMEOUT_S, receive_bytes: int = 0) -> None:
        self.sock = socket.socket()
        if receive_bytes:  # before the connection is made, or the kernel takes in many megabytes
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.sock.settimeout(timeout_s)
        self.sock.connect(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()

    def close(self) -> None:
        self.sock.close()

    def send(self, data: bytes) -> bool:
        """False if the broker was gone before all was sent."""
        try:
            self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def frame(self) -> bytes | None:
        """The next answer without its length, or None if the broker has closed the connection."""
        head = self._take(4)
        if head is None:
            return None
        return self._take(int.from_bytes(head, "big"))

    def _take(self, size: int) -> bytes | None:
        while len(self._received) < size:
            try:
                more = self.sock.recv(1 << 20)
            except ConnectionResetError:
                return None
            if not more:
                return None
            self._received += more
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken

    def is_closed(self) -> bool:
        """Whether the broker closes the connection and says nothing more."""
        return self.frame() is None

    def ask(self, message: Message, version: int) -> Any:
        """A request by the rules, and its response; None if the connection was closed."""
        if not self.send(request_frame(message, version, 5, "hostile")):
            return None
        frame = self.frame()
        if frame is None:
            return None
        correlation_id, response = read_response(RESPONSE_OF[type(message)], frame, version)
        assert correlation_id == 5
        return response

    # ---- what most tests need

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> str:
        configs = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in config.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
        (result,) = self.ask(CreateTopicsRequest(topics=[topic]), 7).topics
        assert result.error_code == 0, result
        return name

    def produce(self, topic: str, batch: bytes, *, partition: int = 0, acks: int = -1) -> PartitionProduceResponse:
        response = self.ask(produce_request(topic, batch, partition=partition, acks=acks), PRODUCE_VERSION)
        assert response is not None, "the connection was closed"
        return next(answers_of(response))

    def fetch(self, topic: str, *asked: FetchPartition, version: int = FETCH_VERSION, **options: Any) -> FetchResponse:
        response = self.ask(fetch_request(topic, *asked, **options), version)
        assert response is not None, "the connection was closed"
        assert isinstance(response, FetchResponse)
        return response


def answers_of(response: Any) -> Iterator[PartitionProduceResponse]:
    for topic in response.responses:
        yield from topic.partition_responses
