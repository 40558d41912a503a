"""Connections: order, long polls, readers that do not read, and what one connection may do to the others."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.protocol.framing import request_frame
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.record_batch import read_batches
from tests.brokers import BrokerProcess
from tests.clients.conftest import Topics
from tests.clients.steps import create_topic, wait_until
from tests.clients.wire import ClosedByBroker, Wire, batch_of, fetch_request, produce_request

MEBIBYTE = 1 << 20


def end_of(topic: str) -> ListOffsetsRequest:
    asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    return ListOffsetsRequest(replica_id=-1, topics=[asked])


def test_requests_sent_together_are_answered_in_their_order(new_topic: Topics, wire: Wire) -> None:
    topic = new_topic()
    wait_until(lambda: wire.ask(FindCoordinatorRequest(key="g"), 3).error_code == ErrorCode.NONE)
    frames = []
    for n in range(50):
        for request, version in (
            (produce_request(topic, batch_of(b"%d" % n)), 9),
            (end_of(topic), 7),
            (fetch_request(topic, n), 11),
            (MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9),
            (ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3),
            (FindCoordinatorRequest(key="g", coordinator_keys=["g"]), 4),
        ):
            frames.append(wire.frame(request, version)[1])
    wire.sock.sendall(b"".join(frames))
    for n in range(50):
        produced = wire.receive().responses[0].partition_responses[0]
        assert (produced.error_code, produced.base_offset) == (ErrorCode.NONE, n)
        assert wire.receive().topics[0].partitions[0].offset == n + 1
        fetched = wire.receive().responses[0].partitions[0]
        assert fetched.high_watermark == n + 1
        assert [header.base_offset for header, _ in read_batches(fetched.records)] == [n]
        assert wire.receive().topics[0].name == topic
        assert wire.receive().error_code == ErrorCode.NONE
        assert wire.receive().coordinators[0].error_code == ErrorCode.NONE


def test_produce_requests_in_flight_are_appended_and_answered_in_order(new_topic: Topics, wire: Wire) -> None:
    topic = new_topic()
    requests = [produce_request(topic, batch_of(b"%d" % n * 100), acks=(-1, 1)[n % 2]) for n in range(200)]
    wire.sock.sendall(b"".join(wire.frame(request, 11)[1] for request in requests))
    offsets = [wire.receive().responses[0].partition_responses[0].base_offset for _ in requests]
    assert offsets == list(range(200))


def test_a_produce_request_without_acknowledgement_gets_no_answer(new_topic: Topics, wire: Wire) -> None:
    topic = new_topic()
    silent = request_frame(produce_request(topic, batch_of(b"silent"), acks=0), 9, 7, "wire")
    wire.sock.sendall(silent * 3)
    assert wire.ask(end_of(topic), 7).topics[0].partitions[0].offset == 3


def test_a_request_may_come_in_any_pieces(new_topic: Topics, wire: Wire) -> None:
    topic = new_topic()
    whole = b"".join(wire.frame(produce_request(topic, batch_of(b"x" * 40)), 9)[1] for _ in range(3))
    for position in range(len(whole)):
        wire.sock.sendall(whole[position : position + 1])
    assert [wire.receive().responses[0].partition_responses[0].base_offset for _ in range(3)] == [0, 1, 2]


def test_a_long_poll_holds_back_only_its_own_connection(new_topic: Topics, bootstrap: str, wire: Wire) -> None:
    quiet, busy = new_topic(), new_topic()
    wire.send(fetch_request(quiet, 0, wait_ms=3000), 11)
    wire.send(ApiVersionsRequest(), 0)
    began = time.monotonic()
    with Wire(bootstrap) as other:
        for n in range(100):
            assert other.produce(busy, batch_of(b"x")).base_offset == n
            assert len(other.fetch(busy, n).records) > 0
    assert time.monotonic() - began < 2.5
    assert wire.receive().responses[0].partitions[0].error_code == ErrorCode.NONE
    assert time.monotonic() - began >= 2.9
    assert wire.receive().error_code == ErrorCode.NONE


def test_many_long_polls_on_one_partition_are_all_answered(new_topic: Topics, bootstrap: str) -> None:
    topic = new_topic()
    waiting = [Wire(bootstrap) for _ in range(100)]
    for connection in waiting:
        connection.send(fetch_request(topic, 0, wait_ms=20_000), 11)
    with Wire(bootstrap) as producer:
        producer.produce(topic, batch_of(b"news"))
    for connection in waiting:
        with connection:
            assert len(connection.receive().responses[0].partitions[0].records) > 0


def test_a_connection_that_goes_away_in_a_long_poll_leaves_nothing_behind(new_topic: Topics, bootstrap: str) -> None:
    topic = new_topic()
    for _ in range(50):
        with Wire(bootstrap) as gone:
            gone.send(fetch_request(topic, 0, wait_ms=60_000), 11)
    with Wire(bootstrap) as wire:
        assert wire.produce(topic, batch_of(b"x")).error_code == ErrorCode.NONE
        assert len(wire.fetch(topic, 0).records) > 0


def fill(bootstrap: str, topic: str, batches: int) -> None:
    with Wire(bootstrap) as wire:
        for _ in range(batches):
            assert wire.produce(topic, batch_of(bytes(MEBIBYTE - 1000))).error_code == ErrorCode.NONE


def test_a_reader_that_does_not_read_costs_little_memory_and_delays_nobody(
    new_broker: Callable[..., BrokerProcess],
) -> None:
    broker = new_broker(flush="os")
    topic = create_topic(broker.bootstrap, "large")
    fill(broker.bootstrap, topic, 8)
    before = broker.resident_mb()
    with Wire(broker.bootstrap) as slow:
        slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        asked = [slow.frame(fetch_request(topic, n % 8, max_bytes=8 * MEBIBYTE), 11)[1] for n in range(300)]
        slow.sock.sendall(b"".join(asked))
        with Wire(broker.bootstrap) as other:
            for _ in range(300):
                began = time.monotonic()
                assert len(other.fetch(topic, 0, max_bytes=1000).records) > 0
                assert time.monotonic() - began < 2
        assert broker.resident_mb() - before < 32
        for n in range(300):  # and when it reads at last, everything is there
            records = slow.receive().responses[0].partitions[0].records
            assert [header.base_offset for header, _ in read_batches(records)] == list(range(n % 8, 8))
        assert broker.resident_mb() - before < 32


def test_small_answers_that_nobody_reads_are_bounded_too(new_broker: Callable[..., BrokerProcess]) -> None:
    broker = new_broker()
    for n in range(10):
        create_topic(broker.bootstrap, f"topic-{n}", 10)
    before = broker.resident_mb()
    request = MetadataRequest(topics=None)
    with Wire(broker.bootstrap) as slow:
        slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        frame = slow.frame(request, 12)[1]
        slow.sock.setblocking(False)
        chunk, sent, deadline = frame * 500, 0, time.monotonic() + 10
        stuck_since = time.monotonic()
        while time.monotonic() < deadline and time.monotonic() - stuck_since < 1:
            try:
                sent += slow.sock.send(chunk)
                stuck_since = time.monotonic()
            except BlockingIOError:
                time.sleep(0.01)
        assert time.monotonic() < deadline, "the broker reads on and on"
        assert broker.resident_mb() - before < 48
        with Wire(broker.bootstrap) as other:
            assert other.ask(request, 12).topics


def test_a_frame_with_an_impossible_length_closes_its_connection_only(bootstrap: str, wire: Wire) -> None:
    for length in (-1, 0, 3, 2**31 - 1):
        with Wire(bootstrap) as wrong:
            wrong.sock.sendall(length.to_bytes(4, "big", signed=True) + bytes(100))
            with pytest.raises((ClosedByBroker, ConnectionResetError)):
                wrong.receive_frame()
    assert wire.ask(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE


def test_many_idle_connections_are_no_burden(new_broker: Callable[..., BrokerProcess]) -> None:
    broker = new_broker()
    before = broker.resident_mb()
    idle = [Wire(broker.bootstrap) for _ in range(500)]
    try:
        for connection in idle:
            assert connection.ask(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE
        assert broker.resident_mb() - before < 20
    finally:
        for connection in idle:
            connection.sock.close()
    with Wire(broker.bootstrap) as wire:
        wait_until(lambda: wire.ask(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE)
