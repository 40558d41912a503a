"""Streams between two ends in one process, with as much of a socket's face as a `Connection` looks at.

Bytes travel through a channel each way, so that they arrive later, in pieces and in order; what is under way and not
yet read is bounded, and whoever sends more is told to wait. A socket needs a descriptor, because ranges of files are
sent to it by the kernel: it has a file in memory, from which it takes up what was sent that way.
"""

from __future__ import annotations

import errno
import os
import random
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.simulation.channel import Channel
from tests.simulation.loop import VirtualLoop

BUFFER_BYTES = 256 * 1024
SPLIT = 0.1  # how often what is sent at once arrives in two pieces


class SimulatedSocket:
    family = socket.AF_INET

    def __init__(self, loop: VirtualLoop, host: str, delay_s: Callable[[], float], chance: random.Random) -> None:
        self._loop = loop
        self._random = chance
        self.host = host
        self.peer: SimulatedSocket | None = None
        self.outgoing = Channel(loop, delay_s)
        self._fd = os.memfd_create("simulated-socket")
        loop.register(self._fd, self)
        self._inbox: deque[bytes] = deque()
        self._unread_by_peer = 0  # under way, or there and not yet read
        self._has_ended = False  # the peer sends no more
        self._is_reset = False
        self._lingers = True
        self.closed = False

    # ---- what the loop asks

    @property
    def is_readable(self) -> bool:
        return bool(self._inbox) or self._has_ended or self._is_reset

    @property
    def is_writable(self) -> bool:
        return self._unread_by_peer < BUFFER_BYTES or self._is_reset

    # ---- what a connection calls

    def fileno(self) -> int:
        return self._fd

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def recv_into(self, buffer: memoryview) -> int:
        self._check()
        if not self._inbox:
            if self._has_ended:
                return 0
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        filled = 0
        while self._inbox and filled < len(buffer):
            piece = self._inbox.popleft()
            taken = min(len(piece), len(buffer) - filled)
            buffer[filled : filled + taken] = piece[:taken]
            filled += taken
            if taken < len(piece):
                self._inbox.appendleft(piece[taken:])
        if self.peer is not None:
            self.peer._unread_by_peer -= filled
        return filled

    def send(self, data: Any, flags: int = 0) -> int:
        self._check()
        self._take_up()
        room = BUFFER_BYTES - self._unread_by_peer
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        piece = bytes(data[:room])
        self._dispatch(piece)
        return len(piece)

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        """Taking the cork out is how a connection ends a row of sends; whoever does not linger ends abruptly."""
        if (level, option) == (socket.SOL_SOCKET, socket.SO_LINGER):
            self._lingers = False
        elif not self.closed:
            self._take_up()

    def getsockopt(self, level: int, option: int) -> int:
        """The error that nobody was told of yet, if any."""
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_ERROR)
        return errno.ECONNRESET if self._is_reset else 0

    def _take_up(self) -> None:
        """What the kernel wrote to the descriptor, which goes before what is sent next."""
        size = os.lseek(self._fd, 0, os.SEEK_CUR)
        if size:
            data = os.pread(self._fd, size, 0)
            os.ftruncate(self._fd, 0)
            os.lseek(self._fd, 0, os.SEEK_SET)
            self._dispatch(data)

    def _dispatch(self, data: bytes) -> None:
        assert self.peer is not None
        self._unread_by_peer += len(data)
        at = self._random.randrange(1, len(data)) if len(data) > 1 and self._random.random() < SPLIT else len(data)
        for piece in (data[:at], data[at:]):
            if piece:
                self.outgoing.send(self.peer._arrived, piece)

    def close(self) -> None:
        if self._lingers:
            self._end(reset=False)
        else:
            self.abort()

    # ---- what happens to it

    def abort(self) -> None:
        """Its process was killed, or does not linger: the peer is told, what was sent last may be lost."""
        self.outgoing.drop()
        self._end(reset=True)

    def tear(self) -> None:
        """The connection broke under way: this end learns it, and what it sent last never arrives."""
        self.outgoing.drop()
        self._reset()

    def _end(self, *, reset: bool) -> None:
        if self.closed:
            return
        if not reset and not self._is_reset:
            self._take_up()
        self.closed = True
        self._loop.unregister(self._fd)
        os.close(self._fd)
        if self.peer is not None:
            self.outgoing.send(self.peer._reset if reset else self.peer._ended)

    def __del__(self) -> None:
        if not self.closed:
            os.close(self._fd)

    def _arrived(self, data: bytes) -> None:
        if not self.closed:
            self._inbox.append(data)
        elif self.peer is not None:
            self.outgoing.send(self.peer._reset)  # nobody is there any more

    def _ended(self) -> None:
        self._has_ended = True

    def _reset(self) -> None:
        self._is_reset = True

    def _check(self) -> None:
        if self.closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if self._is_reset:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))


class SimulatedServerSocket:
    """Where others connect to."""

    def __init__(self, loop: VirtualLoop, backlog: int = 128) -> None:
        self._loop = loop
        self._fd = os.memfd_create("simulated-server-socket")
        loop.register(self._fd, self)
        self._backlog = backlog
        self._pending: deque[tuple[SimulatedSocket, tuple[str, int]]] = deque()
        self.closed = False

    is_writable = False

    @property
    def is_readable(self) -> bool:
        return bool(self._pending)

    def fileno(self) -> int:
        return self._fd

    def offer(self, sock: SimulatedSocket, address: tuple[str, int]) -> None:
        if self.closed or len(self._pending) >= self._backlog:
            sock.abort()
        else:
            self._pending.append((sock, address))

    def accept(self) -> tuple[SimulatedSocket, tuple[str, int]]:
        if not self._pending:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return self._pending.popleft()

    def __del__(self) -> None:
        if not self.closed:
            os.close(self._fd)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._loop.unregister(self._fd)
            os.close(self._fd)
            for sock, _ in self._pending:
                sock.abort()
            self._pending.clear()
