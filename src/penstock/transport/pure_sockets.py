"""Reading from and writing to a socket that does not block.

`_sockets.c` does the same, by the socket's number, where a C compiler was found.
"""

from __future__ import annotations

import socket


class Stream:
    __slots__ = ("_sock",)

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def receive(self, buffer: bytearray, at: int, stop: int) -> int:
        """How many bytes were put there; 0 if the other side is gone, -1 if there are none now."""
        if not 0 <= at <= stop <= len(buffer):
            raise ValueError("what is received must fit")
        try:
            return self._sock.recv_into(memoryview(buffer)[at:stop])
        except (BlockingIOError, InterruptedError):
            return -1
        except OSError:
            return 0

    def send(self, data: bytes | memoryview) -> int:
        """How many bytes were taken; -1 if none are now."""
        try:
            return self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            return -1
