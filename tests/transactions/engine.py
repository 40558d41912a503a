"""A transaction machine with a log in memory and a clock that the test moves, driven as the engine of the broker does.

Markers are written when the test says so. A call that needs a producer id gets one and asks again, as a handler does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from penstock.coordinator.machine import LogRecord, Outcome, Ticket
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.transactions.commands import (
    NEEDS_ID,
    AddPartitions,
    Command,
    Describe,
    End,
    Initialize,
    List,
    MarkersWritten,
    WriteMarkers,
)
from penstock.transactions.config import TransactionConfig
from penstock.transactions.machine import TransactionMachine
from penstock.transactions.records import read_record
from penstock.transactions.states import State
from penstock.transactions.transaction import TopicPartition, Transaction

ID = "payments"
CLASSIC, BUMPING = 1, 2
START_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
ORDERS = ("orders", 0)
STOCK = ("stock", 3)

Stamp = tuple[int, int]  # a producer's id and epoch
NOBODY: Stamp = (-1, -1)


class Call:
    """A request, and what came of it: `value` is the answer, an error, or None while there is none."""

    def __init__(self, engine: TransactionEngine, make: Callable[[Ticket, int | None], Command]) -> None:
        self._engine = engine
        self._make = make
        self.value: Any = None
        self._ask(None)

    def _ask(self, spare_id: int | None) -> None:
        self._engine.submit(lambda ticket: self._make(ticket, spare_id), self._answered)

    def _answered(self, answer: Any) -> None:
        assert self.value is None, "answered twice"
        if answer is NEEDS_ID:
            self._ask(next(self._engine.ids))
        else:
            self.value = answer.code if isinstance(answer, ApiError) else answer


class TransactionEngine:
    def __init__(self, config: TransactionConfig | None = None) -> None:
        self.config = config or TransactionConfig()
        self.now_ms = START_MS
        self.ids = itertools.count(1000)
        self.log: list[LogRecord] = []
        self.effects: list[WriteMarkers] = []  # decided, and not carried out yet
        self._tickets = itertools.count(1)
        self._waiting: dict[Ticket, Callable[[Any], None]] = {}
        self.machine = TransactionMachine(self.config)
        self.carry_out(self.machine.loaded(self.now_ms))

    def submit(self, make: Callable[[Ticket], Command], reply: Callable[[Any], None]) -> None:
        ticket = Ticket(next(self._tickets))
        self._waiting[ticket] = reply
        self.carry_out(self.machine.decide(make(ticket), self.now_ms))

    def carry_out(self, outcome: Outcome) -> None:
        for record in outcome.records:
            self.log.append(record)
            self.machine.apply(record, self.now_ms)
        for ticket, answer in outcome.replies:
            self._waiting.pop(ticket)(answer)
        self.effects += outcome.effects
        for command in outcome.again:
            self.carry_out(self.machine.decide(command, self.now_ms))

    def reload(self, length: int | None = None) -> None:
        """Another coordinator, which finds the log, or so many of its records. Who waited is told to look for it."""
        self.log = self.log[:length]
        waiting, self._waiting = self._waiting, {}
        for reply in waiting.values():
            reply(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        self.machine = TransactionMachine(self.config)
        self.effects = []
        for record in self.log:
            self.machine.apply(record, self.now_ms)
        self.carry_out(self.machine.loaded(self.now_ms))

    def advance(self, by_ms: int = 0) -> None:
        """Moves the clock, and ticks as often as the machine asks to be."""
        until_ms = self.now_ms + by_ms
        while (due := self.machine.next_deadline_ms()) is not None and due <= until_ms:
            self.now_ms = max(self.now_ms, due)
            self.carry_out(self.machine.tick(self.now_ms))
        self.now_ms = until_ms

    # ---- what producers ask

    def initialize(
        self,
        name: str = ID,
        producer: Stamp = NOBODY,
        timeout_ms: int = TIMEOUT_MS,
        *,
        two_phase: bool = False,
        keeps: bool = False,
    ) -> Call:
        return Call(
            self,
            lambda ticket, spare_id: Initialize(ticket, name, timeout_ms, *producer, spare_id, two_phase, keeps),
        )

    def keep(self, name: str = ID, *, two_phase: bool = True) -> Call:
        """What another has left open, to end it."""
        return self.initialize(name, two_phase=two_phase, keeps=True)

    def add(
        self,
        producer: Stamp,
        *partitions: TopicPartition,
        name: str = ID,
        version: int = BUMPING,
        verify_only: bool = False,
        waits: bool = True,
    ) -> Call:
        wanted = frozenset(partitions or (ORDERS,))
        return Call(self, lambda ticket, _: AddPartitions(ticket, name, *producer, wanted, version, verify_only, waits))

    def end(self, producer: Stamp, *, commit: bool = True, name: str = ID, version: int = BUMPING) -> Call:
        return Call(self, lambda ticket, spare_id: End(ticket, name, *producer, commit, version, spare_id))

    def describe(self, *names: str) -> list[Any]:
        found: list[Any] = Call(self, lambda ticket, _: Describe(ticket, names or (ID,))).value
        return found

    def listed(self, states: tuple[str, ...] = (), producer_ids: tuple[int, ...] = (), older_than_ms: int = -1) -> Any:
        answer = Call(
            self, lambda ticket, _: List(ticket, frozenset(states), frozenset(producer_ids), older_than_ms)
        ).value
        return sorted((each.transactional_id, each.producer_id, each.transaction_state) for each in answer)

    def write_markers(self) -> list[WriteMarkers]:
        """All that are decided; what was decided."""
        effects, self.effects = self.effects, []
        for effect in effects:
            self.markers_written(effect)
        return effects

    def markers_written(self, effect: WriteMarkers) -> None:
        make = lambda ticket, _: MarkersWritten(  # noqa: E731
            ticket, effect.transactional_id, effect.producer_id, effect.producer_epoch, effect.attempt
        )
        Call(self, make)

    # ---- how a test gets somewhere

    def producer(self, name: str = ID, epoch: int | None = None, timeout_ms: int = TIMEOUT_MS) -> Stamp:
        """A producer that has just begun, at a later epoch if one is given."""
        stamp: Stamp = self.initialize(name, timeout_ms=timeout_ms).value
        if epoch is not None:
            self.set_epoch(epoch, name)
            stamp = (stamp[0], epoch)
        return stamp

    def set_epoch(self, epoch: int, name: str = ID) -> None:
        """As if it had been bumped so often."""
        transaction = self.transaction(name)
        transaction.producer_epoch = epoch

    def ongoing(self, *partitions: TopicPartition, version: int = BUMPING, epoch: int | None = None) -> Stamp:
        stamp = self.producer(epoch=epoch)
        self.add(stamp, *partitions, version=version)
        assert self.state() is State.ONGOING
        return stamp

    def prepared(self, *partitions: TopicPartition, version: int = BUMPING, epoch: int | None = None) -> Stamp:
        """A producer that waits for the decision of others, or is gone."""
        stamp: Stamp = self.initialize(two_phase=True).value
        if epoch is not None:
            self.set_epoch(epoch)
            stamp = (stamp[0], epoch)
        self.add(stamp, *partitions, version=version)
        assert self.state() is State.ONGOING
        return stamp

    def transaction(self, name: str = ID) -> Transaction:
        return self.machine.transactions[name]

    def state(self, name: str = ID) -> State:
        return self.transaction(name).state

    def stamp(self, name: str = ID) -> Stamp:
        transaction = self.transaction(name)
        return transaction.producer_id, transaction.producer_epoch

    def states(self, name: str = ID) -> list[str]:
        """What the log says of an id, from the beginning."""
        found = [read_record(record) for record in self.log]
        return [
            "gone" if each[1] is None else each[1].state.name for each in found if each is not None and each[0] == name
        ]
