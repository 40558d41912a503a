"""What a test has asked to go wrong, and the listener that sees to it.

A fault concerns requests of one API, and if so said of one topic, and goes away when it has met as many as it was given
for. It is met where a connection hands its frames over, before the router: nothing of the broker knows. Requests that a
connection's memo would answer never come there, so while there are faults no connection has a memo.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from penstock.protocol.codec import decode
from penstock.protocol.errors import ErrorCode
from penstock.protocol.framing import RequestHeader, read_request_header, response_frame
from penstock.protocol.schema import Message
from penstock.protocol.wire import DecodeError
from penstock.server.context import Context
from penstock.server.routing import HANDLERS
from penstock.testing.refusals import refusal, topics_of
from penstock.transport.connection import Connection, Dispatch
from penstock.transport.listener import Listener


class Kind(Enum):
    FAIL = "fail"  # answered with an error, and not carried out
    DELAY = "delay"  # carried out later
    LOSE = "lose"  # carried out, and the connection is closed instead of an answer


@dataclass(slots=True, eq=False)
class Fault:
    kind: Kind
    api_key: int
    topic: str | None = None
    left: int | None = None  # None: until it is taken back
    code: ErrorCode = ErrorCode.NONE
    seconds: float = 0.0


class Faults:
    """Of all brokers of a test, which have threads of their own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []

    @property
    def there_are_any(self) -> bool:
        return bool(self._faults)

    def add(self, fault: Fault) -> None:
        with self._lock:
            self._faults.append(fault)

    def clear(self) -> None:
        with self._lock:
            self._faults = []

    def find(self, kinds: tuple[Kind, ...], api_key: int, topics: Callable[[], set[str]]) -> Fault | None:
        """The first that concerns such a request."""
        for fault in tuple(self._faults):
            if fault.kind in kinds and fault.api_key == api_key and (fault.topic is None or fault.topic in topics()):
                return fault
        return None

    def use(self, fault: Fault) -> bool:
        """Whether it was still there: another broker may have been faster."""
        with self._lock:
            if fault not in self._faults:
                return False
            if fault.left is not None:
                fault.left -= 1
                if not fault.left:
                    self._faults.remove(fault)
            return True


class FaultyListener(Listener):
    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, faults: Faults, context: Callable[[], Context], dispatch: Dispatch,
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(loop, dispatch=self._dispatch_or_fail, **options)
        self._faults = faults
        self._context = context
        self._carry_out = dispatch
        self._held: dict[Connection, bool] = {}  # whose next request is delayed, and whether that is over

    def forget_memos(self) -> None:
        """When a fault was added."""
        for connection in self.connections:
            connection.memo = None

    def disconnect(self) -> None:
        for connection in list(self.connections):
            connection.close()

    def _closed(self, connection: Connection) -> None:
        self._held.pop(connection, None)
        super()._closed(connection)

    def _dispatch_or_fail(
        self, connection: Connection, data: bytearray, view: memoryview, start: int, stop: int
    ) -> bool:
        if not self._faults.there_are_any and connection not in self._held:
            return self._carry_out(connection, data, view, start, stop)
        try:
            frame = _Frame(view[start:stop], self._context())
        except DecodeError:
            return self._carry_out(connection, data, view, start, stop)
        handled = self._meet(connection, frame, lambda: self._carry_out(connection, data, view, start, stop))
        connection.memo = None
        return handled

    def _meet(self, connection: Connection, frame: _Frame, carry_out: Callable[[], bool]) -> bool:
        if self._is_delayed(connection, frame):
            return False
        fault = self._faults.find((Kind.FAIL, Kind.LOSE), frame.header.api_key, frame.topics)
        if fault is not None and connection.slots:
            if connection.slots[-1].hurry is not None:
                connection.slots[-1].hurry()
            return False  # it has its turn when those before it are answered
        if fault is not None and fault.kind is Kind.FAIL and self._faults.use(fault):
            handled = self._fail(connection, frame, fault.code)
        else:
            handled = carry_out()
            if handled and fault is not None and fault.kind is Kind.LOSE and self._faults.use(fault):
                connection.close()
        if handled:
            self._held.pop(connection, None)
        return handled and not connection.closed

    def _is_delayed(self, connection: Connection, frame: _Frame) -> bool:
        over = self._held.get(connection)
        if over is not None:
            return not over
        fault = self._faults.find((Kind.DELAY,), frame.header.api_key, frame.topics)
        if fault is None or not self._faults.use(fault):
            return False
        self._held[connection] = False
        self._loop.call_later(fault.seconds, self._delay_is_over, connection)
        return True

    def _delay_is_over(self, connection: Connection) -> None:
        if connection in self._held:
            self._held[connection] = True
            connection._order_restored()  # as if an answer before it had come

    def _fail(self, connection: Connection, frame: _Frame, code: ErrorCode) -> bool:
        if connection.promised == connection.turn.count:
            connection.turn.settle()
        header = frame.header
        answer = refusal(self._context(), frame.request(), header.api_version, code, connection.listener)
        if answer is None:  # the client waits for none, and must at least look again
            connection.close()
            return False
        connection.send_parts(response_frame(answer, header.api_version, header.correlation_id))
        return True


class _Frame:
    """A request that may be concerned: decoded only if somebody wants to know."""

    def __init__(self, frame: memoryview, context: Context) -> None:
        self._frame = frame
        self._context = context
        self.header: RequestHeader = read_request_header(frame[4:])
        self._route = HANDLERS.get(self.header.api_key)
        if self._route is None or self.header.api_version not in self._route.request.versions:
            raise DecodeError("nobody answers this")
        self._request: Message | None = None

    def request(self) -> Message:
        if self._request is None:
            assert self._route is not None
            position = 4 + self.header.body_position
            self._request = decode(self._route.request, self._frame, self.header.api_version, position)
        return self._request

    def topics(self) -> set[str]:
        return topics_of(self._context, self.request())
