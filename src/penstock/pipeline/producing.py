"""Batches on their way to the leaders: in order within a partition, each one once, whatever has to be sent again.

Every batch carries the identity of its producer and a sequence, so that a broker knows one that it has. Not more
batches of a partition are under way than a broker remembers.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from penstock.pipeline.brokers import PASSING, PAUSE_S_FIRST, PAUSE_S_MAX, Brokers, TopicPartition
from penstock.pipeline.connection import Connection, Unreachable
from penstock.pipeline.problem import Fenced, PipelineError
from penstock.pipeline.sealing import Encoded, seal
from penstock.pipeline.transactions import FENCED, Identity
from penstock.protocol.compression import Compression
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

VERSION_MAX = 12  # the last that names topics, and the first that takes new partitions into a transaction (KIP-890)
REQUESTS_MAX = 4  # under way to one leader; brokers remember five batches
REQUEST_BYTES = 4 << 20
TIMEOUT_MS = 30_000
RESENT = PASSING | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
SEQUENCES = 1 << 31


@dataclass(slots=True)
class _Batch:
    place: TopicPartition
    data: bytes


class Producer:
    def __init__(
        self,
        brokers: Brokers,
        identity: Identity,
        *,
        transactional_id: str | None = None,
        acks: int = -1,
        compression: Compression = Compression.NONE,
    ) -> None:
        self._brokers = brokers
        self._identity = identity
        self._transactional_id = transactional_id
        self._acks = acks
        self._compression = compression
        self._sequences: dict[TopicPartition, int] = {}
        self._waiting: dict[TopicPartition, _Batch] = {}  # for the next requests
        self._waiting_bytes = 0
        self._unacknowledged: dict[TopicPartition, deque[_Batch]] = {}
        self._under_way: deque[tuple[Connection, int, list[_Batch]]] = deque()  # and the number of the request
        self.rows = 0
        self._first: tuple[TopicPartition, int] | None = None

    def send(self, encoded: Encoded) -> None:
        """May wait for answers to what was sent before."""
        place = TopicPartition(encoded.topic, encoded.partition)
        if place in self._waiting or self._waiting_bytes >= REQUEST_BYTES:
            self._dispatch()
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = (sequence + encoded.count) % SEQUENCES
        data = seal(
            encoded,
            self._compression,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            base_sequence=sequence,
            transactional=self._transactional_id is not None,
        )
        batch = _Batch(place, data)
        self._waiting[place] = batch
        self._waiting_bytes += len(data)
        self._unacknowledged.setdefault(place, deque()).append(batch)
        self.rows += encoded.count

    def flush(self) -> None:
        """Until everything is acknowledged."""
        self._dispatch()
        try:
            while self._under_way:
                self._collect()
        except (Unreachable, ApiError) as error:
            self._send_again(error)
        assert not any(self._unacknowledged.values()), "what is not acknowledged is sent again, or raises"

    @property
    def first(self) -> tuple[TopicPartition, int] | None:
        """Where the first batch begins that was acknowledged, once everything is; None if there were no rows."""
        if self.rows and self._first is None:
            raise PipelineError("no leader says at which offset it has written the rows")
        return self._first

    # ---- requests

    def _dispatch(self) -> None:
        batches, self._waiting, self._waiting_bytes = list(self._waiting.values()), {}, 0
        if not batches:
            return
        try:
            self._ask(batches)
        except (Unreachable, ApiError) as error:
            self._send_again(error)

    def _ask(self, batches: list[_Batch]) -> None:
        by_leader: dict[Connection, list[_Batch]] = {}
        for batch in batches:
            by_leader.setdefault(self._brokers.leader(batch.place), []).append(batch)
        for connection, each_of in by_leader.items():
            while sum(each is connection for each, *_ in self._under_way) >= REQUESTS_MAX:
                self._collect()
            number = connection.send(self._request(each_of), connection.newest(ProduceRequest, VERSION_MAX))
            self._under_way.append((connection, number, each_of))

    def _request(self, batches: list[_Batch]) -> ProduceRequest:
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            data = PartitionProduceData(index=batch.place.partition, records=memoryview(batch.data))
            topics.setdefault(batch.place.topic, []).append(data)
        return ProduceRequest(
            transactional_id=self._transactional_id,
            acks=self._acks,
            timeout_ms=TIMEOUT_MS,
            topic_data=[TopicProduceData(name=name, partition_data=each) for name, each in topics.items()],
        )

    def _collect(self) -> None:
        """The answer to the oldest request. Raises if something must be sent again."""
        connection, number, batches = self._under_way.popleft()
        self._accept(connection.receive(number), batches)

    def _accept(self, answer: ProduceResponse, batches: list[_Batch]) -> None:
        unanswered = {batch.place: batch for batch in batches}
        again: ApiError | None = None
        for topic in answer.responses:
            for each in topic.partition_responses:
                batch = unanswered.pop(TopicPartition(topic.name, each.index), None)
                code = ErrorCode(each.error_code)
                if batch is None:
                    continue  # nobody has asked, and it is not known what for
                if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    self._acknowledge(batch, each.base_offset)
                elif code in RESENT:
                    again = ApiError(code, f"{batch.place}: {each.error_message or 'not written'}")
                else:
                    self._refuse(batch.place, code, each.error_message)
        for place in unanswered:
            again = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{place}: the leader does not say what came of it")
        if again is not None:
            raise again

    def _acknowledge(self, batch: _Batch, offset: int) -> None:
        self._unacknowledged[batch.place].remove(batch)
        if self._first is None and offset >= 0:
            self._first = (batch.place, offset)

    def _refuse(self, place: TopicPartition, code: ErrorCode, message: str | None) -> None:
        if code in FENCED:
            raise Fenced(f"{place}: another task writes under the name {self._transactional_id!r} ({code.name})")
        hint = f"; topic {place.topic} needs a larger max.message.bytes" if code in TOO_LARGE else ""
        raise PipelineError(f"{place} does not take the rows: {code.name}{f' ({message})' if message else ''}{hint}")

    def _send_again(self, error: Exception) -> None:
        """Everything that is not acknowledged, one batch of a partition after the other, until it is."""
        deadline = time.monotonic() + self._brokers.settings.patience_s
        pause_s = PAUSE_S_FIRST
        while True:
            if time.monotonic() + pause_s > deadline:
                raise PipelineError(f"rows could not be written: {error}") from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)
            self._brokers.forget()
            self._under_way.clear()
            try:
                self._send_rest()
                return
            except (Unreachable, ApiError) as failure:
                error = failure

    def _send_rest(self) -> None:
        while rest := [waiting[0] for waiting in self._unacknowledged.values() if waiting]:
            for batch in rest:
                connection = self._brokers.leader(batch.place)
                answer = connection.ask(self._request([batch]), connection.newest(ProduceRequest, VERSION_MAX))
                self._accept(answer, [batch])
        self._waiting, self._waiting_bytes = {}, 0
