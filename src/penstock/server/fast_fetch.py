"""The short way through Fetch, for a consumer that asks one partition again and again.

As with Produce: when a request begins and ends like the one before it, only the partition's part is read. Data that is
there is answered; anything else (nothing to read, an error, a session) goes the ordinary way.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from penstock.protocol.codec import encode_bytes
from penstock.protocol.framing import response_frame
from penstock.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from penstock.protocol.short import FetchShape, RecordsShape
from penstock.replication.partition import Partition
from penstock.server import fast_replica
from penstock.server.context import Context
from penstock.server.handlers.fetch import READ_COMMITTED
from penstock.storage.log import READ_NOW_MAX, FileRange
from penstock.storage.segment import CorruptSegment
from penstock.transport.connection import UNSENT_MAX, Connection
from penstock.transport.turn import Turn

FIRST_VERSION: Final = 9
ASKED_SIZE: Final = 28  # of what is asked of a partition
LAST_EPOCH_VERSION: Final = 12  # from here on a request names the epoch of what it has last
HEADER_BEFORE_CLIENT: Final = 12

_MARK: Final = 0x7EADBEEF_7EADBEEF
_OFFSETS = Struct(">qqq")  # high watermark, last stable offset, log start offset


class Answer:
    """A partition, and what stands around its records in an answer."""

    __slots__ = ("around", "before", "partition", "tail")

    def __init__(self, partition: Partition, version: int, read_committed: bool) -> None:
        self.partition = partition
        data = PartitionData(
            partition_index=partition.index, high_watermark=_MARK, last_stable_offset=_MARK, log_start_offset=_MARK,
            aborted_transactions=[] if read_committed else None, records=memoryview(b""),
        )  # fmt: skip
        topic = FetchableTopicResponse(topic=partition.topic, topic_id=partition.topic_id, partitions=[data])
        whole = b"".join(response_frame(FetchResponse(responses=[topic]), version, 0))
        at = whole.index(_OFFSETS.pack(_MARK, _MARK, _MARK))
        flexible = version in FetchResponse.flexible
        self.tail = b"\0\0\0" if flexible else b""
        end = len(whole) - len(self.tail) - (1 if flexible else 4)
        shape = RecordsShape(whole[:end], at, self.tail, flexible)
        self.around, self.before = shape.around, shape.before


class FetchMemo:
    __slots__ = (
        "_answers", "_generation", "_image", "_match", "_max_bytes", "_min_bytes", "_partitions", "_read_committed",
        "_topic", "_turn", "_version",
    )  # fmt: skip

    def __init__(
        self, context: Context, turn: Turn, request: FetchRequest, version: int, prefix: bytes, tail: bytes, topic: str
    ) -> None:
        self._partitions = context.partitions
        self._image = context.image
        self._turn = turn
        self._version = version
        self._match = FetchShape(version, prefix, tail, version >= LAST_EPOCH_VERSION).match
        self._topic = topic
        self._min_bytes = request.min_bytes
        self._max_bytes = min(request.max_bytes, context.settings.get("fetch.max.bytes"))
        self._read_committed = request.isolation_level == READ_COMMITTED
        self._answers: dict[int, Answer] = {}
        self._generation: int = context.image.generation

    def run(self, connection: Connection, data: bytearray, view: memoryview, start: int, stop: int) -> bool:
        asked = self._match(data, start, stop)
        if (
            asked is None
            or self._generation != self._image.generation
            or connection.slots
            or connection.unsent > UNSENT_MAX
            or connection.promised == self._turn.count
        ):
            return False
        correlation_id, index, epoch, offset, last_epoch, max_bytes = asked
        answer = self._answers.get(index) or self._answer(index)
        if answer is None:
            return False
        partition = answer.partition
        store = partition.log
        if (epoch >= 0 and epoch != partition.leader_epoch) or offset < store.start_offset or partition.error:
            return False
        if not partition.leads or last_epoch >= 0:
            return False
        try:
            until = partition.stable if self._read_committed else partition.committed
            found = store.read(offset, min(max_bytes, self._max_bytes), until)
            if found is not None and self._read_committed and store.aborted_between(offset, found.end_offset):
                return False
        except (CorruptSegment, OSError):
            return False
        if found is None or found.size < self._min_bytes:
            return False
        try:
            self._send(connection, answer, correlation_id, found)
        except OSError:  # nothing was sent: the ordinary way says what is wrong
            return False
        return True

    def _send(self, connection: Connection, answer: Answer, correlation_id: int, found: FileRange) -> None:
        partition, size, tail = answer.partition, found.size, answer.tail
        high_watermark, stable = partition.high_watermark, partition.last_stable_offset
        start = partition.log.start_offset
        if size <= READ_NOW_MAX:
            records = found.file.read(size, found.position)
            connection.send_part(answer.around(correlation_id, records, high_watermark, stable, start))
            return
        head = answer.before(correlation_id, size, high_watermark, stable, start)
        connection.send_parts([head, found, tail] if tail else [head, found])

    def _answer(self, index: int) -> Answer | None:
        partition = self._partitions.get(self._topic, index)
        if partition is None:
            return None
        answer = self._answers[index] = Answer(partition, self._version, self._read_committed)
        return answer


class FetchLane:
    def __init__(self, context: Context, turn: Turn) -> None:
        self.context = context
        self._turn = turn

    def remember(
        self, connection: Connection, request: FetchRequest, version: int, frame: memoryview, body_at: int
    ) -> None:
        """After an ordinary request: the second one of a kind lets the next take the short way."""
        if request.replica_state is not None:
            fast_replica.remember(self.context, self._turn, connection, request, version, frame, body_at)
            return
        if version < FIRST_VERSION or len(request.topics) != 1 or request.session_id or request.session_epoch != -1:
            return
        topic = request.topics[0]
        if len(topic.partitions) != 1 or request.forgotten_topics_data or request.rack_id:
            return
        name = topic.topic
        if version >= 13:
            known = self.context.image.topics_by_id.get(topic.topic_id)
            if known is None:
                return
            name = known.name
        # Marks in the partition's place show where it stands.
        marked = FetchPartition(partition=_MARK & 0x7FFFFFFF, current_leader_epoch=1, fetch_offset=_MARK)
        bare = FetchTopic(topic=topic.topic, topic_id=topic.topic_id, partitions=[marked])
        body = encode_bytes(
            FetchRequest(
                cluster_id=request.cluster_id, replica_id=request.replica_id, max_wait_ms=request.max_wait_ms,
                min_bytes=request.min_bytes, max_bytes=request.max_bytes, isolation_level=request.isolation_level,
                session_epoch=-1, topics=[bare], rack_id=request.rack_id,
            ), version,
        )  # fmt: skip
        if body_at + len(body) != len(frame) or request.replica_id >= 0:
            return
        at = body.index(Struct(">iiq").pack(_MARK & 0x7FFFFFFF, 1, _MARK))
        prefix = bytes(frame[HEADER_BEFORE_CLIENT : body_at + at])
        if connection.candidate == (version, prefix):
            tail = bytes(frame[body_at + at + ASKED_SIZE + (4 if version >= LAST_EPOCH_VERSION else 0) :])
            connection.memo = FetchMemo(self.context, self._turn, request, version, prefix, tail, name)
        else:
            connection.candidate = (version, prefix)
