"""Many of everything: requests whose answers nobody reads, frames that never end, connections by the thousand."""

from __future__ import annotations

import os
import resource
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable

import pytest

from penstock.protocol.framing import request_frame
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.metadata import MetadataRequest
from penstock.protocol.schema import Message
from tests.brokers import BrokerProcess
from tests.hostile.clients import FETCH_VERSION, PRODUCE_VERSION, RawClient, batch_of, fetch_request, produce_request
from tests.hostile.conftest import Hostile
from tests.machine import slowness

MEGABYTE = 1_000_000
HALF_OPEN = 1_000


def descriptors(broker: BrokerProcess) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/fd"))


def settled(measure: Callable[[], bool], within_s: float = 5.0) -> bool:
    deadline = time.monotonic() + within_s
    while not measure():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


# ---- answers that nobody reads


def pour(client: RawClient, data: bytes, total: int, patience_s: float = 0.5) -> int:
    """Sends the data again and again, never reading; how much was taken before the broker stopped taking it."""
    client.sock.setblocking(False)
    sent, view, position = 0, memoryview(data), 0
    with selectors.DefaultSelector() as selector:
        selector.register(client.sock, selectors.EVENT_WRITE)
        while sent < total and selector.select(patience_s):
            try:
                taken = client.sock.send(view[position:])
            except BlockingIOError:
                continue
            sent += taken
            position = (position + taken) % len(data)
    return sent


def _requests(topic: str) -> dict[str, tuple[Message, int]]:
    return {
        "ApiVersions": (ApiVersionsRequest(), 0),
        "Metadata": (MetadataRequest(topics=None), 12),
        "Produce": (produce_request(topic, batch_of(b"x"), acks=1), PRODUCE_VERSION),
        "Fetch": (fetch_request(topic, max_bytes=1 << 20), FETCH_VERSION),
        "Fetch that waits": (fetch_request(topic, max_wait_ms=50, min_bytes=1 << 30), FETCH_VERSION),
    }


@pytest.mark.parametrize("kind", _requests(""))
def test_a_client_that_never_reads_is_not_read_either(hostile: Hostile, topic: str, kind: str) -> None:
    setter = hostile()
    for _ in range(20):
        setter.produce(topic, batch_of(b"v" * 50_000), acks=1)
    message, version = _requests(topic)[kind]
    client = hostile(receive_bytes=64 * 1024)
    frame = request_frame(message, version, 1, "hostile")
    sent = pour(client, frame * (60_000 // len(frame) + 1), 60 * MEGABYTE)
    assert sent < 60 * MEGABYTE
    client.sock.setblocking(True)
    assert client.frame() is not None  # all that was taken is answered once somebody reads


def test_what_was_sent_before_hanging_up_is_forgotten(hostile: Hostile, broker: BrokerProcess, topic: str) -> None:
    """A thousand clients that ask for much, read nothing and go."""
    setter = hostile()
    for _ in range(10):
        setter.produce(topic, batch_of(b"v" * 100_000), acks=1)
    frame = request_frame(fetch_request(topic), FETCH_VERSION, 1, "hostile")
    before = descriptors(broker)
    for _ in range(20):
        clients = hostile.crowd(50)
        for client in clients:
            client.send(frame * 3)
        for client in clients:
            client.close()
    assert settled(lambda: descriptors(broker) <= before + 5)


# ---- frames that never end


def test_a_thousand_frames_that_never_end_harm_nobody(hostile: Hostile) -> None:
    for number, client in enumerate(hostile.crowd(HALF_OPEN)):
        client.send(struct.pack(">i", 100_000) + bytes(number % 1_000))
    time.sleep(0.3)


def test_large_frames_that_never_end_do_not_use_up_the_room_for_others(hostile: Hostile, topic: str) -> None:
    """Each begins thirty megabytes, sends one, and falls silent: together twice what the broker will hold."""
    beginning = struct.pack(">i", 30 * MEGABYTE) + bytes(MEGABYTE)
    _run([threading.Thread(target=_send_what_is_taken, args=(client, beginning)) for client in hostile.crowd(130)])
    began = time.monotonic()
    assert hostile().produce(topic, batch_of(b"x" * 900_000)).base_offset == 0
    assert time.monotonic() - began < 8


def _send_what_is_taken(client: RawClient, data: bytes) -> None:
    client.sock.settimeout(1)
    try:
        client.send(data)
    except TimeoutError:
        pass


def test_large_frames_behind_a_fetch_that_waits_take_no_room(hostile: Hostile, topic: str) -> None:
    """They can't be carried out before the fetch is answered, which may be in ten minutes."""
    patient = request_frame(fetch_request(topic, max_wait_ms=600_000, min_bytes=1 << 30), FETCH_VERSION, 1, "hostile")
    behind = struct.pack(">i", 30 * MEGABYTE) + bytes(30 * MEGABYTE)
    _run([threading.Thread(target=_send_what_is_taken, args=(c, patient + behind)) for c in hostile.crowd(5)])
    began = time.monotonic()
    assert hostile().produce(topic, batch_of(b"x" * 900_000)).base_offset == 0
    assert time.monotonic() - began < 1


def test_buffers_of_clients_that_have_nothing_more_to_say_are_given_back(hostile: Hostile, topic: str) -> None:
    """Eighty clients, one large request each, and then silence; the next large request needs the room."""
    frame = request_frame(produce_request(topic, batch_of(b"x" * 900_000), acks=1), PRODUCE_VERSION, 1, "hostile")
    for client in hostile.crowd(80):
        client.send(frame)
        assert client.frame() is not None
    began = time.monotonic()
    assert hostile().produce(topic, batch_of(b"y" * 900_000)).error_code == 0
    assert time.monotonic() - began < 1


def test_more_large_requests_at_once_than_there_is_room_for_are_all_answered(hostile: Hostile, topic: str) -> None:
    """All send the first part before any sends the rest, so that all want to grow at the same time."""
    frame = request_frame(produce_request(topic, batch_of(b"x" * 1_000_000), acks=1), PRODUCE_VERSION, 1, "hostile")
    first, rest = frame[:300_000], frame[300_000:]
    clients = hostile.crowd(300, timeout_s=30)
    for part in (first, rest):
        _run([threading.Thread(target=client.send, args=(part,)) for client in clients])
    answers = {client.frame() for client in clients}  # each has an offset of its own
    assert None not in answers
    assert len(answers) == len(clients)
    assert hostile().fetch(topic).responses[0].partitions[0].high_watermark == len(clients)


def _run(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# ---- connections by the thousand


def test_two_thousand_connections_that_come_and_go_leave_nothing(hostile: Hostile, broker: BrokerProcess) -> None:
    watcher = hostile()
    hello = request_frame(ApiVersionsRequest(), 0, 1, "hostile")
    before, before_mb = descriptors(broker), broker.resident_mb()
    for number in range(2_000):
        client = RawClient(broker.port)
        if number % 4 == 1:
            client.send(hello)
        elif number % 4 == 2:
            client.send(hello[:9])
        elif number % 4 == 3:  # a reset instead of a goodbye
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    assert settled(lambda: descriptors(broker) <= before + 2)
    assert watcher.ask(ApiVersionsRequest(), 0).error_code == 0
    assert broker.resident_mb() < before_mb + 8


def test_a_broker_out_of_descriptors_waits_for_some_and_does_not_spin(
    new_broker: Callable[..., BrokerProcess],
) -> None:
    broker = new_broker(flush="os")
    old_friend = RawClient(broker.port)
    old_friend.create_topic("old")
    limit = descriptors(broker) + 20
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (limit, limit))
    crowd = [RawClient(broker.port) for _ in range(60)]
    before = _processor_s(broker)
    time.sleep(1)
    assert _processor_s(broker) - before < 0.3 * slowness()
    assert old_friend.ask(ApiVersionsRequest(), 0).error_code == 0
    for client in crowd:
        client.close()
    assert broker.log.read_text().count("could not be accepted") < 50
    stranger = RawClient(broker.port)
    assert stranger.ask(ApiVersionsRequest(), 0).error_code == 0
    assert "Traceback" not in broker.log.read_text()


def _processor_s(broker: BrokerProcess) -> float:
    with open(f"/proc/{broker.pid}/schedstat") as file:
        return int(file.read().split()[0]) / 1e9
