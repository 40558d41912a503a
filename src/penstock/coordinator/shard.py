"""One machine over one partition, for as long as this broker leads it in one epoch.

    command -> decide -> append its records as one batch -> apply them -> wait for the commit -> reply

The machine is loaded from the log first; commands that come meanwhile wait for that, in order, up to a bound. When an
append or a commit fails, or the leadership ends, the machine is thrown away with everything that waited for it, so what
it remembers is never other than what is in the log. A commit that merely takes long fails nothing: the records are in
the log of the leader that the machine belongs to, and will be committed or lost with it. Only whoever waits is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.coordinator.loading import load
from penstock.coordinator.machine import LogRecord, Machine, Outcome, ProducerStamp, Ticket
from penstock.coordinator.replicated import append_marker, lacks_replicas
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.protocol.record_batch import Record, build_batch
from penstock.replication.partition import Partition
from penstock.storage.aborted import Marker

if TYPE_CHECKING:
    from penstock.coordinator.runtime import Runtime

log = logging.getLogger("penstock.coordinator")

WAITING_FOR_LOAD_MAX = 10_000
WAIT_FOR_LOAD_S_MAX = 5.0
TICK_MS_MIN = 10
TICK_AGAIN_S = 0.5  # while there are too few replicas to write down what time has brought

Reply = Callable[[Any], None]  # called with the reply, or with an ApiError
MakeCommand = Callable[[Ticket], Any]
Done = Callable[[ApiError | None], None]


class _Uncommitted(NamedTuple):
    deadline: float  # by the clock of the loop
    end: int
    tickets: list[Ticket]


class Shard:
    """A machine, its partition, and who waits for its replies."""

    def __init__(self, runtime: Runtime, partition: Partition) -> None:
        self._runtime = runtime
        self._loop = asyncio.get_running_loop()
        self.partition = partition
        self._epoch = partition.leader_epoch
        self.machine: Machine = runtime.new_machine()
        self._waiting: dict[Ticket, Reply] = {}
        # What is to be done once the machine is loaded, and how to refuse it. None from then on.
        self._parked: list[tuple[Callable[[], None], Reply]] | None = []
        self._parking: asyncio.TimerHandle | None = None
        self._uncommitted: deque[_Uncommitted] = deque()
        self._patience: asyncio.TimerHandle | None = None
        self._tickets = 0
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms: int | None = None
        self._closed = False
        self.loading = asyncio.ensure_future(self._load())

    @property
    def leads(self) -> bool:
        """Whether the partition is still what it was when the machine was made."""
        partition = self.partition
        return partition.leads and partition.leader_epoch == self._epoch and partition.error is None

    # ---- loading

    async def _load(self) -> None:
        partition, now_ms = self.partition, self._runtime.now_ms
        try:
            count = await load(partition, self.machine, now_ms, lambda: self.leads)
        except Exception:  # whatever it is, and `load` has logged it, those who wait must not wait for ever
            self.drop()
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

    def _is_ready(self, go_on: Callable[[], None], refuse: Reply) -> bool:
        """If not, it is done later or refused."""
        if self._closed:
            refuse(ApiError(self._why_not()))
        elif self._parked is None:
            return True
        elif len(self._parked) >= WAITING_FOR_LOAD_MAX:
            refuse(ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            self._parked.append((go_on, refuse))
            if self._parking is None:
                self._parking = self._loop.call_later(WAIT_FOR_LOAD_S_MAX, self._refuse_parked)
        return False

    def _refuse_parked(self) -> None:
        """The load takes long, or waits for other replicas: clients know how to come again."""
        self._parking = None
        if self._parked:
            parked, self._parked = self._parked, []
            for _, refuse in parked:
                refuse(ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))

    # ---- commands

    def submit(self, make: MakeCommand, reply: Reply) -> None:
        if not self._is_ready(lambda: self.submit(make, reply), reply):
            return
        self._tickets += 1
        ticket = Ticket(self._tickets)
        command = make(ticket)
        if lacks_replicas(self.partition) and self.machine.appends(command):
            reply(self._too_few_replicas())
            return
        self._waiting[ticket] = reply
        try:
            outcome = self.machine.decide(command, self._runtime.now_ms())
        except ApiError as error:
            del self._waiting[ticket]
            reply(error)
            return
        except BaseException:
            del self._waiting[ticket]
            raise
        self._carry_out(outcome)

    def end_transaction(self, producer: ProducerStamp, marker: Marker, done: Done, *, bumped: bool = False) -> None:
        """Writes the marker, and lets the machine know."""
        if not self._is_ready(lambda: self.end_transaction(producer, marker, done, bumped=bumped), done):
            return
        partition, now_ms = self.partition, self._runtime.now_ms()
        try:
            end = append_marker(partition, producer, marker, now_ms, bumped=bumped)
        except ApiError as error:
            done(error)
            return
        self.machine.end_transaction(producer.producer_id, marker.committed, now_ms)

        def committed() -> None:
            if partition.high_watermark >= end:
                done(None)
            else:
                self.drop()
                done(partition.failure())

        partition.when_committed(end, committed)
        self._reschedule()

    def tick(self) -> None:
        self._timer = self._due_ms = None
        if not self.leads:
            self.drop()
        elif lacks_replicas(self.partition):
            self._due_ms = self.machine.next_deadline_ms()
            self._timer = self._loop.call_later(TICK_AGAIN_S, self.tick)
        else:
            self._carry_out(self.machine.tick(self._runtime.now_ms()))

    def _carry_out(self, outcome: Outcome) -> None:
        partition = self.partition
        if outcome.records and outcome.producer is not None:
            try:
                partition.admission.check_producer(*outcome.producer)
            except ApiError as error:  # a zombie's: nothing is wrong with the machine
                self._refuse(outcome, error)
                return
        if outcome.proof is not None and not outcome.records and partition.in_sync is not None:
            if lacks_replicas(partition):
                self._refuse(outcome, self._too_few_replicas())
                return
            outcome.records.append(outcome.proof)
        if outcome.records:
            try:
                self._append(outcome.records, outcome.producer)
            except ApiError as error:
                log.warning("append failed: %s", error, extra={"partition": partition.name})
                self.drop()
                return
        if outcome.replies or outcome.records or outcome.effects:  # records that nobody waits for must be stored, too
            self._await_commit(outcome, partition.log.next_offset)
        for command in outcome.again:
            if not self._closed:
                self._carry_out(self.machine.decide(command, self._runtime.now_ms()))
        self._reschedule()

    def _refuse(self, outcome: Outcome, error: ApiError) -> None:
        for ticket, _ in outcome.replies:
            self._waiting.pop(ticket)(error)

    def _too_few_replicas(self) -> ApiError:
        return ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.partition.name} has too few in-sync replicas")

    def _append(self, records: list[LogRecord], producer: ProducerStamp | None) -> None:
        if lacks_replicas(self.partition):
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
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

    # ---- waiting for the commit

    def _await_commit(self, outcome: Outcome, end: int) -> None:
        if outcome.replies and end > self.partition.high_watermark:
            deadline = self._loop.time() + self._runtime.commit_timeout_ms / 1000
            self._uncommitted.append(_Uncommitted(deadline, end, [ticket for ticket, _ in outcome.replies]))
            if self._patience is None:
                self._patience = self._loop.call_at(deadline, self._look_at_clock)
        self.partition.when_committed(end, lambda: self._committed(outcome, end))

    def _committed(self, outcome: Outcome, end: int) -> None:
        if self._closed:
            return
        if self.partition.high_watermark < end:
            self.drop()
            return
        while self._uncommitted and self._uncommitted[0].end <= end:
            self._uncommitted.popleft()
        for ticket, message in outcome.replies:
            reply = self._waiting.pop(ticket, None)
            if reply is not None:
                reply(message)
        for effect in outcome.effects:
            self._runtime.on_effect(self.partition, effect)

    def _look_at_clock(self) -> None:
        """Who has waited for the other replicas for long enough is told, and may come again."""
        self._patience = None
        now = self._loop.time()
        while self._uncommitted and self._uncommitted[0].deadline <= now:
            for ticket in self._uncommitted.popleft().tickets:
                reply = self._waiting.pop(ticket, None)
                if reply is not None:
                    reply(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.partition.name} is not replicated"))
        if self._uncommitted and not self._closed:
            self._patience = self._loop.call_at(self._uncommitted[0].deadline, self._look_at_clock)

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
            self._timer = self._loop.call_later(delay_ms / 1000, self.tick)

    def _why_not(self) -> ErrorCode:
        """Clients look for another coordinator if there is one, and otherwise come again."""
        partition = self.partition
        leads = partition.leads and partition.leader_epoch == self._epoch
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if leads else ErrorCode.NOT_COORDINATOR

    def drop(self) -> None:
        """Everyone who waits is told; whoever comes next finds a machine that is loaded anew, if this broker leads. So
        does time: what was to be done by a deadline is waited for by nobody who would ask."""
        if self._closed:
            return
        self._runtime.forget(self)
        self.close(self._why_not())
        self._runtime.load_later(self.partition)

    def close(self, code: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> None:
        self._closed = True
        for timer in (self._timer, self._patience, self._parking):
            if timer is not None:
                timer.cancel()
        self.loading.cancel()
        waiting = [*self._waiting.values(), *(reply for _, reply in self._parked or [])]
        self._waiting.clear()
        self._uncommitted.clear()
        self._parked = []
        for reply in waiting:
            reply(ApiError(code))
