"""Drives one state machine per partition of an internal topic.

    command -> decide -> append its records as one batch -> apply them -> wait for the commit -> reply

Records may be part of a producer's transaction; then the marker that ends it goes through here as well, because the
machine must know. What an outcome wants done elsewhere (its effects) is handed on once it is committed.

A machine is loaded from its partition's log; commands that come meanwhile wait for that, in order, up to a bound. When
an append or a commit fails, the machine is thrown away with everything that waited for it and loaded again, so what it
remembers is never ahead of what is stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from penstock.coordinator.machine import LogRecord, Machine, Outcome, ProducerStamp, Ticket
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.record_batch import BatchHeader, CorruptBatch, Record, build_batch, read_batches, read_records
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.storage.aborted import Marker, read_marker

log = logging.getLogger("penstock.coordinator")

LOAD_CHUNK_BYTES = 1 << 20
LOAD_DECOMPRESSED_MAX = 64 * 1024 * 1024
WAITING_FOR_LOAD_MAX = 10_000
TICK_MS_MIN = 10
RELOAD_S_FIRST = 0.5
RELOAD_S_MAX = 60.0

Reply = Callable[[Any], None]  # called with the reply, or with an ApiError
MakeCommand = Callable[[Ticket], Any]
OnEffect = Callable[[Partition, Any], None]
Done = Callable[[ApiError | None], None]


class Shard:
    """A machine, its partition, and who waits for its replies."""

    def __init__(self, runtime: Runtime, partition: Partition) -> None:
        self._runtime = runtime
        self.partition = partition
        self.machine: Machine = runtime.new_machine()
        self._waiting: dict[Ticket, Reply] = {}
        # What is to be done once the machine is loaded, and how to refuse it. None from then on.
        self._parked: list[tuple[Callable[[], None], Reply]] | None = []
        self._tickets = 0
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms: int | None = None
        self._closed = False
        self.loading = asyncio.ensure_future(self._load())

    # ---- loading

    async def _load(self) -> None:
        partition, now_ms = self.partition, self._runtime.now_ms
        offset, count = partition.log.start_offset, 0
        try:
            await self._settled()
            while (found := partition.log.read(offset, LOAD_CHUNK_BYTES, partition.committed)) is not None:
                begun = offset
                for header, batch in read_batches(found.read()):
                    offset = header.last_offset + 1
                    count += self._apply_batch(header, batch, now_ms())
                if offset == begun:
                    raise CorruptBatch(f"no whole batch at offset {offset}")
                await asyncio.sleep(0)
        except Exception:  # whatever it is, those who wait must not wait for ever
            log.exception("load failed", extra={"partition": partition.name, "offset": offset})
            self._drop(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        parked, self._parked = self._parked or [], None
        self._runtime.was_loaded(self)
        self._carry_out(self.machine.loaded(now_ms()))
        if count:
            log.info("loaded", extra={"partition": partition.name, "records": count})
        for go_on, refuse in parked:
            try:
                go_on()
            except Exception:
                log.exception("a command failed", extra={"partition": partition.name})
                refuse(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))
        self._reschedule()

    def _apply_batch(self, header: BatchHeader, batch: memoryview, now_ms: int) -> int:
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None:
                self.machine.end_transaction(header.producer_id, marker.committed, now_ms)
            return 0
        count = 0
        producer = ProducerStamp(header.producer_id, header.producer_epoch)
        for record in read_records(batch, LOAD_DECOMPRESSED_MAX, compacted=True):
            stored = LogRecord(record.key or b"", record.value)
            if header.is_transactional:
                self.machine.apply_in_transaction(stored, producer, now_ms)
            else:
                self.machine.apply(stored, now_ms)
            count += 1
        return count

    async def _settled(self) -> None:
        """A machine before this one may have left batches that are on their way to the device: they count, too."""
        partition = self.partition
        while partition.high_watermark < (end := partition.log.next_offset):
            if partition.error is not None:
                raise partition.error
            settled = asyncio.Event()
            partition.when_committed(end, settled.set)
            await settled.wait()

    # ---- commands

    def submit(self, make: MakeCommand, reply: Reply) -> None:
        if not self._is_ready(lambda: self.submit(make, reply), reply):
            return
        self._tickets += 1
        ticket = Ticket(self._tickets)
        self._waiting[ticket] = reply
        try:
            outcome = self.machine.decide(make(ticket), self._runtime.now_ms())
        except ApiError as error:
            del self._waiting[ticket]
            reply(error)
            return
        except BaseException:
            del self._waiting[ticket]
            raise
        self._carry_out(outcome)

    def _is_ready(self, go_on: Callable[[], None], refuse: Reply) -> bool:
        """If not, it is done later or refused."""
        if self._closed:
            refuse(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif self._parked is None:
            return True
        elif len(self._parked) >= WAITING_FOR_LOAD_MAX:
            refuse(ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            self._parked.append((go_on, refuse))
        return False

    def end_transaction(self, producer: ProducerStamp, marker: Marker, done: Done) -> None:
        """Writes the marker, and lets the machine know."""
        if not self._is_ready(lambda: self.end_transaction(producer, marker, done), done):
            return
        partition, now_ms = self.partition, self._runtime.now_ms()
        try:
            end = partition.append_marker(producer.producer_id, producer.producer_epoch, marker, now_ms)
        except ApiError as error:
            done(error)
            return
        self.machine.end_transaction(producer.producer_id, marker.committed, now_ms)

        def committed() -> None:
            if partition.high_watermark >= end:
                done(None)
            else:
                self._drop(ErrorCode.COORDINATOR_NOT_AVAILABLE)
                done(ApiError(ErrorCode.KAFKA_STORAGE_ERROR))

        partition.when_committed(end, committed)
        self._reschedule()

    def tick(self) -> None:
        self._timer = self._due_ms = None
        self._carry_out(self.machine.tick(self._runtime.now_ms()))

    def _carry_out(self, outcome: Outcome) -> None:
        partition = self.partition
        if outcome.records and outcome.producer is not None:
            try:
                partition.check_producer(*outcome.producer)
            except ApiError as error:  # a zombie's: nothing is wrong with the machine
                for ticket, _ in outcome.replies:
                    self._waiting.pop(ticket)(error)
                return
        if outcome.records:
            try:
                self._append(outcome.records, outcome.producer)
            except ApiError as error:
                log.error("append failed: %s", error, extra={"partition": partition.name})
                self._drop(ErrorCode.COORDINATOR_NOT_AVAILABLE)
                return
        if outcome.replies or outcome.records or outcome.effects:  # records that nobody waits for must be stored, too
            end = partition.log.next_offset
            partition.when_committed(end, lambda: self._committed(outcome, end))
        for command in outcome.again:
            if not self._closed:
                self._carry_out(self.machine.decide(command, self._runtime.now_ms()))
        self._reschedule()

    def _append(self, records: list[LogRecord], producer: ProducerStamp | None) -> None:
        now_ms = self._runtime.now_ms()
        producer_id, producer_epoch = producer or (-1, -1)
        batch = build_batch(
            [Record(i, now_ms, r.key, r.value, ()) for i, r in enumerate(records)], producer_id=producer_id,
            producer_epoch=producer_epoch, transactional=producer is not None,
        )  # fmt: skip
        self.partition.append(memoryview(bytearray(batch)), now_ms)
        for record in records:
            if producer is None:
                self.machine.apply(record, now_ms)
            else:
                self.machine.apply_in_transaction(record, producer, now_ms)

    def _committed(self, outcome: Outcome, end: int) -> None:
        if self._closed:
            return
        if self.partition.high_watermark < end:
            self._drop(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        for ticket, message in outcome.replies:
            reply = self._waiting.pop(ticket, None)
            if reply is not None:
                reply(message)
        for effect in outcome.effects:
            self._runtime.on_effect(self.partition, effect)

    # ---- timers and the end

    def _reschedule(self) -> None:
        if self._closed:
            return
        due = self.machine.next_deadline_ms()
        if due == self._due_ms and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due_ms = due
        if due is not None:
            delay_ms = max(due - self._runtime.now_ms(), TICK_MS_MIN)
            self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self.tick)

    def _drop(self, code: ErrorCode) -> None:
        """Everyone who waits is told; whoever comes next finds a machine that is loaded anew. So does time: what was to
        be done by a deadline is waited for by nobody who would ask."""
        self._runtime.forget(self)
        self.close(code)
        self._runtime.load_later(self.partition)

    def close(self, code: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.loading.cancel()
        waiting = [*self._waiting.values(), *(reply for _, reply in self._parked or [])]
        self._waiting.clear()
        self._parked = []
        for reply in waiting:
            reply(ApiError(code))


class Runtime:
    def __init__(
        self,
        topic: str,
        new_machine: Callable[[], Machine],
        partitions: Partitions,
        now_ms: Callable[[], int],
        on_effect: OnEffect | None = None,
    ) -> None:
        self.topic = topic
        self.on_effect: OnEffect = on_effect or _no_effect
        self.new_machine = new_machine
        self.now_ms = now_ms
        self._partitions = partitions
        self._shards: dict[int, Shard] = {}
        self._reloads: dict[int, asyncio.TimerHandle] = {}
        self._drops: dict[int, int] = {}  # in a row
        self._closed = False

    def shard(self, index: int) -> Shard:
        shard = self._shards.get(index)
        if shard is None:
            partition = self._partitions.get(self.topic, index)
            if partition is None or partition.error is not None:
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            shard = self._shards[index] = Shard(self, partition)
        return shard

    def submit(self, index: int, make: MakeCommand, reply: Reply) -> None:
        """Asks the machine of a partition; `make` turns a ticket into the command."""
        try:
            shard = self.shard(index)
        except ApiError as error:
            reply(error)
            return
        shard.submit(make, reply)

    def end_transaction(self, index: int, producer: ProducerStamp, marker: Marker, done: Done) -> None:
        """In a partition of this runtime's topic, where the machine must learn of it."""
        try:
            shard = self.shard(index)
        except ApiError as error:
            done(error)
            return
        shard.end_transaction(producer, marker, done)

    async def ask(self, index: int, make: MakeCommand) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def answered(reply: Any) -> None:
            if future.done():
                return
            if isinstance(reply, ApiError):
                future.set_exception(reply)
            else:
                future.set_result(reply)

        self.submit(index, make, answered)
        return await future

    def broadcast(self, make: MakeCommand) -> None:
        """To every machine that there is; nobody waits for the replies."""
        for shard in list(self._shards.values()):
            shard.submit(make, lambda reply: None)

    def load_all(self, count: int) -> None:
        """On start: the machines of partitions that hold something, so that time-outs run on."""
        for index in range(count):
            partition = self._partitions.get(self.topic, index)
            if partition is not None and partition.log.end_offset > partition.log.start_offset:
                self.shard(index)

    def load_later(self, partition: Partition) -> None:
        """After a machine was dropped. A partition that has stopped for good is left alone."""
        index = partition.index
        if self._closed or index in self._reloads:
            return
        drops = self._drops[index] = self._drops.get(index, 0) + 1

        def load() -> None:
            del self._reloads[index]
            if not self._closed and partition.error is None and index not in self._shards:
                self.shard(index)

        delay_s = min(RELOAD_S_FIRST * 2 ** (drops - 1), RELOAD_S_MAX)
        self._reloads[index] = asyncio.get_running_loop().call_later(delay_s, load)

    def was_loaded(self, shard: Shard) -> None:
        self._drops.pop(shard.partition.index, None)

    def forget(self, shard: Shard) -> None:
        if self._shards.get(shard.partition.index) is shard:
            del self._shards[shard.partition.index]

    def close(self) -> None:
        self._closed = True
        for reload in self._reloads.values():
            reload.cancel()
        for shard in list(self._shards.values()):
            shard.close()
        self._shards.clear()


def _no_effect(partition: Partition, effect: Any) -> None:
    raise AssertionError(f"nobody carries out {effect}")
