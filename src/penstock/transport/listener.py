"""Accepts connections and keeps their number and idleness bounded."""

from __future__ import annotations

import asyncio
import logging
import socket

from penstock.transport import tcp
from penstock.transport.cold_reads import ColdReads
from penstock.transport.connection import Connection, Dispatch
from penstock.transport.connection_limit import ConnectionLimit, log_refusal
from penstock.transport.memory import MemoryBudget
from penstock.transport.relief import Relief
from penstock.transport.turn import Turn

ACCEPTS_PER_TURN = 64
SWEEPS_PER_IDLE_TIME = 10
SWEEP_S = 60.0  # where connections may be idle for ever
REST_S = 0.5

log = logging.getLogger("penstock.transport")


class Listener:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        name: str,
        turn: Turn,
        memory: MemoryBudget,
        cold_reads: ColdReads,
        dispatch: Dispatch,
        frame_max: int,
        limit: ConnectionLimit,
        idle_ms_max: int,
        for_brokers: bool = False,
    ) -> None:
        """`for_brokers`: other brokers connect here, and have the reserve of the limit."""
        self._loop = loop
        self.name = name
        self._turn = turn
        self._memory = memory
        self._cold_reads = cold_reads
        self._dispatch = dispatch
        self._frame_max = frame_max
        self._limit = limit
        self._for_brokers = for_brokers
        self._closes_idle = idle_ms_max >= 0  # as in Kafka, -1 means never
        self._sweep_s = max(idle_ms_max / 1000 / SWEEPS_PER_IDLE_TIME, 0.05) if self._closes_idle else SWEEP_S
        self.connections: dict[Connection, int] = {}  # with the number of sweeps that found it idle
        self._relief = Relief(loop, memory, self.connections)
        self._socket: socket.socket | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    def start(self, host: str, port: int, *, hold: bool = False) -> tuple[str, int]:
        """Listens, and returns where (a port of 0 was chosen by the system). Whoever connects while it is on hold waits
        for `go_on`."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
            sock.listen(4096)
        except OSError:
            sock.close()
            raise
        sock.setblocking(False)
        self._socket = sock
        self._sweeper = self._loop.call_later(self._sweep_s, self._sweep)
        if not hold:
            self.go_on()
        bound = sock.getsockname()
        return str(bound[0]), int(bound[1])

    def _accept(self) -> None:
        assert self._socket is not None
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:  # out of descriptors: the ones that close will make room
                log.warning("a connection could not be accepted: %s", error)
                self._rest()
                return
            reserved = self._limit.is_reached
            if reserved and not (self._for_brokers and self._limit.make_room()):
                log_refusal(address[0])
                sock.close()
                continue
            sock.setblocking(False)
            tcp.set_options(sock, address[0])
            connection = Connection(
                self._loop, sock, host=address[0], listener=self.name, turn=self._turn, memory=self._memory,
                cold_reads=self._cold_reads, dispatch=self._dispatch, frame_max=self._frame_max, on_close=self._closed,
            )  # fmt: skip
            self.connections[connection] = 0
            if reserved:
                self._limit.take_reserved(connection, self._loop)
            else:
                self._limit.take(connection)

    def _rest(self) -> None:
        """A connection that can't be accepted stays in line, and would wake the loop again at once."""
        assert self._socket is not None
        self._loop.remove_reader(self._socket.fileno())
        self._loop.call_later(REST_S, self.go_on)

    def go_on(self) -> None:
        if self._socket is not None:
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def _closed(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        self._limit.give_back(connection)

    def _sweep(self) -> None:
        for connection, sweeps in list(self.connections.items()):
            connection.release_idle_memory()
            connection.close_if_broken()
            if connection.closed:
                continue  # or while another one's buffer was released
            if connection.active or connection.slots or not self._closes_idle:
                connection.active = False
                self.connections[connection] = 0
            elif sweeps >= SWEEPS_PER_IDLE_TIME:
                connection.close()
            else:
                self.connections[connection] = sweeps + 1
        self._sweeper = self._loop.call_later(self._sweep_s, self._sweep)

    def stop_accepting(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def close(self) -> None:
        self.stop_accepting()
        self._relief.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.connections):
            connection.close()
