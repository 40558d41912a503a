"""Options of TCP sockets."""

from __future__ import annotations

import socket

UNPACED = b"reno"  # the one that every kernel has, and allows to everyone


def set_options(sock: socket.socket, host: str) -> None:
    """Answers leave at once, however small. Within one machine they are not paced either, as the congestion control of
    some systems would: there is no network to spare, and each send would wait for a timer."""
    if sock.family is socket.AF_UNIX:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if (host == "::1" or host.startswith("127.")) and hasattr(socket, "TCP_CONGESTION"):
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, UNPACED)
        except OSError:
            pass  # the kernel has only others
