"""kazoo as the event loop needs it: one thread that talks to ZooKeeper, and nothing that ever makes the loop wait.

kazoo hands answers, watches and states of the session to three threads, which may overtake one another. Here the thread
of the connection hands all of them on itself, so what came first is told first.
"""

from __future__ import annotations

import logging
import os
import select
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.hosts import collect_hosts
from kazoo.retry import KazooRetry

from penstock.cluster.coordination import check_path

RECONNECT_DELAY_S_MIN = 0.1
RECONNECT_DELAY_S_MAX = 1.0
TCP_CONNECT_S_MIN = 0.5


def parse_connect(connect: str) -> tuple[str, str]:
    """'h1:2181,h2:2181/path' as the hosts and the path below which all of ours is ('' if there is none)."""
    hosts, _, path = connect.partition("/")
    root = f"/{path.rstrip('/')}" if path else ""
    try:
        collect_hosts(hosts)
        if root:
            check_path(root)
    except ValueError:
        raise ValueError(f"not an address of ZooKeeper: {connect!r} (HOST:PORT,HOST:PORT/PATH)") from None
    return hosts, root


def make_client(hosts: str, session_timeout_ms: int) -> KazooClient:
    """Not started yet. It tries to connect for as long as it lives, whatever happens to its session."""
    session_s = session_timeout_ms / 1000
    connect_s = max(TCP_CONNECT_S_MIN, session_s / 2 / len(hosts.split(",")))
    retry = KazooRetry(max_tries=-1, delay=RECONNECT_DELAY_S_MIN, max_delay=RECONNECT_DELAY_S_MAX)
    handler = DirectHandler(connect_s)
    return KazooClient(hosts, session_s, handler=handler, connection_retry=retry, logger=QuietLog())


class DirectHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Runs callbacks where they arise: ours only pass something on to the event loop."""

    def __init__(self, connect_s: float) -> None:
        super().__init__()
        self.completion_queue = self.callback_queue = Inline()
        self._connect_s = connect_s

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def select(
        self, reading: Sequence[Any], writing: Sequence[Any], _failing: Sequence[Any], timeout_s: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Called four times for every request: kazoo's own makes an epoll each time, which costs half its speed."""
        poll = select.poll()
        for kind, files in ((select.POLLIN, reading), (select.POLLOUT, writing)):
            for file in files:
                poll.register(file, kind)
        ready = {fd for fd, _ in poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000)}
        return [file for file in reading if file.fileno() in ready], [f for f in writing if f.fileno() in ready], []

    def create_socket_pair(self) -> tuple[Wakeups, Wakeups]:
        wakeups = Wakeups()
        return wakeups, wakeups

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        """A host that does not answer must not use up the session that another host would keep alive."""
        return super().create_connection(*args, **{**kwargs, "timeout": self._connect_s})


class Inline:
    def put(self, work: Callable[[], object]) -> None:
        work()


class Wakeups:
    """How a request wakes the connection's thread, as both ends of kazoo's socket pair.

    A real pair blocks its writer, which is the event loop, after a few hundred bytes that nobody reads. This counts.
    """

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._fd

    def send(self, data: bytes) -> int:
        os.eventfd_write(self._fd, len(data))
        return len(data)

    def recv(self, _size: int) -> bytes:
        os.eventfd_read(self._fd)
        return b"\0"

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class QuietLog(logging.LoggerAdapter[logging.Logger]):
    """kazoo logs every request, and a warning for every attempt to connect. The store says once what that means."""

    def __init__(self) -> None:
        super().__init__(logging.getLogger("penstock.cluster.kazoo"))

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if level >= logging.ERROR:
            super().log(logging.WARNING, msg, *args, **kwargs)
        elif level >= logging.INFO:
            super().log(logging.DEBUG, msg, *args, **kwargs)
