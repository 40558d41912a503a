"""A connection to another broker, over real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.cluster.broker_settings import REQUEST_BYTES_MAX
from penstock.protocol.framing import response_frame
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.transport import peer
from penstock.transport.peer import FRAME_MAX, Address, TcpPeer
from penstock.transport.turn import Turn
from tests.fakes import turns, until
from tests.transport.conftest import Peer


class Other:
    """The other broker: it accepts one connection, and the test says what it answers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setblocking(False)
        address = Address(*self._socket.getsockname())
        self.peer = TcpPeer(loop, Turn(loop), "penstock", lambda: address)
        self.answers: list[Any] = []

    async def ask(self) -> None:
        self.peer.ask(ApiVersionsRequest(), 3, ApiVersionsResponse, self.answers.append, 60.0)
        accepted, _ = await self._loop.sock_accept(self._socket)
        self.end = Peer(self._loop, accepted)
        assert await self.end.receive_frame()

    def close(self) -> None:
        self.peer.close()
        self.end.close()
        self._socket.close()


@pytest.fixture
async def other() -> AsyncIterator[Other]:
    other = Other(asyncio.get_running_loop())
    await other.ask()
    yield other
    other.close()


async def test_the_largest_batch_that_a_broker_takes_can_be_answered_to_a_follower(other: Other) -> None:
    await other.end.send((REQUEST_BYTES_MAX + (1 << 24)).to_bytes(4, "big") + bytes(1000))
    await turns()
    assert other.answers == [], "it waits for the rest"


async def test_an_answer_without_end_is_not_waited_for(other: Other) -> None:
    await other.end.send((FRAME_MAX + 1).to_bytes(4, "big") + bytes(1000))
    await until(lambda: bool(other.answers))
    assert other.answers == [None]
    assert await other.end.closed()


async def test_an_answer_that_is_still_arriving_is_waited_for_and_one_that_stopped_is_not(
    other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer, "PAUSE_S_MAX", 0.1)
    answers: list[Any] = []
    for number in (2, 3):
        other.peer.ask(ApiVersionsRequest(), 3, ApiVersionsResponse, answers.append, 0.01)
        assert await other.end.receive_frame()
        frame = b"".join(response_frame(ApiVersionsResponse(), 3, number))
        if number == 2:
            await other.end.send(b"".join(response_frame(ApiVersionsResponse(), 3, 1)))
        pieces = [frame[at : at + 1] for at in range(len(frame))]
        for piece in pieces[: -1 if number == 3 else None]:
            await other.end.send(piece)
            await asyncio.sleep(0.02)
    await until(lambda: len(answers) == 2)
    assert isinstance(answers[0], ApiVersionsResponse)
    assert answers[1] is None
