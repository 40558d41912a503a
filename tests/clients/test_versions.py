"""Every API in every version that is announced, and what happens to those that are not."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.protocol.errors import ErrorCode
from penstock.protocol.framing import read_response
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.schema import Struct
from penstock.server.routing import HANDLERS
from tests.clients.conftest import PEER
from tests.clients.conversations import CONVERSATIONS, Place
from tests.clients.steps import create_topic, wait_until
from tests.clients.wire import ClosedByBroker, Wire, batch_of

PRODUCE, FIND_COORDINATOR, API_VERSIONS, INIT_PRODUCER_ID = 0, 10, 18, 22
REQUESTS = {key: route.request for key, route in HANDLERS.items()}
EVERY_VERSION = [
    (key, version)
    for key, request in sorted(REQUESTS.items())
    for version in range(request.versions.first, request.versions.last + 1)
]


@pytest.fixture(scope="module")
def place(bootstrap: str) -> Place:
    topic = create_topic(bootstrap, f"versions-{uuid.uuid4().hex[:10]}")
    with Wire(bootstrap) as wire:
        assert wire.produce(topic, batch_of(b"first")).error_code == ErrorCode.NONE
        place = Place(topic, wire.topic_id(topic))
        # The first who asks for a coordinator brings them into being.
        wait_until(lambda: not list(errors_in(CONVERSATIONS[FIND_COORDINATOR](wire, 4, place))))
        return place


def errors_in(value: Any) -> Iterator[ErrorCode]:
    if isinstance(value, list):
        for element in value:
            yield from errors_in(element)
    elif isinstance(value, Struct):
        for name in value.fields:
            if name.endswith("error_code") and getattr(value, name):
                yield ErrorCode(getattr(value, name))
            yield from errors_in(getattr(value, name))


def test_there_is_a_conversation_for_every_api() -> None:
    assert CONVERSATIONS.keys() == REQUESTS.keys()


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION, ids=lambda value: str(value))
def test_a_sane_request_is_answered_without_error(key: int, version: int, wire: Wire, place: Place) -> None:
    response = CONVERSATIONS[key](wire, version, place)
    assert list(errors_in(response)) == []


def test_the_announced_versions_are_those_that_are_served(wire: Wire) -> None:
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    announced = {api.key: api for api in wire.ask(request, 4).api_keys}
    for key, request in REQUESTS.items():
        first = 0 if key == PRODUCE else request.versions.first
        last = 5 if key == INIT_PRODUCER_ID else request.versions.last  # Kafka calls version 6 unstable (KIP-939)
        found = (announced[key].min_version, announced[key].max_version)
        assert found == (first, last), f"api key {key}"
    if not PEER:
        assert announced.keys() == REQUESTS.keys()


@pytest.mark.parametrize("version", [5, 77, 32767])
def test_an_unknown_version_of_api_versions_is_answered_in_the_first(version: int, wire: Wire) -> None:
    header = struct.pack(">hhih", API_VERSIONS, version, 99, -1)
    frame = header + b"\0" + b"\x02a\x02b\0"
    wire.sock.sendall(struct.pack(">i", len(frame)) + frame)
    correlation_id, response = read_response(ApiVersionsResponse, wire.receive_frame(), 0)
    assert correlation_id == 99
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    (own,) = [api for api in response.api_keys if api.key == API_VERSIONS]
    assert (own.min_version, own.max_version) == (0, 4)
    # The connection lives: the client asks again in a version it has learned of.
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    assert wire.ask(request, own.max_version).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_versions_of_produce_are_announced_but_refused(version: int, wire: Wire, place: Place) -> None:
    topic = place.topic.encode()
    body = struct.pack(">hiih", 1, 1000, 1, len(topic)) + topic + struct.pack(">iii", 1, 0, 0)
    frame = struct.pack(">hhih", PRODUCE, version, 1, -1) + body
    wire.sock.sendall(struct.pack(">i", len(frame)) + frame)
    with pytest.raises((ClosedByBroker, ConnectionResetError)):
        wire.receive_frame()


@pytest.mark.parametrize(("key", "version"), [(1, 3), (1, 99), (3, 99), (999, 0), (-1, 0), (12, -1)])
def test_what_is_not_announced_closes_the_connection_and_no_other(
    key: int, version: int, wire: Wire, bootstrap: str
) -> None:
    frame = struct.pack(">hhih", key, version, 1, -1) + bytes(20)
    with Wire(bootstrap) as wrong:
        wrong.sock.sendall(struct.pack(">i", len(frame)) + frame)
        with pytest.raises((ClosedByBroker, ConnectionResetError)):
            wrong.receive_frame()
    assert wire.ask(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE
