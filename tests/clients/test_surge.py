"""A surge: more producers than the broker can serve at once, sending as fast as they can."""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from penstock.protocol.errors import ErrorCode
from penstock.protocol.framing import read_response, request_frame
from penstock.protocol.messages.produce import ProduceResponse
from penstock.protocol.record_batch import read_batches, read_records
from tests.brokers import BrokerProcess
from tests.clients.steps import create_topic
from tests.clients.wire import Wire, batch_of, fetch_request, produce_request

PRODUCERS, EACH, PARTITIONS = 200, 3, 4
BATCH_BYTES = 1_000_000
QUEUED_MAX_BYTES = 32 << 20
CEILING_MB = 256  # what is queued, buffers of a turn, and the broker itself; all that is sent would be 600


@dataclass
class Pushing:
    """A connection that writes all its requests without waiting for an answer."""

    sock: socket.socket
    number: int
    outgoing: list[memoryview]
    incoming: bytearray = field(default_factory=bytearray)
    acknowledged: list[tuple[int, int]] = field(default_factory=list)

    def write(self) -> None:
        while self.outgoing:
            try:
                sent = self.sock.send(self.outgoing[0])
            except BlockingIOError:
                return
            self.outgoing[0] = self.outgoing[0][sent:]
            if not self.outgoing[0]:
                self.outgoing.pop(0)

    def read(self) -> None:
        received = self.sock.recv(65536)
        assert received, "the broker closed a producer's connection"
        self.incoming += received
        while len(self.incoming) >= 4:
            (size,) = struct.unpack_from(">i", self.incoming)
            if len(self.incoming) < 4 + size:
                return
            sequence, response = read_response(ProduceResponse, bytes(self.incoming[4 : 4 + size]), 9)
            del self.incoming[: 4 + size]
            placed = response.responses[0].partition_responses[0]
            assert placed.error_code == ErrorCode.NONE
            assert sequence == len(self.acknowledged), "answers out of order"
            self.acknowledged.append((placed.index, placed.base_offset))


def value_of(producer: int, sequence: int) -> bytes:
    return struct.pack(">ii", producer, sequence) + bytes(BATCH_BYTES)


def push(bootstrap: str, topic: str) -> list[Pushing]:
    selector = selectors.DefaultSelector()
    host, _, port = bootstrap.rpartition(":")
    producers = []
    for number in range(PRODUCERS):
        sock = socket.create_connection((host, int(port)))
        sock.setblocking(False)
        partition = number % PARTITIONS
        frames = [
            request_frame(produce_request(topic, batch_of(value_of(number, n)), partition=partition), 9, n, None)
            for n in range(EACH)
        ]
        producer = Pushing(sock, number, [memoryview(frame) for frame in frames])
        producers.append(producer)
        selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE, producer)
    left = PRODUCERS
    while left:
        ready = selector.select(30)
        assert ready, "nothing moves any more"
        for key, events in ready:
            producer = key.data
            if events & selectors.EVENT_WRITE:
                producer.write()
                if not producer.outgoing:
                    selector.modify(producer.sock, selectors.EVENT_READ, producer)
            if events & selectors.EVENT_READ:
                producer.read()
                if len(producer.acknowledged) == EACH:
                    selector.unregister(producer.sock)
                    producer.sock.close()
                    left -= 1
    return producers


def peak_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmHWM")


def read_everything(bootstrap: str, topic: str, partition: int) -> dict[int, tuple[int, int]]:
    """Which producer's which message stands at which offset."""
    found: dict[int, tuple[int, int]] = {}
    with Wire(bootstrap) as wire:
        while True:
            records = wire.fetch(topic, len(found), partition=partition, max_bytes=8 << 20, wait_ms=0).records
            before = len(found)
            for header, batch in read_batches(records):
                assert header.base_offset == len(found), "a gap"
                (record,) = read_records(batch, 1 << 21, check_crc=True)
                found[header.base_offset] = struct.unpack_from(">ii", record.value or b"")
            if len(found) == before:
                return found


def test_two_hundred_producers_at_once_stay_under_the_memory_ceiling_and_lose_nothing(
    new_broker: Callable[..., BrokerProcess],
) -> None:
    broker = new_broker(queued_max_bytes=QUEUED_MAX_BYTES)
    topic = create_topic(broker.bootstrap, "surge", PARTITIONS)
    calm = threading.Event()
    beats: list[int] = []

    def live_through_it() -> None:
        """Someone with little to ask for is served meanwhile."""
        with Wire(broker.bootstrap) as wire:
            while not calm.wait(0.05):
                beats.append(wire.ask(fetch_request(topic, 0, max_bytes=1, wait_ms=0), 11).error_code)

    bystander = threading.Thread(target=live_through_it)
    bystander.start()
    try:
        producers = push(broker.bootstrap, topic)
    finally:
        calm.set()
        bystander.join(20)
    assert peak_mb(broker.pid) < CEILING_MB
    assert beats
    assert set(beats) == {ErrorCode.NONE}
    stored = {partition: read_everything(broker.bootstrap, topic, partition) for partition in range(PARTITIONS)}
    assert sum(len(found) for found in stored.values()) == PRODUCERS * EACH
    for producer in producers:
        for sequence, (partition, offset) in enumerate(producer.acknowledged):
            assert stored[partition][offset] == (producer.number, sequence)
