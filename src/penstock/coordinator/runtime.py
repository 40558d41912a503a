"""Drives one state machine per partition of an internal topic.

    command -> decide -> append its records as one batch -> apply them -> wait for the commit -> reply

A machine is loaded from its partition's log; commands that come meanwhile wait for that, in order, up to a bound. When
an append or a commit fails, the machine is thrown away with everything that waited for it and loaded again, so what it
remembers is never ahead of what is stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from penstock.coordinator.machine import LogRecord, Machine, Outcome, Ticket
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.record_batch import CorruptBatch, Record, build_batch, read_batches, read_records
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions

log = logging.getLogger("penstock.coordinator")

LOAD_CHUNK_BYTES = 1 << 20
LOAD_DECOMPRESSED_MAX = 64 * 1024 * 1024
WAITING_FOR_LOAD_MAX = 10_000
TICK_MS_MIN = 10

Reply = Callable[[Any], None]  # called with the reply, or with an ApiError
MakeCommand = Callable[[Ticket], Any]


class Shard:
    """A machine, its partition, and who waits for its replies."""

    def __init__(self, runtime: Runtime, partition: Partition) -> None:
        self._runtime = runtime
        self.partition = partition
        self.machine: Machine = runtime.new_machine()
        self._waiting: dict[Ticket, Reply] = {}
        self._parked: list[tuple[MakeCommand, Reply]] | None = []  # None once the machine is loaded
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
                    for record in read_records(batch, LOAD_DECOMPRESSED_MAX, compacted=True):
                        self.machine.apply(LogRecord(record.key or b"", record.value), now_ms())
                        count += 1
                if offset == begun:
                    raise CorruptBatch(f"no whole batch at offset {offset}")
                await asyncio.sleep(0)
        except Exception:  # whatever it is, those who wait must not wait for ever
            log.exception("load failed", extra={"partition": partition.name, "offset": offset})
            self._drop(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        self.machine.loaded(now_ms())
        if count:
            log.info("loaded", extra={"partition": partition.name, "records": count})
        parked, self._parked = self._parked or [], None
        for make, reply in parked:
            try:
                self.submit(make, reply)
            except Exception:
                log.exception("a command failed", extra={"partition": partition.name})
                reply(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))
        self._reschedule()

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
        if self._closed:
            reply(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        if self._parked is not None:
            if len(self._parked) >= WAITING_FOR_LOAD_MAX:
                reply(ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            else:
                self._parked.append((make, reply))
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

    def tick(self) -> None:
        self._timer = self._due_ms = None
        self._carry_out(self.machine.tick(self._runtime.now_ms()))

    def _carry_out(self, outcome: Outcome) -> None:
        partition = self.partition
        if outcome.records:
            try:
                self._append(outcome.records)
            except ApiError as error:
                log.error("append failed: %s", error, extra={"partition": partition.name})
                self._drop(ErrorCode.COORDINATOR_NOT_AVAILABLE)
                return
        if outcome.replies or outcome.records:  # if nobody waits for them, it must still be known that they are stored
            replies, end = outcome.replies, partition.log.next_offset
            partition.when_committed(end, lambda: self._reply(replies, end))
        self._reschedule()

    def _append(self, records: list[LogRecord]) -> None:
        now_ms = self._runtime.now_ms()
        batch = build_batch([Record(i, now_ms, r.key, r.value, ()) for i, r in enumerate(records)])
        self.partition.append(memoryview(bytearray(batch)), now_ms)
        for record in records:
            self.machine.apply(record, now_ms)

    def _reply(self, replies: list[tuple[Ticket, Any]], end: int) -> None:
        if self.partition.high_watermark < end:
            self._drop(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        for ticket, message in replies:
            reply = self._waiting.pop(ticket, None)
            if reply is not None:
                reply(message)

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
        """Everyone who waits is told; whoever comes next finds a machine that is loaded anew."""
        self._runtime.forget(self)
        self.close(code)

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
    ) -> None:
        self.topic = topic
        self.new_machine = new_machine
        self.now_ms = now_ms
        self._partitions = partitions
        self._shards: dict[int, Shard] = {}

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

    def forget(self, shard: Shard) -> None:
        if self._shards.get(shard.partition.index) is shard:
            del self._shards[shard.partition.index]

    def close(self) -> None:
        for shard in list(self._shards.values()):
            shard.close()
        self._shards.clear()
