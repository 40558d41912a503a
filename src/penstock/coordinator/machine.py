"""What the engine asks of a coordinator's state machine.

A machine is pure: no clock, no disk, no socket. The engine calls

    decide(command, now_ms)   a request arrived        -> Outcome
    tick(now_ms)              a deadline has passed    -> Outcome
    apply(record)             the record is in the log (written just now, or read again after a restart)
    loaded(now_ms)            all of the log was applied -> Outcome
    next_deadline_ms()        when to call tick next, None for never

and, for an Outcome, in this order: appends `records` as one batch, applies each of them, decides the commands `again`
that had to wait for them, waits until the records (and all that was appended before) are committed, then sends
`replies` and hands `effects` to whoever runs the machine. A reply may answer an earlier command: a ticket is what the
engine gave with the command. If the append fails, the engine throws the machine away, answers its open tickets with
an error and loads a new machine from the log, so `decide` may change what is not durable (who waits for whom) at once,
while what is durable changes in `apply` alone. When the broker leads the partition no more, the machine goes as well.

Replies without records are sent when all that was appended before is committed. That shows what was so, and not that
it is so still: another broker may lead the partition by now, and its machine know better, before this one has heard of
it. Where a wrong answer would do harm, an outcome has a `proof`: a record that means nothing. It is appended if there
are no others, and once it is committed, nobody else can have led before the question was asked.

Records of an outcome that has a `producer` are part of that producer's transaction. They go through
`apply_in_transaction` instead, and count when `end_transaction` says that it was committed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, NewType, Protocol

Ticket = NewType("Ticket", int)


class ProducerStamp(NamedTuple):
    """Whose transaction a batch is part of."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record of an internal topic, still encoded. A value of None is a tombstone."""

    key: bytes
    value: bytes | None


@dataclass(slots=True)
class Outcome:
    records: list[LogRecord] = field(default_factory=list)
    replies: list[tuple[Ticket, Any]] = field(default_factory=list)
    producer: ProducerStamp | None = None
    effects: list[Any] = field(default_factory=list)
    again: list[Any] = field(default_factory=list)
    proof: LogRecord | None = None


class Machine(Protocol):
    def decide(self, command: Any, now_ms: int) -> Outcome: ...

    def appends(self, command: Any) -> bool:
        """Whether the command is for something that must be written down. It is refused without being decided while
        there are too few replicas; of others that turn out to append then, the machine has to be loaded anew."""

    def tick(self, now_ms: int) -> Outcome: ...

    def apply(self, record: LogRecord, now_ms: int) -> None: ...

    def apply_in_transaction(self, record: LogRecord, producer: ProducerStamp, now_ms: int) -> None:
        """The record is in the log, and its transaction is open."""

    def end_transaction(self, producer_id: int, committed: bool, now_ms: int) -> None:
        """The marker is in the log: what this producer's transaction holds here counts now, or never will."""

    def loaded(self, now_ms: int) -> Outcome:
        """All of the log was applied: timers of what was found may start."""

    def next_deadline_ms(self) -> int | None: ...
