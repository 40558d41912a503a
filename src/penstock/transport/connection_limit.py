"""How many connections the broker holds, on all of its listeners together, and a reserve for other brokers.

Clients that fill every place must not part the brokers from each other. So the listener between brokers takes a few
connections more than `max.connections` says, of whoever comes. Such a one is served only if its first request shows
that it is another broker; it is closed if that is a client's, or is long in coming. Who has not shown anything yet
gives way to the next that comes, so a crowd of the silent does not hold the reserve either.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from penstock.protocol.framing import read_request_header
from penstock.protocol.wire import DecodeError
from penstock.transport.connection import Connection, Dispatch

log = logging.getLogger("penstock.transport")

RESERVED = 256
SHOWN_WITHIN_S = 2.0


class ConnectionLimit:
    def __init__(self, most: Callable[[], int], is_broker: Callable[[str], bool] | None = None) -> None:
        """`is_broker` knows other brokers by their client ids. Without it there is no reserve."""
        self._most = most
        self._is_broker = is_broker
        self._ordinary: set[Connection] = set()
        self._strangers: dict[Connection, asyncio.TimerHandle] = {}  # in the reserve; the oldest first
        self._brokers: set[Connection] = set()  # in the reserve

    @property
    def is_reached(self) -> bool:
        return len(self._ordinary) >= self._most()

    def make_room(self) -> bool:
        """Whether there is a place in the reserve. If it is full, whoever has not shown anything for longest goes."""
        if self._is_broker is None or len(self._brokers) >= RESERVED:
            return False
        if len(self._strangers) + len(self._brokers) >= RESERVED:
            _refuse(next(iter(self._strangers)))
        return True

    def take(self, connection: Connection) -> None:
        self._ordinary.add(connection)

    def take_reserved(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        """It is served when it has shown who it is."""
        self._strangers[connection] = loop.call_later(SHOWN_WITHIN_S, _refuse, connection)
        connection.dispatch = self._first_request_to(connection.dispatch)

    def give_back(self, connection: Connection) -> None:
        self._ordinary.discard(connection)
        self._brokers.discard(connection)
        if waiting := self._strangers.pop(connection, None):
            waiting.cancel()

    def _first_request_to(self, dispatch: Dispatch) -> Dispatch:
        def first(connection: Connection, data: bytearray, view: memoryview, start: int, stop: int) -> bool:
            if waiting := self._strangers.get(connection):
                if not self._comes_from_broker(view[start + 4 : stop]):
                    _refuse(connection)
                    return False
                waiting.cancel()
                del self._strangers[connection]
                self._brokers.add(connection)
                connection.dispatch = dispatch
            return dispatch(connection, data, view, start, stop)

        return first

    def _comes_from_broker(self, frame: memoryview) -> bool:
        assert self._is_broker is not None
        try:
            return self._is_broker(read_request_header(frame).client_id or "")
        except DecodeError:
            return False


def _refuse(connection: Connection) -> None:
    log_refusal(connection.host)
    connection.close()


def log_refusal(host: str) -> None:
    log.warning("refused a connection: max.connections is reached", extra={"from": host})
