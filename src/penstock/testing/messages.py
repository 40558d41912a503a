"""What a test puts into a topic and finds there: read from the log and written through the handler of Produce.

Neither goes over the network, so neither meets the faults that a test has meant for the code it tests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.broker.app import Broker
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from penstock.protocol.record_batch import BatchHeader, Record, build_batch, read_batches, read_records
from penstock.replication.partition import Partition
from penstock.server.context import Call
from penstock.server.deferred import Deferred
from penstock.server.handlers import produce as producing
from penstock.storage.aborted import AbortedTransaction

READ_BYTES = 1 << 20
DECOMPRESSED_MAX = 256 * 1024 * 1024
WRITE_MS_MAX = 10_000
PRODUCE_VERSION = 12  # the last one that has topics by name


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as it lies in the log."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def text(self) -> str:
        """The value as UTF-8; empty if there is none."""
        return (self.value or b"").decode()

    def json(self) -> Any:
        """What the value says, read as JSON."""
        return json.loads(self.value or b"null")

    def header(self, name: str) -> bytes | None:
        """The last one of this name, as Kafka's clients look it up."""
        return next((value for each, value in reversed(self.headers) if each == name), None)


# ---- writing


async def write(broker: Broker, topic: str, index: int, records: list[Record]) -> int:
    """Where the first of them stands, when all are committed. Raises ApiError."""
    batch = memoryview(bytearray(build_batch(records)))
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=batch)])
    request = ProduceRequest(acks=producing.ACKS_ALL, timeout_ms=WRITE_MS_MAX, topic_data=[data])
    call = Call(request, PRODUCE_VERSION, "penstock-testing", "127.0.0.1")
    reply = producing.handle(broker.router.context, call)
    if isinstance(reply, Deferred):
        reply = await reply.wait()
    elif not isinstance(reply, ProduceResponse):
        reply = await reply
    answer = reply.responses[0].partition_responses[0]
    if answer.error_code:
        raise ApiError(ErrorCode(answer.error_code), answer.error_message or "")
    return answer.base_offset


# ---- reading


async def read(broker: Broker, topic: str, index: int, committed: bool) -> list[StoredMessage]:
    """All that consumers see, of aborted and open transactions too unless only what is committed is asked for."""
    partition = broker.partitions.get(topic, index)
    assert partition is not None
    until = partition.stable if committed else partition.committed
    found: list[StoredMessage] = []
    offset = partition.log.start_offset
    while (piece := partition.log.read(offset, READ_BYTES, until)) is not None:
        aborted = partition.log.aborted_between(offset, piece.end_offset) if committed else []
        begun = offset
        for header, batch in read_batches(piece.read()):
            offset = max(offset, header.last_offset + 1)
            if not header.is_control and not _was_aborted(header, aborted):
                found += _messages(partition, batch, begun)
        assert offset > begun, f"no whole batch at offset {offset}"
    return found


def _messages(partition: Partition, batch: memoryview, first: int) -> Iterator[StoredMessage]:
    for record in read_records(batch, DECOMPRESSED_MAX, compacted=True):
        if record.offset >= first:
            yield StoredMessage(partition.topic, partition.index, *record)


def _was_aborted(header: BatchHeader, aborted: list[AbortedTransaction]) -> bool:
    return header.is_transactional and any(
        each.producer_id == header.producer_id and each.first_offset <= header.base_offset < each.last_offset
        for each in aborted
    )
