"""What may be asked of a transaction machine: one value per command, each with the ticket under which it is answered.

An error is answered as an ApiError. `spare_id` is a producer id that nobody uses: a rule that needs one and has none
answers NEEDS_ID, and is asked again with one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.coordinator.machine import Ticket
from penstock.transactions.transaction import TopicPartition


class Missing(Enum):
    NEEDS_ID = "a producer id"


NEEDS_ID = Missing.NEEDS_ID


@dataclass(frozen=True, slots=True)
class Initialize:
    """Answered with a pair: the producer's id and epoch. What was open is aborted first; if it is to be kept (KIP-939),
    the answer is a Kept. The transactions of a producer that is in two phases are not aborted by time."""

    ticket: Ticket
    transactional_id: str
    timeout_ms: int
    producer_id: int
    producer_epoch: int
    spare_id: int | None
    two_phase: bool = False
    keeps: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """A transaction is open still. With these id and epoch it may be ended, and nothing else be done to it."""

    producer_id: int
    producer_epoch: int
    ongoing_producer_id: int  # of who has written what it holds
    ongoing_producer_epoch: int


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Answered with an error code for each partition. `version` is that of the client's transactions. Another broker
    does not wait for the markers of the transaction before: it asks for many producers at a time, and asks again."""

    ticket: Ticket
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    version: int
    verify_only: bool = False
    waits: bool = True


@dataclass(frozen=True, slots=True)
class End:
    """Answered, when it is decided, with a pair: the id and epoch with which the producer goes on."""

    ticket: Ticket
    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    version: int
    spare_id: int | None = None


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """All partitions of a transaction have its marker. Answered with None."""

    ticket: Ticket
    transactional_id: str
    producer_id: int
    producer_epoch: int
    attempt: int = 0  # which machine has asked for them


@dataclass(frozen=True, slots=True)
class Describe:
    """Answered with a list of TransactionState (of DescribeTransactions), in the order of the ids."""

    ticket: Ticket
    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class List:
    """Answered with a list of TransactionState (of ListTransactions). No filter means all."""

    ticket: Ticket
    states: frozenset[str]
    producer_ids: frozenset[int]
    older_than_ms: int


Command = Initialize | AddPartitions | End | MarkersWritten | Describe | List


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """The effect of a decision."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    partitions: frozenset[TopicPartition]
    attempt: int = 0  # rises with every machine that is loaded
    bumped: bool = False  # the epoch is one that the decision has brought: no batch of the transaction has it
