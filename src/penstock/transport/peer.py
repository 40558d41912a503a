"""A connection to another broker: requests out, responses in, in the order of the requests.

It is made when something is asked and there is none. Whoever asks is answered in any case: with the response, or with
None when the other broker could not be reached, went away, did not answer in time or sent something else. What to do
then is the asker's to decide; here nothing is tried twice.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from penstock.protocol.framing import read_response, request_frame
from penstock.protocol.schema import Message
from penstock.protocol.wire import DecodeError
from penstock.transport import tcp
from penstock.transport.connection import Connection
from penstock.transport.memory import MemoryBudget
from penstock.transport.turn import Turn

log = logging.getLogger("penstock.transport")

CONNECT_S_MAX = 3.0
PAUSE_S_MAX = 2.0  # within an answer that takes longer than it should
FRAME_MAX = 160 * 1024 * 1024  # the largest batch that any broker takes, and what else is in the answer to a fetch
MEMORY = 64 * 1024 * 1024
WAITING_MAX = 10_000
ABORT = struct.pack("ii", 1, 0)

Answered = Callable[[Any], None]


class Address(NamedTuple):
    host: str
    port: int


class Exchange(Protocol):
    """A request that writes itself, and knows how to read what is answered."""

    def frame(self, correlation_id: int, client_id: str) -> bytes: ...

    def read(self, frame: memoryview) -> tuple[int, Any]:
        """The correlation id and what `answered` is given. Raises DecodeError."""


class Peer(Protocol):
    def ask(
        self, request: Message, version: int, response: type[Message], answered: Answered, timeout_s: float
    ) -> None: ...

    def exchange(self, what: Exchange, answered: Answered, timeout_s: float) -> None: ...

    def close(self) -> None: ...


class Network(Protocol):
    """How a broker reaches others. `address` is asked before every connection: a broker may have moved."""

    def peer(self, address: Callable[[], Address | None]) -> Peer: ...


class _Messages:
    """The exchange of two messages."""

    __slots__ = ("_request", "_response", "_version")

    def __init__(self, request: Message, version: int, response: type[Message]) -> None:
        self._request = request
        self._version = version
        self._response = response

    def frame(self, correlation_id: int, client_id: str) -> bytes:
        return request_frame(self._request, self._version, correlation_id, client_id)

    def read(self, frame: memoryview) -> tuple[int, Message]:
        return read_response(self._response, frame, self._version)


class _Waiting(NamedTuple):
    correlation_id: int
    read: Callable[[memoryview], tuple[int, Any]]
    answered: Answered
    deadline: float  # by the clock of the loop


class TcpPeer:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        turn: Turn,
        client_id: str,
        address: Callable[[], Address | None],
        connect: Callable[[Address], Awaitable[socket.socket]] | None = None,
    ) -> None:
        """`connect` makes the connection in another way than over TCP, in tests."""
        self._loop = loop
        self._turn = turn
        self._client_id = client_id
        self._address = address
        self._connect_to = connect if connect is not None else self._open
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._unsent: list[bytes] = []  # until there is a connection
        self._waiting: deque[_Waiting] = deque()
        self._correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def ask(
        self, request: Message, version: int, response: type[Message], answered: Answered, timeout_s: float
    ) -> None:
        self.exchange(_Messages(request, version, response), answered, timeout_s)

    def exchange(self, what: Exchange, answered: Answered, timeout_s: float) -> None:
        if self._closed or len(self._waiting) >= WAITING_MAX:
            self._loop.call_soon(answered, None)
            return
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        frame = what.frame(self._correlation_id, self._client_id)
        waiting = _Waiting(self._correlation_id, what.read, answered, self._loop.time() + timeout_s)
        self._waiting.append(waiting)
        if self._timer is not None and self._timer.when() > waiting.deadline:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(waiting.deadline, self._look_at_clock)
        if self._connection is not None:
            self._send(frame)
            return
        self._unsent.append(frame)
        if self._connecting is None:
            self._connecting = self._loop.create_task(self._connect())

    def _send(self, frame: bytes) -> None:
        assert self._connection is not None
        self._connection.send_parts([frame])
        self._turn.schedule()

    # ---- the connection

    async def _connect(self) -> None:
        try:
            sock = await asyncio.wait_for(self._connected(), CONNECT_S_MAX)
        except (TimeoutError, OSError) as error:
            log.debug("no connection to a broker: %s", error)
            if self._connecting is asyncio.current_task():
                self._connecting = None
                self._lost()
            return
        if self._connecting is not asyncio.current_task():  # given up in the moment when it was made
            sock.close()
            return
        self._connecting = None
        self._connection = Connection(
            self._loop, sock, host="", listener="", turn=self._turn, memory=MemoryBudget(MEMORY),
            dispatch=self._received, frame_max=FRAME_MAX, on_close=lambda connection: self._lost(),
        )  # fmt: skip
        unsent, self._unsent = self._unsent, []
        for frame in unsent:
            self._send(frame)

    async def _connected(self) -> socket.socket:
        address = self._address()
        if address is None:
            raise OSError(errno.EHOSTUNREACH, "its address is not known")
        return await self._connect_to(address)

    async def _open(self, address: Address) -> socket.socket:
        found = await self._loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, target = found[0]
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            tcp.set_options(sock, str(target[0]))
            await self._loop.sock_connect(sock, target)
        except BaseException:
            sock.close()
            raise
        return sock

    def _received(self, connection: Connection, data: bytearray, view: memoryview, start: int, stop: int) -> bool:
        if not self._waiting:
            connection.close()
            return False
        waiting = self._waiting.popleft()
        try:
            correlation_id, message = waiting.read(view[start + 4 : stop])
            if correlation_id != waiting.correlation_id:
                raise DecodeError(f"an answer to request {correlation_id} where {waiting.correlation_id} was due")
        except DecodeError as error:
            log.error("closed the connection to a broker: %s", error)
            self._waiting.appendleft(waiting)
            connection.close()
            return False
        try:
            waiting.answered(message)
        except Exception:
            log.exception("an answer of another broker was not taken")
        return True

    def _lost(self) -> None:
        """Everyone who waits is told."""
        self._connection = None
        self._unsent.clear()
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            try:
                each.answered(None)
            except Exception:
                log.exception("a lost connection to a broker was not taken")

    def _look_at_clock(self) -> None:
        """Answers come in order, so one that is late holds up all behind it: the connection is given up."""
        self._timer = None
        now = self._loop.time()
        if any(each.deadline <= now for each in self._waiting):
            if self._connection is not None and self._connection.active:
                # Something came since this was asked last: a large answer over a slow link.
                self._connection.active = False
                self._timer = self._loop.call_at(now + PAUSE_S_MAX, self._look_at_clock)
                return
            if self._connection is not None:
                # Abruptly: what was given up must not arrive when a network heals, behind its own repetition.
                self._connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
                self._connection.close()
            elif self._connecting is not None:
                self._connecting.cancel()
                self._connecting = None
                self._lost()
        if self._waiting and self._timer is None:
            self._timer = self._loop.call_at(min(each.deadline for each in self._waiting), self._look_at_clock)

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._connection is not None:
            self._connection.close()
        else:
            self._lost()


class TcpNetwork:
    def __init__(self, loop: asyncio.AbstractEventLoop, turn: Turn, client_id: str) -> None:
        self._loop = loop
        self._turn = turn
        self._client_id = client_id

    def peer(self, address: Callable[[], Address | None]) -> Peer:
        return TcpPeer(self._loop, self._turn, self._client_id, address)
