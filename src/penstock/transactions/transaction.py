"""One transactional id: its producer, and the transaction that it has open or had last."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from penstock.transactions.states import State, may_follow

NO_ID = -1
NO_EPOCH = -1
EPOCH_MAX = 2**15 - 1
BUMPING_VERSION = 2  # of transactions: the first whose end brings the producer another epoch (KIP-890)
NEVER_MS = 2**31 - 1  # the timeout of what two phases commit: as Kafka stores it, and no time at all

TopicPartition = tuple[str, int]
Identity = tuple[int, int]  # a producer's id and epoch


def is_exhausted(epoch: int) -> bool:
    """One epoch is left, with which a transaction may still be fenced. The producer gets another id."""
    return epoch >= EPOCH_MAX - 1


@dataclass(slots=True)
class Transaction:
    """As it is in the log. Rules never change it: they make the next one with `becoming`, and `apply` puts it here.

    The producer's id and epoch are those of what it has written. Whoever keeps what another has left open (KIP-939) has
    the next ones, and is the one who may end it: under them nothing is written before that.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_ID  # whose last epoch may still be retried with
    next_producer_id: int = NO_ID  # handed out already, in use when the markers are written
    next_producer_epoch: int = NO_EPOCH  # of who has kept it; else the next id begins with 0
    last_epoch: int = NO_EPOCH  # the epoch before the owner's, who may not have heard of the present one
    timeout_ms: int = 0
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = field(default_factory=frozenset)
    started_ms: int = -1
    updated_ms: int = -1
    version: int = 0  # the client's transactions: 2 if the epoch rises with each (KIP-890)

    def becoming(self, state: State, now_ms: int, **changes: Any) -> Transaction:
        assert may_follow(self.state, state), f"{self.transactional_id}: {self.state.name} to {state.name}"
        return replace(self, state=state, updated_ms=now_ms, **changes)

    def was_promised(self, producer_id: int, epoch: int) -> bool:
        """Whether this is what the decision has handed out already, and what counts once the markers are written."""
        return self.state.is_prepared and producer_id != NO_ID and (producer_id, epoch) == self.following

    @property
    def following(self) -> Identity:
        """The next id and epoch, if there is a next id."""
        return self.next_producer_id, max(self.next_producer_epoch, 0)

    @property
    def is_kept(self) -> bool:
        return self.next_producer_epoch != NO_EPOCH

    @property
    def owner(self) -> Identity:
        """Who may speak for it."""
        return self.following if self.is_kept else (self.producer_id, self.producer_epoch)

    @property
    def is_two_phase(self) -> bool:
        """Its outcome is decided elsewhere, and may be told at any time (KIP-939)."""
        return self.timeout_ms == NEVER_MS

    @property
    def deadline_ms(self) -> int | None:
        is_timed = self.state is State.ONGOING and not self.is_two_phase
        return self.started_ms + self.timeout_ms if is_timed else None
