"""The short way through Produce, for a client that sends the same kind of request again and again.

Most requests of a producer differ only in correlation id, partition and batch. Once two requests in a row went to one
topic with one partition each, their common beginning is remembered; a request that begins with the same bytes is not
decoded. Anything unusual falls back to the ordinary way, which gives the same answers.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from penstock.protocol.codec import encode_bytes
from penstock.protocol.errors import ApiError
from penstock.protocol.framing import response_frame
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from penstock.replication.partition import Partition
from penstock.server.context import Context
from penstock.server.handlers.produce import ACKS_ALL, fail, storage_error
from penstock.transport.connection import Connection
from penstock.transport.turn import Turn

FIRST_VERSION = 8  # from here on the answer's variable part is laid out as below
HEADER_BEFORE_CLIENT = 12  # length, api key, version, correlation id

_int32 = Struct(">i").unpack_from
_correlation = Struct(">i").unpack_from
_VARIABLE = Struct(">qqq")  # base offset, log append time, log start offset
_MARK = 0x7EADBEEF_7EADBEEF

Pack = Callable[..., bytes]
Promise = tuple[Connection, int, "Route", Any, int]


class Route:
    """A partition, and how to write the answer for it."""

    __slots__ = ("head", "pack", "partition", "size", "tail", "version")

    def __init__(self, partition: Partition, version: int) -> None:
        self.partition = partition
        self.version = version
        whole = b"".join(response_frame(self.response(_MARK, _MARK, _MARK), version, 0))
        at = whole.index(_VARIABLE.pack(_MARK, _MARK, _MARK))
        self.size, self.head, self.tail = whole[:4], whole[8:at], whole[at + _VARIABLE.size :]
        self.pack = Struct(f">4si{len(self.head)}sqqq{len(self.tail)}s").pack

    def response(self, base_offset: int, append_time_ms: int, log_start_offset: int) -> ProduceResponse:
        partition = self.partition
        answer = PartitionProduceResponse(
            index=partition.index, error_code=0, base_offset=base_offset, log_append_time_ms=append_time_ms,
            log_start_offset=log_start_offset,
        )  # fmt: skip
        topic = TopicProduceResponse(
            name=partition.topic, topic_id=partition.topic_id, partition_responses=[answer]
        )
        return ProduceResponse(responses=[topic])

    def failure(self, correlation_id: int, error: ApiError) -> bytes:
        response = self.response(-1, -1, -1)
        fail(response.responses[0].partition_responses[0], error)
        return b"".join(response_frame(response, self.version, correlation_id))


class ProduceMemo:
    __slots__ = ("_acks", "_context", "_flexible", "_generation", "_lane", "_prefix", "_records_at", "_routes", "_tail",
                 "_topic", "_version", "key_version")  # fmt: skip

    def __init__(self, lane: ProduceLane, version: int, prefix: bytes, topic: str, acks: int) -> None:
        self._lane = lane
        self._context = lane.context
        self._version = version
        self._flexible = version in ProduceRequest.flexible
        self._prefix = prefix
        self._records_at = HEADER_BEFORE_CLIENT + len(prefix)
        self._tail = b"\0\0\0" if self._flexible else b""
        self._topic = topic
        self._acks = acks
        self._routes: dict[int, Route] = {}
        self._generation = self._context.image.generation
        self.key_version = version  # the api key, 0, stands above it

    def run(self, connection: Connection, data: bytearray, view: memoryview, start: int, stop: int) -> bool:
        """True if the request was taken care of."""
        if not data.startswith(self._prefix, start + 12) or self._generation != self._context.image.generation:
            return False
        at = start + self._records_at
        if at + 9 > stop:
            return False
        (index,) = _int32(data, at)
        route = self._routes.get(index) or self._route(index)
        if route is None:
            return False
        at += 4
        if self._flexible:
            size = data[at]
            at += 1
            if size > 0x7F:
                size = (size & 0x7F) | data[at] << 7
                at += 1
                if size > 0x3FFF:
                    size = (size & 0x3FFF) | data[at] << 14
                    at += 1
                    if size > 0x1FFFFF:
                        return False
            end = at + size - 1
            if end + 3 != stop or not data.startswith(b"\0\0\0", end):
                return False
        else:
            (size,) = _int32(data, at)
            at += 4
            end = at + size
            if end != stop:
                return False
        self._produce(connection, route, _correlation(data, start + 8)[0], view[at:end])
        return True

    def _route(self, index: int) -> Route | None:
        partition = self._context.partitions.get(self._topic, index)
        if partition is None or partition.settings.needs_worker or partition.settings.min_insync_replicas > 1:
            return None
        route = self._routes[index] = Route(partition, self._version)
        return route

    def _produce(self, connection: Connection, route: Route, correlation_id: int, batch: memoryview) -> None:
        partition, lane = route.partition, self._lane
        slots = connection.slots
        try:
            appended: Any = partition.append(batch, lane.turn.now_ms)
        except ApiError as error:
            appended = error
        if slots or (self._acks == ACKS_ALL and not partition.commits_on_write):
            self._produce_in_order(connection, route, correlation_id, appended)
            return
        promises = lane.promises
        if not promises:
            lane.turn.answers.append(lane.keep_promises)
        promises.append((connection, correlation_id, route, appended, partition.failures))
        connection.promised = lane.turn.count

    def _produce_in_order(self, connection: Connection, route: Route, correlation_id: int, appended: Any) -> None:
        partition = route.partition
        if connection.promised == self._lane.turn.count:
            self._lane.turn.settle()
        slot = connection.slot(shared=True)
        if isinstance(appended, ApiError):
            connection.answer(slot, [route.failure(correlation_id, appended)])
            return

        def acknowledge(stored: bool) -> None:
            if stored:
                answer = route.pack(
                    route.size, correlation_id, route.head, appended.base_offset, appended.append_time_ms,
                    partition.log.start_offset, route.tail,
                )  # fmt: skip
            else:
                answer = route.failure(correlation_id, storage_error(partition))
            connection.answer(slot, [answer])

        if self._acks == ACKS_ALL:
            next_offset = appended.next_offset
            partition.when_committed(next_offset, lambda: acknowledge(partition.high_watermark >= next_offset))
        else:
            failures = partition.failures
            partition.when_written(lambda: acknowledge(partition.failures == failures))


class ProduceLane:
    """Makes memos, and keeps the promises that they made during a turn."""

    def __init__(self, context: Context, turn: Turn) -> None:
        self.context = context
        self.turn = turn
        self.promises: list[Promise] = []

    def keep_promises(self) -> None:
        """Behind the turn's writes: every answer that waited for nothing else."""
        promises, self.promises = self.promises, []
        for connection, correlation_id, route, appended, failures in promises:
            partition = route.partition
            if type(appended) is ApiError:
                connection.send(route.failure(correlation_id, appended))
            elif partition.failures == failures:
                connection.send(
                    route.pack(
                        route.size, correlation_id, route.head, appended[0], appended[2], partition.log.start_offset,
                        route.tail,
                    )  # fmt: skip
                )
            else:
                connection.send(route.failure(correlation_id, storage_error(partition)))

    def remember(
        self, connection: Connection, request: ProduceRequest, version: int, frame: memoryview, body_at: int
    ) -> None:
        """After an ordinary request: the second one of a kind lets the next take the short way."""
        common = self._common_size(request, version)
        if common is None:
            return
        prefix = bytes(frame[HEADER_BEFORE_CLIENT : body_at + common])
        if connection.memo == (version, prefix):
            connection.memo = ProduceMemo(self, version, prefix, self._topic_name(request, version), request.acks)
        else:
            connection.memo = (version, prefix)

    def _common_size(self, request: ProduceRequest, version: int) -> int | None:
        """How much of the body stands before the partition's index, if there is just one partition."""
        if version < FIRST_VERSION or request.acks == 0 or len(request.topic_data) != 1:
            return None
        data = request.topic_data[0].partition_data
        if len(data) != 1 or not data[0].records or not self._topic_name(request, version):
            return None
        bare = TopicProduceData(name=request.topic_data[0].name, topic_id=request.topic_data[0].topic_id)
        bare.partition_data = [PartitionProduceData(index=0)]
        body = encode_bytes(
            ProduceRequest(acks=request.acks, timeout_ms=request.timeout_ms, topic_data=[bare]), version
        )
        return len(body) - 8  # the index; then the length of no records, with three empty tags where it is one byte

    def _topic_name(self, request: ProduceRequest, version: int) -> str:
        topic = request.topic_data[0]
        if version < 13:
            return topic.name
        known = self.context.image.topics_by_id.get(topic.topic_id)
        return known.name if known is not None else ""
