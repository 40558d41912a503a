"""Every test of this room runs on both event loops: they order their callbacks differently."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import uvloop

from penstock.transport.cold_reads import ColdReads
from penstock.transport.connection import Connection
from penstock.transport.connection_limit import ConnectionLimit
from penstock.transport.listener import Listener
from penstock.transport.memory import MemoryBudget
from penstock.transport.turn import Turn
from tests.fakes import TIMEOUT_S, FakeRouter

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
FRAME_MAX = 32 * 1024 * 1024


def pytest_asyncio_loop_factories(config: Any, item: Any) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return LOOPS


class Peer:
    """The other end of a connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        self._loop = loop
        self.sock = sock
        sock.setblocking(False)

    async def send(self, data: bytes) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await self._loop.sock_sendall(self.sock, data)

    def send_now(self, data: bytes) -> int:
        """As much as the socket takes, before the broker's end gets a chance to read."""
        try:
            return self.sock.send(data)
        except BlockingIOError:
            return 0

    async def receive(self, size: int) -> bytes:
        data = bytearray()
        async with asyncio.timeout(TIMEOUT_S):
            while len(data) < size and (got := await self._loop.sock_recv(self.sock, min(size - len(data), 1 << 16))):
                data += got
        return bytes(data)

    async def receive_frame(self) -> bytes:
        return await self.receive(int.from_bytes(await self.receive(4), "big"))

    async def closed(self) -> bool:
        """Whether the connection ends, with nothing more before its end."""
        try:
            return await self.receive(1) == b""
        except ConnectionResetError:
            return True

    def has_data(self) -> bool:
        try:
            return bool(self.sock.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return False

    def close(self) -> None:
        self.sock.close()


class Wires:
    """Connections over socket pairs, with one turn, one budget and one fake router."""

    def __init__(self, loop: asyncio.AbstractEventLoop, memory_limit: int = 64 * 1024 * 1024) -> None:
        self.loop = loop
        self.clock_ns: Callable[[], int] = time.time_ns
        self.turn = Turn(loop, lambda: self.clock_ns())
        self.memory = MemoryBudget(memory_limit)
        self.cold_reads = ColdReads(loop)
        self.router = FakeRouter()
        self.closed: list[Connection] = []
        self._all: list[tuple[Connection, Peer]] = []

    def connect(self, *, buffer: int | None = None, frame_max: int = FRAME_MAX) -> tuple[Connection, Peer]:
        ours, theirs = socket.socketpair()
        if buffer is not None:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        ours.setblocking(False)
        connection = Connection(
            self.loop, ours, host="peer", listener="TEST", turn=self.turn, memory=self.memory,
            cold_reads=self.cold_reads, dispatch=self.router.dispatch, frame_max=frame_max, on_close=self.closed.append,
        )  # fmt: skip
        peer = Peer(self.loop, theirs)
        self._all.append((connection, peer))
        return connection, peer

    def close(self) -> None:
        for connection, peer in self._all:
            connection.close()
            peer.close()
        self.turn.flush()


@pytest.fixture
async def wires() -> AsyncIterator[Wires]:
    wires = Wires(asyncio.get_running_loop())
    yield wires
    wires.close()


class Listening:
    """Listeners with one turn, one budget and one fake router."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.turn = Turn(loop)
        self.memory = MemoryBudget(1 << 26)
        self.cold_reads = ColdReads(loop)
        self.router = FakeRouter()
        self.peers: list[Peer] = []
        self._listeners: list[Listener] = []

    def start(self, host: str = "127.0.0.1", **given: Any) -> Listener:
        options: dict[str, Any] = {
            "frame_max": 1 << 25,
            "limit": ConnectionLimit(lambda: 100),
            "idle_ms_max": 60_000,
            **given,
        }
        listener = Listener(
            self.loop,
            name="TEST",
            turn=self.turn,
            memory=self.memory,
            cold_reads=self.cold_reads,
            dispatch=self.router.dispatch,
            **options,
        )
        self.host, self.port = listener.start(host, 0)
        self._listeners.append(listener)
        return listener

    async def connect(self, port: int | None = None) -> Peer:
        """To the last one that was started, unless a port is given."""
        sock = socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET)
        sock.setblocking(False)
        await self.loop.sock_connect(sock, (self.host, port or self.port))
        self.peers.append(Peer(self.loop, sock))
        return self.peers[-1]

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        for peer in self.peers:
            peer.close()
        self.turn.flush()


@pytest.fixture
async def listening() -> AsyncIterator[Listening]:
    listening = Listening(asyncio.get_running_loop())
    yield listening
    listening.close()
