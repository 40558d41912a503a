"""Bytes that are no request: wrong lengths, other protocols, unknown APIs, requests that stop in the middle."""

from __future__ import annotations

import socket
import struct
import time

import pytest

from penstock.protocol.apis import REQUESTS
from penstock.protocol.framing import request_frame
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.metadata import MetadataRequest
from penstock.protocol.schema import Message
from tests.brokers import BrokerProcess
from tests.hostile.clients import RawClient, batch_of, fetch_request, header, produce_request, sized
from tests.hostile.conftest import Hostile
from tests.protocol.random_messages import random_messages

TLS_CLIENT_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(193))
HTTP_GET = b"GET / HTTP/1.1\r\nHost: localhost:9092\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n"
UNSUPPORTED_VERSION = 35


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 1, 2, 3, 4, 5, 6, 7])
def test_a_length_below_that_of_a_header_closes_the_connection(hostile: Hostile, length: int) -> None:
    client = hostile()
    client.send(struct.pack(">i", length) + b"\0" * 64)
    assert client.is_closed()


@pytest.mark.parametrize("length", [32 * 1024 * 1024 + 1, 2**30, 2**31 - 1, 0x7F454C46])
def test_a_length_beyond_the_limit_closes_the_connection_before_anything_is_read(hostile: Hostile, length: int) -> None:
    client = hostile()
    client.send(struct.pack(">i", length))
    assert client.is_closed()


@pytest.mark.parametrize(
    "greeting", [HTTP_GET, TLS_CLIENT_HELLO, b"SSH-2.0-OpenSSH_9.6\r\n", b"\0" * 4096, b"\xff" * 4096]
)
def test_other_protocols_are_hung_up_on(hostile: Hostile, greeting: bytes) -> None:
    client = hostile()
    client.send(greeting)
    assert client.is_closed()


@pytest.mark.parametrize("size", range(8, 24))
def test_frames_of_zeros_and_ones_that_are_too_short_to_be_a_request_close_the_connection(
    hostile: Hostile, size: int
) -> None:
    for byte in (b"\xff", b"\x7f"):
        client = hostile()
        client.send(sized(byte * size))
        assert client.is_closed()


@pytest.mark.parametrize("api_key", [4, 5, 6, 7, 17, 36, 62, 999, 32767, -1, -32768])
def test_an_api_that_nobody_serves_closes_the_connection(hostile: Hostile, api_key: int) -> None:
    for version in (0, 1, 32767, -1, -32768):
        client = hostile()
        client.send(sized(header(api_key, version) + b"\0" * 16))
        assert client.is_closed(), version


@pytest.mark.parametrize("cls", REQUESTS.values(), ids=lambda cls: cls.__name__)
def test_versions_outside_an_apis_range_are_refused(hostile: Hostile, cls: type[Message]) -> None:
    first, last = cls.versions
    for version in {-32768, -1, first - 1, last + 1, last + 2, 127, 32767} - set(range(first, last + 1)):
        client = hostile()
        client.send(sized(header(cls.api_key, version, tags=b"\0" * (version >= 0)) + b"\0" * 32))
        frame = client.frame()
        if cls is ApiVersionsRequest:  # whoever asks is told in version 0 what there is (KIP-511)
            assert frame is not None
            assert int.from_bytes(frame[4:6], "big") == UNSUPPORTED_VERSION
        else:
            assert frame is None, f"version {version} was answered"
        client.close()


def test_after_a_refused_version_of_api_versions_the_connection_goes_on(hostile: Hostile) -> None:
    client = hostile()
    client.send(sized(header(ApiVersionsRequest.api_key, 99, tags=b"\0") + b"\0"))
    assert client.frame() is not None
    answer = client.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
    assert isinstance(answer, ApiVersionsResponse)
    assert answer.error_code == 0


def test_frames_behind_a_bad_one_are_not_carried_out(hostile: Hostile, topic: str) -> None:
    client = hostile()
    bad = sized(header(3, 9, tags=b"\0") + b"\xff" * 20)
    client.send(bad + request_frame(produce_request(topic, batch_of(b"late")), 11, 1, "hostile"))
    assert client.is_closed()
    partition = hostile().fetch(topic).responses[0].partitions[0]
    assert partition.high_watermark == 0


# ---- requests that stop in the middle


def _requests(topic: str) -> list[bytes]:
    """Of each API one whole frame in its newest version, the hot ones with something in them."""
    frames = [
        request_frame(produce_request(topic, batch_of(b"never", b"stored")), 11, 1, "hostile"),
        request_frame(fetch_request(topic), 12, 1, "hostile"),
    ]
    for cls in REQUESTS.values():
        message = min(random_messages(cls, cls.versions.last, 8)[1:], key=_size)
        frames.append(request_frame(message, cls.versions.last, 1, "hostile"))
    return frames


def _size(message: Message) -> int:
    return len(request_frame(message, message.versions.last, 1, None))


def test_a_request_cut_off_at_any_byte_and_hung_up_on_leaves_nothing_behind(
    hostile: Hostile, broker: BrokerProcess, topic: str
) -> None:
    watcher = hostile()
    for frame in _requests(topic):
        for cut in _cuts(len(frame)):
            client = RawClient(broker.port)
            client.send(frame[:cut])
            client.close()
    assert watcher.fetch(topic).responses[0].partitions[0].high_watermark == 0


def _cuts(size: int) -> list[int]:
    """Every byte of what is short, and of what is long the beginning and some places behind it."""
    return [*range(min(size, 96)), *range(96, size, max((size - 96) // 12, 1))]


def test_a_request_cut_off_at_any_byte_is_waited_for(hostile: Hostile, broker: BrokerProcess, topic: str) -> None:
    """The bytes that were missing come after all, once the same was done at every other byte."""
    frame = request_frame(MetadataRequest(topics=[]), 12, 1, "hostile")
    clients = [RawClient(broker.port) for _ in range(1, len(frame))]
    for cut, client in enumerate(clients, 1):
        client.send(frame[:cut])
    assert hostile().fetch(topic).responses
    for cut, client in enumerate(clients, 1):
        client.send(frame[cut:])
        assert client.frame() is not None, cut
        client.close()


@pytest.mark.parametrize("cls", REQUESTS.values(), ids=lambda cls: cls.__name__)
def test_a_frame_whose_length_is_right_but_whose_body_ends_early_is_refused(
    hostile: Hostile, broker: BrokerProcess, cls: type[Message]
) -> None:
    version = cls.versions.last
    message = min(random_messages(cls, version, 8)[1:], key=_size)
    whole = request_frame(message, version, 1, "hostile")[4:]
    watcher = hostile()
    for cut in range(8, min(len(whole), 64)):
        client = RawClient(broker.port)
        client.send(sized(whole[:cut]))
        client.sock.shutdown(socket.SHUT_WR)
        client.frame()  # an error, or the end; never silence
        client.close()
    assert watcher.ask(ApiVersionsRequest(), 0).error_code == 0


def test_one_byte_at_a_time_is_as_good_as_a_whole_request(hostile: Hostile) -> None:
    """A byte every hundredth of a second, which stands for a byte a second."""
    client = hostile()
    for byte in request_frame(ApiVersionsRequest(), 0, 1, "hostile"):
        client.send(bytes([byte]))
        time.sleep(0.01)
    assert client.frame() is not None
