"""The short way through Produce, for a client that sends the same kind of request again and again.

Most requests of a producer differ only in correlation id, partition and batch. Once two requests in a row went to one
topic with one partition each, their common beginning is remembered; a request that begins with the same bytes is not
decoded. Anything unusual falls back to the ordinary way, which gives the same answers.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

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
from penstock.protocol.short import AnswerShape, ProduceShape
from penstock.replication.partition import Partition
from penstock.server.context import Context
from penstock.server.handlers.produce import ACKS_ALL, fail
from penstock.transport.connection import UNSENT_MAX, Connection
from penstock.transport.turn import Turn

FIRST_VERSION: Final = 8  # from here on the answer's variable part is laid out as below
HEADER_BEFORE_CLIENT: Final = 12  # length, api key, version, correlation id

_VARIABLE = Struct(">qqq")  # base offset, log append time, log start offset
_MARK: Final = 0x7EADBEEF_7EADBEEF

Promise = tuple[Connection, int, "Route", Any, int]


class Route:
    """A partition, and how to write the answer for it."""

    __slots__ = ("fill", "partition", "version")

    def __init__(self, partition: Partition, version: int) -> None:
        self.partition = partition
        self.version = version
        whole = b"".join(response_frame(self.response(_MARK, _MARK, _MARK), version, 0))
        at = whole.index(_VARIABLE.pack(_MARK, _MARK, _MARK))
        self.fill = AnswerShape(whole, at).fill

    def response(self, base_offset: int, append_time_ms: int, log_start_offset: int) -> ProduceResponse:
        partition = self.partition
        answer = PartitionProduceResponse(
            index=partition.index, error_code=0, base_offset=base_offset, log_append_time_ms=append_time_ms,
            log_start_offset=log_start_offset,
        )  # fmt: skip
        topic = TopicProduceResponse(name=partition.topic, topic_id=partition.topic_id, partition_responses=[answer])
        return ProduceResponse(responses=[topic])

    def failure(self, correlation_id: int, error: ApiError) -> bytes:
        response = self.response(-1, -1, -1)
        fail(response.responses[0].partition_responses[0], error)
        return b"".join(response_frame(response, self.version, correlation_id))


class ProduceMemo:
    __slots__ = (
        "_acks", "_context", "_generation", "_image", "_lane", "_match", "_routes", "_timeout_ms", "_topic", "_turn",
        "_version",
    )  # fmt: skip

    def __init__(self, lane: ProduceLane, version: int, prefix: bytes, topic: str, acks: int, timeout_ms: int) -> None:
        self._lane = lane
        self._turn = lane.turn
        self._context = lane.context
        self._image = lane.context.image
        self._version = version
        self._match = ProduceShape(version, prefix, version in ProduceRequest.flexible).match
        self._topic = topic
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._routes: dict[int, Route] = {}
        self._generation = self._image.generation

    def run(self, connection: Connection, data: bytearray, view: memoryview, start: int, stop: int) -> bool:
        found = self._match(data, start, stop)
        if found is None or self._generation != self._image.generation:
            return False
        correlation_id, index, at, end = found
        slots = connection.slots
        if connection.unsent > UNSENT_MAX or (slots and (not slots[-1].shared or connection.congested)):
            return False
        route = self._routes.get(index) or self._route(index)
        if route is None:
            return False
        partition, turn = route.partition, self._turn
        if not partition.leads or (partition.in_sync is not None and not partition.in_sync.enough):
            return False
        in_order = slots or (self._acks == ACKS_ALL and not partition.commits_on_write)
        if in_order and connection.promised == turn.count:
            turn.settle()
            turn.schedule()
        appended: Any
        try:
            appended = partition.append(view[at:end], turn.now_ms, False)
        except ApiError as error:
            appended = error
        if in_order:
            self._answer_in_order(connection, route, correlation_id, appended)
            return True
        promises = self._lane.promises
        if not promises:
            turn.answers.append(self._lane.keep_promises)
        promises.append((connection, correlation_id, route, appended, partition.failures))
        connection.promised = turn.count
        return True

    def _route(self, index: int) -> Route | None:
        partition = self._context.partitions.get(self._topic, index)
        if partition is None or partition.internal:
            return None
        if partition.settings.needs_worker or not partition.enough_in_sync:
            return None
        route = self._routes[index] = Route(partition, self._version)
        return route

    def _answer_in_order(self, connection: Connection, route: Route, correlation_id: int, appended: Any) -> None:
        """Through a slot, because the commit or an earlier request must be waited for."""
        partition = route.partition
        slot = connection.slot(shared=True)
        if isinstance(appended, ApiError):
            connection.answer(slot, [route.failure(correlation_id, appended)])
            return
        base_offset, next_offset, append_time_ms = appended
        failures = partition.failures

        def acknowledge() -> None:
            committed = partition.high_watermark >= next_offset
            if committed if self._acks == ACKS_ALL else partition.failures == failures:
                answer = route.fill(correlation_id, base_offset, append_time_ms, partition.log.start_offset)
            else:
                answer = route.failure(correlation_id, partition.failure())
            connection.answer(slot, [answer])

        if self._acks == ACKS_ALL:
            partition.when_committed(next_offset, acknowledge, partition.deadline_ms(self._timeout_ms))
        else:
            partition.when_written(acknowledge)


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
            if isinstance(appended, ApiError):
                connection.send(route.failure(correlation_id, appended))
            elif partition.failures == failures:
                base_offset, _, append_time_ms = appended
                start = partition.log.start_offset
                connection.send(route.fill(correlation_id, base_offset, append_time_ms, start))
            else:
                connection.send(route.failure(correlation_id, partition.failure()))

    def remember(
        self, connection: Connection, request: ProduceRequest, version: int, frame: memoryview, body_at: int
    ) -> None:
        """After an ordinary request: the second one of a kind lets the next take the short way."""
        common = self._common_size(request, version)
        if common is None:
            return
        prefix = bytes(frame[HEADER_BEFORE_CLIENT : body_at + common])
        if connection.candidate == (version, prefix):
            connection.memo = ProduceMemo(
                self, version, prefix, self._topic_name(request, version), request.acks, request.timeout_ms
            )
        else:
            connection.candidate = (version, prefix)

    def _common_size(self, request: ProduceRequest, version: int) -> int | None:
        """How much of the body stands before the partition's index, if there is just one partition."""
        if version < FIRST_VERSION or request.acks not in (ACKS_ALL, 1) or len(request.topic_data) != 1:
            return None
        if request.transactional_id is not None:
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
