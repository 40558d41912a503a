"""From a frame to its answer: finds the handler, decodes, calls, encodes, and keeps the connection's order.

A frame that is no request of the protocol closes its connection; an error that a handler raises becomes a response; a
handler that fails in a way nobody foresaw costs its connection and a line in the log, never the process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

from penstock.protocol.codec import decode
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.framing import RequestHeader, read_request_header, response_frame
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.produce import ProduceResponse
from penstock.protocol.schema import Message
from penstock.protocol.wire import DecodeError
from penstock.server.context import Call, Context
from penstock.server.deferred import Deferred
from penstock.server.failures import error_response
from penstock.server.fast_fetch import FetchLane
from penstock.server.fast_produce import ProduceLane
from penstock.server.handlers import api_versions
from penstock.server.routing import HANDLERS, Route
from penstock.transport.connection import UNSENT_MAX, Connection, Slot
from penstock.transport.turn import Turn

log = logging.getLogger("penstock.server")

PRODUCE, FETCH, API_VERSIONS = 0, 1, 18
FRAME_MAX = 8 * 1024 * 1024  # of a request that carries no records


class Router:
    def __init__(self, context: Context, turn: Turn) -> None:
        self.context = context
        self._turn = turn
        self._produce = ProduceLane(context, turn)
        self._fetch = FetchLane(context, turn)
        self._tasks: set[asyncio.Task[Any]] = set()

    def dispatch(self, connection: Connection, data: bytearray, view: memoryview, start: int, stop: int) -> bool:
        slots = connection.slots
        if slots and slots[-1].hurry is not None:
            slots[-1].hurry()
        if (slots and (not slots[-1].shared or connection.congested)) or connection.unsent > UNSENT_MAX:
            return False
        if connection.served == self._turn.flushes and self._turn.is_long:
            return False
        connection.served = self._turn.flushes
        try:
            return self._ordinary(connection, view[start:stop])
        except DecodeError as error:
            log.warning("closed connection: %s", error, extra={"from": connection.host})
        except Exception:
            log.exception("closed connection: the request failed", extra={"from": connection.host})
        connection.end()
        return False  # what stands behind it is not carried out

    def _ordinary(self, connection: Connection, frame: memoryview) -> bool:
        header = read_request_header(frame[4:])
        if header.api_key != PRODUCE:
            if connection.slots:
                return False
            if len(frame) > FRAME_MAX:
                raise DecodeError(f"a request of {len(frame)} bytes with api key {header.api_key}")
        if connection.promised == self._turn.count:
            self._turn.settle()
            if connection.closed or connection.ending:
                return False
        route = HANDLERS.get(header.api_key)
        if route is None or header.api_version not in route.request.versions:
            return self._unsupported(connection, header)
        request: Any = decode(route.request, frame, header.api_version, 4 + header.body_position)
        call = Call(request, header.api_version, header.client_id, connection.host, connection.listener, connection)
        self._answer(connection, header, request, self._call(route, call))
        if header.api_key == PRODUCE:
            self._produce.remember(connection, request, header.api_version, frame, 4 + header.body_position)
        elif header.api_key == FETCH:
            self._fetch.remember(connection, request, header.api_version, frame, 4 + header.body_position)
        return not connection.closed and not connection.ending

    def _call(self, route: Route, call: Call[Any]) -> Any:
        try:
            return route.handle(self.context, call)
        except ApiError as error:
            return error_response(call.request, call.version, error)

    def _unsupported(self, connection: Connection, header: RequestHeader) -> bool:
        """Only ApiVersions is answered, in its first version, so that the client can choose another (KIP-511)."""
        if header.api_key != API_VERSIONS:
            raise DecodeError(f"api key {header.api_key} has no version {header.api_version}")
        call = Call(ApiVersionsRequest(), 0, header.client_id, connection.host)
        response = api_versions.handle(self.context, call)
        response.error_code = ErrorCode.UNSUPPORTED_VERSION
        connection.send_parts(response_frame(response, 0, header.correlation_id))
        return True

    def _answer(self, connection: Connection, header: RequestHeader, request: Message, reply: Any) -> None:
        if reply is None:
            connection.end()
            return
        if isinstance(reply, Message):
            parts = self._parts(connection, header, request, reply)
            if connection.slots:
                connection.answer(connection.slot(shared=True), parts)
            elif parts:
                connection.send_parts(parts)
            return
        if connection.closed:  # while it was carried out: nobody would take the answer, nor give up waiting for it
            if isinstance(reply, Deferred) and reply.cancel is not None:
                reply.cancel()
            return
        slot = connection.slot(shared=header.api_key == PRODUCE and isinstance(reply, Deferred))
        if isinstance(reply, Deferred):
            slot.cancel, slot.hurry = reply.cancel, reply.hurry
            reply.then(lambda message: self._deliver(connection, slot, header, request, message))
            return
        task = asyncio.ensure_future(self._finish(connection, slot, header, request, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(
        self, connection: Connection, slot: Slot, header: RequestHeader, request: Message, reply: Awaitable[Message]
    ) -> None:
        message: Message | None
        try:
            message = await reply
        except ApiError as error:
            message = error_response(request, header.api_version, error)
        except asyncio.CancelledError:
            connection.close()
            raise
        except Exception:
            log.exception("closed connection: the request failed", extra={"from": connection.host})
            message = None
        if message is None:
            connection.close()
            return
        self._deliver(connection, slot, header, request, message)

    def _deliver(
        self, connection: Connection, slot: Slot, header: RequestHeader, request: Message, message: Message
    ) -> None:
        """Raises nothing: others wait for the same event as this answer did."""
        try:
            parts = self._parts(connection, header, request, message)
        except Exception:
            log.exception("closed connection: the response failed", extra={"from": connection.host})
            connection.close()
            return
        connection.answer(slot, parts)

    def _parts(self, connection: Connection, header: RequestHeader, request: Message, message: Message) -> list[Any]:
        if isinstance(message, ProduceResponse) and request.acks == 0:  # type: ignore[attr-defined]
            if any(answer.error_code for topic in message.responses for answer in topic.partition_responses):
                connection.end()  # as Kafka does: a producer that can't be told must at least look again
            return []
        return response_frame(message, header.api_version, header.correlation_id)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
