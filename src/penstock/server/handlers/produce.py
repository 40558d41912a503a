"""Produce: each partition's batch to its log, then an answer when the acknowledgement that was asked for is true."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final

from penstock.coordinator.machine import ProducerStamp
from penstock.protocol.errors import ApiError, ErrorCode, InvalidRecords
from penstock.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from penstock.protocol.record_batch import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    batch_crc,
)
from penstock.replication.partition import Partition
from penstock.replication.partition_settings import PartitionSettings
from penstock.server.context import Call, Context
from penstock.server.deferred import Deferred
from penstock.server.leadership import MOVED, absence, leader_of
from penstock.server.transaction_calls import admit
from penstock.storage import jobs
from penstock.storage.worker import WorkerFailed
from penstock.transactions.transaction import TopicPartition

ACKS_ALL: Final = -1
FIRST_VERSION_THAT_HINTS: Final = 10  # knows where a partition is led (KIP-951)
FIRST_VERSION_ABORTABLE: Final = 11  # knows TRANSACTION_ABORTABLE
FIRST_VERSION_THAT_ADDS: Final = 12  # the first batch adds its partition to the transaction (KIP-890)
NOT_IN_TRANSACTION = "the partition was not added to the producer's transaction"
_NOT_IN_TRANSACTION = (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)
DECOMPRESSED_MAX: Final = 32 * 1024 * 1024

_Work = tuple[str, Partition | None, memoryview, PartitionProduceResponse]


def handle(
    context: Context, call: Call[ProduceRequest]
) -> Deferred[ProduceResponse] | Awaitable[ProduceResponse] | ProduceResponse:
    request = call.request
    if request.acks not in (ACKS_ALL, 0, 1):
        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS)
    work = _Produce(context, call)
    if request.transactional_id is not None and (begun := work.begun()):
        return work.begin_transactions(request.transactional_id, begun)
    if any(partition is not None and partition.settings.needs_worker for *_, partition in work.partitions()):
        return work.open_all()
    work.append_all()
    return work.deferred


class _Produce:
    """One request on its way: how many of its partitions are still to be acknowledged."""

    def __init__(self, context: Context, call: Call[ProduceRequest]) -> None:
        self.context = context
        self.request = call.request
        self.version = call.version
        self.connection = call.connection
        self.listener = call.listener
        self.response = ProduceResponse()
        self.deferred: Deferred[ProduceResponse] = Deferred()
        self._open = 1

    def partitions(self) -> Iterator[tuple[TopicProduceData, PartitionProduceData, Partition | None]]:
        for topic in self.request.topic_data:
            name = self._name(topic)
            for data in topic.partition_data:
                yield topic, data, self.context.partitions.get(name, data.index) if name else None

    def _name(self, topic: TopicProduceData) -> str:
        if self.version < 13:
            return topic.name
        known = self.context.image.topics_by_id.get(topic.topic_id)
        return known.name if known is not None else ""

    def _fail(self, name: str, answer: PartitionProduceResponse, error: ApiError) -> None:
        """Whoever asked the wrong broker learns which is the right one."""
        fail(answer, error)
        if error.code in MOVED and self.version >= FIRST_VERSION_THAT_HINTS:
            leader, epoch, node = leader_of(self.context, name, answer.index, self.listener)
            answer.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
            if node is not None and all(known.node_id != leader for known in self.response.node_endpoints):
                self.response.node_endpoints.append(
                    NodeEndpoint(node_id=leader, host=node.host, port=node.port, rack=node.rack)
                )

    def begun(self) -> dict[ProducerStamp, list[Partition]]:
        """The partitions in which a producer would begin its transaction with this request."""
        begun: dict[ProducerStamp, list[Partition]] = {}
        for _, data, partition in self.partitions():
            if partition is None or partition.internal:
                continue
            if data.records is None or len(data.records) < HEADER_SIZE:
                continue
            header = BatchHeader._make(HEADER.unpack_from(data.records))
            producer = ProducerStamp(header.producer_id, header.producer_epoch)
            if (
                header.is_transactional
                and header.producer_id >= 0
                and partition.admission.needs_verification(*producer)
            ):
                begun.setdefault(producer, []).append(partition)
        return begun

    def begin_transactions(
        self, transactional_id: str, begun: dict[ProducerStamp, list[Partition]]
    ) -> Awaitable[ProduceResponse]:
        """The coordinator must know of every partition before the first batch is in it."""
        work, release = self._take_along()
        return self._begin_transactions(transactional_id, begun, work, release)

    async def _begin_transactions(
        self,
        transactional_id: str,
        begun: dict[ProducerStamp, list[Partition]],
        work: list[_Work],
        release: Callable[[], None] | None,
    ) -> ProduceResponse:
        refused: dict[TopicPartition, ErrorCode] = {}
        try:
            for producer, partitions in begun.items():
                refused |= await admit(
                    self.context, transactional_id, producer, partitions,
                    adds=self.version >= FIRST_VERSION_THAT_ADDS, abortable=self.version >= FIRST_VERSION_ABORTABLE,
                )  # fmt: skip
        except BaseException:
            if release is not None:
                release()
            raise
        return await self._open_all(work, release, refused)

    def append_all(self) -> None:
        topics: dict[int, TopicProduceResponse] = {}
        for topic, data, partition in self.partitions():
            answer = self._answer(topics, topic, data)
            try:
                if data.records is None:
                    raise ApiError(ErrorCode.INVALID_RECORD, "a partition without records")
                self._append(self._name(topic), partition, data.records, answer)
            except ApiError as error:
                self._fail(self._name(topic), answer, error)
        self._acknowledged()

    def _answer(
        self, topics: dict[int, TopicProduceResponse], topic: TopicProduceData, data: PartitionProduceData
    ) -> PartitionProduceResponse:
        answer = PartitionProduceResponse(index=data.index, error_code=0, base_offset=-1)
        if id(topic) not in topics:
            topics[id(topic)] = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
            self.response.responses.append(topics[id(topic)])
        topics[id(topic)].partition_responses.append(answer)
        if self.version >= 13 and topic.topic_id not in self.context.image.topics_by_id:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID  # to a client, a sign that the topic was made again
        return answer

    def _append(
        self, name: str, partition: Partition | None, batch: memoryview, answer: PartitionProduceResponse
    ) -> None:
        if partition is None:
            raise ApiError(ErrorCode(answer.error_code or absence(self.context, name, answer.index)))
        if partition.internal:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is written by the broker alone")
        if self.request.acks == ACKS_ALL and partition.leads and not partition.enough_in_sync:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
        answer.base_offset, next_offset, answer.log_append_time_ms = partition.append(
            batch, self.context.now_ms(), self.request.transactional_id is not None
        )
        self._await(partition, next_offset, answer)

    def _await(self, partition: Partition, next_offset: int, answer: PartitionProduceResponse) -> None:
        failures = partition.failures

        def written() -> None:
            self._finish(partition, answer, partition.failures == failures)

        def committed() -> None:
            self._finish(partition, answer, partition.high_watermark >= next_offset)

        self._open += 1
        if self.request.acks == ACKS_ALL:
            partition.when_committed(next_offset, committed, partition.deadline_ms(self.request.timeout_ms))
        else:
            partition.when_written(written)

    def _finish(self, partition: Partition, answer: PartitionProduceResponse, stored: bool) -> None:
        if stored:
            answer.log_start_offset = partition.log.start_offset
        else:
            self._fail(partition.topic, answer, partition.failure())
        self._acknowledged()

    def _acknowledged(self) -> None:
        self._open -= 1
        if not self._open:
            self.deferred.resolve(self.response)

    def open_all(self) -> Awaitable[ProduceResponse]:
        """Batches that must be opened go to the worker process first."""
        work, release = self._take_along()
        return self._open_all(work, release, {})

    def _take_along(self) -> tuple[list[_Work], Callable[[], None] | None]:
        """The memory that the request came in is another's when this turn ends, unless it is taken along."""
        topics: dict[int, TopicProduceResponse] = {}
        release = self.connection.detach_large()
        work = [
            (self._name(topic), partition, _kept(data.records, release is not None), self._answer(topics, topic, data))
            for topic, data, partition in self.partitions()
        ]
        return work, release

    async def _open_all(
        self, work: list[_Work], release: Callable[[], None] | None, refused: Mapping[TopicPartition, ErrorCode]
    ) -> ProduceResponse:
        try:
            for name, partition, batch, answer in work:
                try:
                    if partition is not None and (code := refused.get((partition.topic, partition.index))):
                        raise ApiError(code, NOT_IN_TRANSACTION if code in _NOT_IN_TRANSACTION else None)
                    opened = batch if partition is None else await self._opened(partition, batch)
                    self._append(name, partition, opened, answer)
                except ApiError as error:
                    self._fail(name, answer, error)
            self._acknowledged()
            return await self.deferred.wait()
        finally:
            if release is not None:
                release()

    async def _opened(self, partition: Partition, batch: memoryview) -> memoryview:
        settings, worker = partition.settings, self.context.worker
        if not settings.needs_worker or not _worth_opening(batch, settings):
            return batch
        try:
            if settings.require_keys or settings.validate_records:
                wrong = await worker.run(jobs.validate, bytes(batch), settings.require_keys, DECOMPRESSED_MAX)
                if wrong is not None and wrong.records:
                    raise InvalidRecords(wrong.records, f"{wrong.problem} in topic partition {partition.name}.")
                if wrong is not None:
                    raise ApiError(ErrorCode.INVALID_RECORD, wrong.problem)
            if settings.compression is None or batch[ATTRIBUTES_AT + 1] & COMPRESSION_MASK == settings.compression:
                return batch
            recompressed = await worker.run(
                jobs.recompress, bytes(batch), settings.compression, settings.compression_level, DECOMPRESSED_MAX
            )
        except WorkerFailed as failure:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, str(failure)) from None  # the producer tries again
        if isinstance(recompressed, str):
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, recompressed)
        return memoryview(bytearray(recompressed))


def _kept(records: memoryview | None, is_ours: bool) -> memoryview:
    if records is None:
        return memoryview(b"")
    return records if is_ours else memoryview(bytearray(records))


def _worth_opening(batch: memoryview, settings: PartitionSettings) -> bool:
    """Whether the header is sound. If not, the append refuses the batch; recompressed, its CRC would fit."""
    if not HEADER_SIZE <= len(batch) <= settings.max_message_bytes:
        return False
    header = BatchHeader._make(HEADER.unpack_from(batch))
    return header.magic == MAGIC and header.size == len(batch) and header.crc == batch_crc(batch)


def fail(answer: PartitionProduceResponse, error: ApiError) -> None:
    answer.error_code = error.code
    answer.error_message = error.message
    answer.base_offset = answer.log_append_time_ms = -1
    if isinstance(error, InvalidRecords):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=place, batch_index_error_message=error.message)
            for place in error.records
        ]
