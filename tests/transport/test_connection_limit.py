"""How many connections there may be, and how other brokers get one all the same."""

from __future__ import annotations

import pytest

from penstock.protocol.framing import request_frame
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.transport import connection_limit
from penstock.transport.connection_limit import ConnectionLimit
from penstock.transport.listener import Listener
from tests.fakes import eventually, framed, request, turns, until
from tests.transport.conftest import Listening, Peer

BROKER, CLIENT = "broker", "client"


def hello(client_id: str | None) -> bytes:
    return request_frame(ApiVersionsRequest(), 3, 1, client_id)


async def answered(peer: Peer, client_id: str = BROKER) -> bool:
    await peer.send(hello(client_id))
    return framed(await peer.receive_frame()) == hello(client_id)


def limited(most: int) -> ConnectionLimit:
    return ConnectionLimit(lambda: most, lambda client_id: client_id == BROKER)


@pytest.fixture
async def full(listening: Listening) -> Listener:
    """A listener between brokers whose one place is a client's."""
    listener = listening.start(limit=limited(1), for_brokers=True)
    assert await answered(await listening.connect(), CLIENT)
    return listener


async def test_a_broker_is_served_though_clients_have_every_place(listening: Listening, full: Listener) -> None:
    broker = await listening.connect()
    await broker.send(hello(BROKER) + hello(BROKER))
    for _ in range(2):
        assert framed(await broker.receive_frame()) == hello(BROKER)
    assert await answered(broker, CLIENT), "who has shown it once is not asked again"
    assert len(full.connections) == 2


@pytest.mark.parametrize("frame", [hello(CLIENT), hello(None), hello(""), framed(request("n")), framed(bytes(8))])
async def test_a_client_loses_a_reserved_place_with_its_first_request(
    listening: Listening, full: Listener, caplog: pytest.LogCaptureFixture, frame: bytes
) -> None:
    client = await listening.connect()
    await client.send(frame + hello(BROKER))
    assert await client.closed()
    assert len(full.connections) == 1
    assert len(listening.router.frames) == 1, "nothing of it was carried out"
    assert caplog.messages == ["refused a connection: max.connections is reached"]


async def test_who_says_nothing_loses_a_reserved_place_and_a_broker_keeps_it(
    listening: Listening, full: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limit, "SHOWN_WITHIN_S", 0.05)
    silent, broker = await listening.connect(), await listening.connect()
    assert await answered(broker)
    assert await silent.closed()
    later = await listening.connect()
    assert await later.closed()
    assert await answered(broker)


async def test_the_reserve_is_bounded_and_a_newcomer_takes_the_place_of_the_silent(
    listening: Listening, full: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limit, "RESERVED", 3)
    known = await listening.connect()
    assert await answered(known)
    silent = [await listening.connect() for _ in range(10)]
    broker = await listening.connect()
    assert await answered(broker)
    await until(lambda: len(full.connections) == 4)
    for peer in silent[:-1]:
        assert await peer.closed()
    another = await listening.connect()
    assert await answered(another)
    assert await (await listening.connect()).closed(), "the reserve is the brokers' own by now"
    assert [await answered(peer) for peer in (known, broker, another)] == [True] * 3


async def test_a_place_that_is_given_back_is_for_anyone(listening: Listening, full: Listener) -> None:
    broker = await listening.connect()
    assert await answered(broker)
    listening.peers[0].close()
    await until(lambda: len(full.connections) == 1)
    assert await answered(await listening.connect(), CLIENT)
    broker.close()
    await until(lambda: len(full.connections) == 1)
    client = await listening.connect()
    await client.send(hello(CLIENT))
    assert await client.closed(), "what was reserved stays reserved"


async def test_all_listeners_share_the_limit_and_one_has_the_reserve(listening: Listening) -> None:
    limit = limited(2)
    inside = listening.start(limit=limit, for_brokers=True)
    port = listening.port
    outside = listening.start(limit=limit)
    clients = [await listening.connect() for _ in range(2)]
    await until(lambda: len(outside.connections) == 2)
    refused = await listening.connect()
    assert await refused.closed()
    assert await answered(await listening.connect(port))
    clients[0].close()
    await until(lambda: len(outside.connections) == 1)
    assert await answered(await listening.connect(port), CLIENT)
    await turns()
    assert (len(inside.connections), len(outside.connections)) == (2, 1)


async def test_a_broker_that_stands_alone_keeps_no_reserve(listening: Listening) -> None:
    listener = listening.start(limit=ConnectionLimit(lambda: 1), for_brokers=True)
    await listening.connect()
    assert await (await listening.connect()).closed()
    await eventually(lambda: len(listener.connections) == 1)
