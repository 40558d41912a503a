"""Reading from and writing to a socket, in C where that was compiled, else in Python."""

from __future__ import annotations

import socket
from typing import Protocol

from penstock.transport import pure_sockets

try:
    from penstock.transport import _sockets

    COMPILED = True
except ImportError:
    COMPILED = False


class Stream(Protocol):
    def receive(self, buffer: bytearray, at: int, stop: int, /) -> int: ...

    def send(self, data: bytes | memoryview, /) -> int: ...


def stream(sock: socket.socket) -> Stream:
    """What only looks like a socket, as a simulated one does, is asked through its methods."""
    if COMPILED and isinstance(sock, socket.socket):
        return _sockets.Stream(sock.fileno())
    return pure_sockets.Stream(sock)
