"""One range of a partition, batch by batch, from whoever leads it.

The next request is sent before the batches of an answer are handed out, so that the broker works while the job does.
Aborted transactions and control batches are left out here; what is left are whole batches, of which the first and the
last may hold records that stand outside the range.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from penstock.pipeline.brokers import EARLIEST, LATEST, PASSING, PAUSE_S_FIRST, PAUSE_S_MAX, Brokers, TopicPartition
from penstock.pipeline.connection import Connection, Unreachable
from penstock.pipeline.problem import ALLOW_LOSS, DataLost, PipelineError
from penstock.protocol.errors import ApiError, CorruptBatch, ErrorCode
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from penstock.protocol.record_batch import HEADER_SIZE, BatchHeader, read_batches

FETCH_VERSION_MAX = 12  # the last that names topics
FETCH_BYTES = 8 << 20
FETCH_WAIT_MS = 500
EMPTY_ANSWERS_MAX = 3  # of a log that reaches further, before we believe that nothing is left there
GONE_PATIENCE_S = 5.0  # for a topic that one broker has not heard of
ABORT = 0


class OffsetRange(NamedTuple):
    place: TopicPartition
    start: int
    stop: int  # the first offset that is not in it

    def __str__(self) -> str:
        return f"{self.place} [{self.start}, {self.stop})"


class RangeFetcher:
    def __init__(
        self,
        brokers: Brokers,
        wanted: OffsetRange,
        *,
        committed: bool = True,
        fail_on_data_loss: bool = True,
        fetch_bytes: int = FETCH_BYTES,
    ) -> None:
        self._brokers = brokers
        self._place = wanted.place
        self._stop = wanted.stop
        self._committed = committed
        self._fail_on_data_loss = fail_on_data_loss
        self._fetch_bytes = fetch_bytes
        self.position = wanted.start
        self._asked: tuple[Connection, int] | None = None  # whom we wait for, and for the answer to which request
        self._refused = ErrorCode.NONE  # before anybody was asked
        self._empty = 0
        self._failing_since: float | None = None
        self._pause_s = PAUSE_S_FIRST

    def batches(self) -> Iterator[memoryview]:
        """Raises DataLost where records of the range are gone, unless that was to be put up with."""
        try:
            yield from self._batches()
        finally:
            if self._asked is not None:  # whoever reads has seen enough
                connection, number = self._asked
                connection.discard(number)
                self._asked = None

    def _batches(self) -> Iterator[memoryview]:
        while self.position < self._stop:
            try:
                data = self._fetch()
            except Unreachable as error:
                self._forget()
                self._wait_or_fail(str(error))
                continue
            code = ErrorCode(data.error_code)
            if code is not ErrorCode.NONE:
                self._handle(code)
                continue
            visible = self._take(data)
            if self.position < self._stop:
                self._send()
            yield from visible

    # ---- asking

    def _send(self) -> None:
        """Never fails: whoever waits for the answer finds out."""
        try:
            connection = self._brokers.leader(self._place)
            partition = FetchPartition(
                partition=self._place.partition,
                fetch_offset=self.position,
                partition_max_bytes=self._fetch_bytes,
            )
            request = FetchRequest(
                max_wait_ms=FETCH_WAIT_MS,
                min_bytes=1,
                max_bytes=self._fetch_bytes,
                isolation_level=int(self._committed),
                topics=[FetchTopic(topic=self._place.topic, partitions=[partition])],
            )
            number = connection.send(request, connection.newest(FetchRequest, FETCH_VERSION_MAX))
            self._asked, self._refused = (connection, number), ErrorCode.NONE
        except Unreachable:
            self._asked = None
        except ApiError as error:
            self._asked, self._refused = None, error.code

    def _fetch(self) -> PartitionData:
        if self._asked is None:
            self._send()
        if self._refused is not ErrorCode.NONE:
            return PartitionData(error_code=self._refused)
        if self._asked is None:
            raise Unreachable(f"the leader of {self._place} does not answer")
        connection, number = self._asked
        self._asked = None
        answer = connection.receive(number)
        if answer.error_code:
            return PartitionData(error_code=answer.error_code)
        partitions: list[PartitionData] = [each for topic in answer.responses for each in topic.partitions]
        if not partitions:
            raise Unreachable(f"the leader of {self._place} answers with nothing")
        return partitions[0]

    def _forget(self) -> None:
        self._brokers.forget()
        self._asked, self._refused = None, ErrorCode.NONE

    # ---- what came

    def _take(self, data: PartitionData) -> list[memoryview]:
        """The batches to be seen; the position stands behind them."""
        visible: list[memoryview] = []
        before = self.position
        aborted = sorted(
            ((each.first_offset, each.producer_id) for each in data.aborted_transactions or ()), reverse=True
        )
        aborting: set[int] = set()
        for header, batch in read_batches(data.records if data.records is not None else b""):
            while aborted and aborted[-1][0] <= header.last_offset:
                aborting.add(aborted.pop()[1])
            if header.last_offset >= self.position:
                if self._is_visible(header, batch, aborting) and header.base_offset < self._stop:
                    visible.append(batch)
                self.position = header.last_offset + 1
            if header.base_offset >= self._stop:
                break
        if self.position == before:
            self._nothing_came(data)
        else:
            self._empty, self._failing_since, self._pause_s = 0, None, PAUSE_S_FIRST
        return visible

    def _is_visible(self, header: BatchHeader, batch: memoryview, aborting: set[int]) -> bool:
        if header.is_control:
            if header.record_count and _marker_type(batch) == ABORT:
                aborting.discard(header.producer_id)
            return False
        return not (self._committed and header.is_transactional and header.producer_id in aborting)

    def _nothing_came(self, data: PartitionData) -> None:
        end = data.last_stable_offset if self._committed and data.last_stable_offset >= 0 else data.high_watermark
        if end >= self._stop:
            self._empty += 1
            if self._empty >= EMPTY_ANSWERS_MAX:  # compaction has left nothing up to the end of the range
                self.position = self._stop
            return
        self._wait_or_fail(f"it ends at offset {end}", lost=True)

    def _handle(self, code: ErrorCode) -> None:
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range()
        elif code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._forget()
            self._wait_or_fail("there is no such partition any more", lost=True, patience_s=GONE_PATIENCE_S)
        elif code in PASSING:
            self._forget()
            self._wait_or_fail(code.name)
        else:
            raise PipelineError(f"{self._place} at offset {self.position}: {code.name}")

    def _out_of_range(self) -> None:
        ends = {
            which: self._brokers.offsets({self._place: which}, committed=False).get(self._place, -1)
            for which in (EARLIEST, LATEST)
        }
        if ends[EARLIEST] <= self.position <= ends[LATEST]:
            return  # a leader that was elected just now did not know better
        problem = f"the log reaches from {ends[EARLIEST]} to {ends[LATEST]}"
        self._lose(problem, ends[EARLIEST] if ends[EARLIEST] > self.position else self._stop)

    def _lose(self, problem: str, go_on_at: int) -> None:
        if self._fail_on_data_loss:
            raise DataLost(
                f"{self._place}: offset {self.position} was to be read, but {problem}. Records may have been deleted "
                f"by retention, or the topic was deleted or made anew. Option {ALLOW_LOSS} makes the job go on with "
                "what is there."
            )
        self.position = min(go_on_at, self._stop)

    def _wait_or_fail(self, problem: str, *, lost: bool = False, patience_s: float | None = None) -> None:
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since > (self._brokers.settings.patience_s if patience_s is None else patience_s):
            if lost:
                self._lose(problem, self._stop)
                return
            raise PipelineError(f"{self._place} at offset {self.position}: {problem}")
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)


def _marker_type(batch: memoryview) -> int:
    """What a control batch says: the second field of its key, after the version."""
    try:
        at = _skip_varint(batch, HEADER_SIZE) + 1  # the length of the record, and its attributes
        for _ in range(3):  # the deltas of timestamp and offset, and the length of the key
            at = _skip_varint(batch, at)
        return batch[at + 2] << 8 | batch[at + 3]
    except IndexError:
        raise CorruptBatch("a control batch is cut off") from None


def _skip_varint(data: memoryview, at: int) -> int:
    while data[at] > 0x7F:
        at += 1
    return at + 1
