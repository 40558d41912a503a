"""A network of hosts: who can reach whom, and how long it takes.

A link that is cut swallows nothing: as with TCP, what was sent arrives once the link is back, if the connection still
lives by then. Whoever waits for an answer gives up by its own time-outs. A process that is killed loses its
connections, and those at their other ends are told as soon as the link allows.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import random
import socket
from collections.abc import Callable, Iterable
from typing import Any, cast

from penstock.transport.listener import Listener
from penstock.transport.peer import Address, Peer, TcpPeer
from penstock.transport.turn import Turn
from tests.simulation.loop import VirtualLoop
from tests.simulation.process import PROCESS
from tests.simulation.sockets import SimulatedServerSocket, SimulatedSocket

DELAY_S = (0.0001, 0.001)
RETRY_S = 0.1  # from when a link is back until the next attempt crosses it
FIRST_PORT = 20_000


class SimulatedNetwork:
    def __init__(self, loop: VirtualLoop, seed: int = 0, delay_s: tuple[float, float] = DELAY_S) -> None:
        self._loop = loop
        self._random = random.Random(seed)
        self._delays_s = delay_s
        self._listening: dict[Address, SimulatedServerSocket] = {}
        self._cut: set[tuple[str, str]] = set()
        self._unheard: list[asyncio.Future[None]] = []  # who tries to reach a host across a link that is cut
        self._slow: dict[tuple[str, str], float] = {}
        self._sockets: dict[SimulatedSocket, None] = {}
        self._ports = itertools.count(FIRST_PORT)

    # ---- links

    def cut(self, one: str, other: str, *, both_ways: bool = True) -> None:
        """From now on nothing that `one` sends reaches `other`, and nothing the other way either, unless told so."""
        self._set_link(one, other, is_cut=True)
        if both_ways:
            self._set_link(other, one, is_cut=True)

    def heal(self, one: str, other: str) -> None:
        self._set_link(one, other, is_cut=False)
        self._set_link(other, one, is_cut=False)

    def isolate(self, host: str, others: Iterable[str]) -> None:
        for other in others:
            if other != host:
                self.cut(host, other)

    def heal_all(self) -> None:
        for one, other in sorted(self._cut):
            self._set_link(one, other, is_cut=False)

    def slow_down(self, one: str, other: str, seconds: float) -> None:
        """Each way takes so much longer."""
        self._slow[one, other] = self._slow[other, one] = seconds

    def tear(self, one: str, other: str) -> None:
        """Breaks every connection between the two; new ones can be made."""
        for sock in list(self._sockets):
            if sock.peer is not None and {sock.host, sock.peer.host} == {one, other}:
                sock.tear()

    def _set_link(self, one: str, other: str, *, is_cut: bool) -> None:
        (self._cut.add if is_cut else self._cut.discard)((one, other))
        unheard, self._unheard = self._unheard, []
        for waiting in unheard:
            if not waiting.done():
                waiting.set_result(None)
        for sock in list(self._sockets):
            if sock.peer is not None and (sock.host, sock.peer.host) == (one, other):
                sock.outgoing.hold() if is_cut else sock.outgoing.release()

    def reaches(self, one: str, other: str) -> bool:
        return (one, other) not in self._cut

    def _delay(self, one: str, other: str) -> Callable[[], float]:
        return lambda: self._random.uniform(*self._delays_s) + self._slow.get((one, other), 0.0)

    # ---- connections

    def listen(self, host: str, port: int) -> tuple[SimulatedServerSocket, Address]:
        address = Address(host, port or next(self._ports))
        known = self._listening.get(address)
        if known is not None and not known.closed:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        server = self._listening[address] = SimulatedServerSocket(self._loop)
        process = PROCESS.get()
        if process is not None:
            process.on_kill(server.close)
        return server, address

    async def connect(self, host: str, address: Address) -> SimulatedSocket:
        """A hand-shake needs both ways; it is tried for as long as the caller waits."""
        there, back = self._delay(host, address.host), self._delay(address.host, host)
        await asyncio.sleep(there() + back())
        while not (self.reaches(host, address.host) and self.reaches(address.host, host)):
            healed = self._loop.create_future()
            self._unheard.append(healed)
            await healed
            await asyncio.sleep(RETRY_S)
        server = self._listening.get(address)
        if server is None or server.closed:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        ours = SimulatedSocket(self._loop, host, there, self._random)
        theirs = SimulatedSocket(self._loop, address.host, back, self._random)
        ours.peer, theirs.peer = theirs, ours
        for sock in [sock for sock in self._sockets if sock.closed and sock.outgoing.is_empty]:
            del self._sockets[sock]
        self._sockets.update({ours: None, theirs: None})
        process = PROCESS.get()
        if process is not None:
            process.on_kill(ours.abort)
        server.offer(theirs, (host, next(self._ports)))
        return ours

    def host(self, name: str, turn: Turn, client_id: str = "") -> SimulatedHost:
        return SimulatedHost(self, self._loop, name, turn, client_id or name)


class SimulatedHost:
    """Implements `Network`: how the broker on one host reaches others."""

    def __init__(self, network: SimulatedNetwork, loop: VirtualLoop, name: str, turn: Turn, client_id: str) -> None:
        self._network = network
        self._loop = loop
        self._name = name
        self._turn = turn
        self._client_id = client_id

    def peer(self, address: Callable[[], Address | None]) -> Peer:
        async def connect(to: Address) -> socket.socket:
            return cast(socket.socket, await self._network.connect(self._name, to))

        return TcpPeer(self._loop, self._turn, self._client_id, address, connect)


class SimulatedListener(Listener):
    """The real one, but for where it listens."""

    def __init__(self, network: SimulatedNetwork, loop: VirtualLoop, **options: Any) -> None:
        super().__init__(loop, **options)
        self._network = network

    def start(self, host: str, port: int, *, hold: bool = False) -> tuple[str, int]:
        server, address = self._network.listen(host, port)
        self._socket = cast(socket.socket, server)
        if not hold:
            self.go_on()
        self._sweeper = self._loop.call_later(self._sweep_s, self._sweep)
        process = PROCESS.get()
        if process is not None:
            process.on_kill(self._abort)
        return address

    def _abort(self) -> None:
        for connection in list(self.connections):
            cast(SimulatedSocket, connection.sock).abort()
