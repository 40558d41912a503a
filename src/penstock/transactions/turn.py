"""One call of the machine: what a rule may look at, and what it has to say.

A rule reads transactions, and leaves records, replies and effects here. What is durable changes when the records come
back through `apply`. Who has to wait for markers is kept in `waiting`, which is not durable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.coordinator.machine import Outcome, Ticket
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.transactions.commands import Command, WriteMarkers
from penstock.transactions.config import TransactionConfig
from penstock.transactions.records import nothing, transaction_record
from penstock.transactions.states import State
from penstock.transactions.transaction import BUMPING_VERSION, EPOCH_MAX, NO_EPOCH, Transaction

RECORD_OVERHEAD_BYTES = 32
IDENTITIES_BYTES = 32  # what a record may grow by until its transaction is over: an id before, and an id and epoch next

# What clients do not try again on: whoever is told so wrongly, by a coordinator that was replaced, is ended by it.
_FINAL = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING)

Waiting = dict[str, list[tuple[int, Command]]]  # until when, by transactional id


class Turn:
    __slots__ = (
        "_last_epochs",
        "_wake",
        "appended_bytes",
        "attempt",
        "config",
        "now_ms",
        "outcome",
        "transactions",
        "waiting",
    )

    def __init__(
        self,
        config: TransactionConfig,
        transactions: dict[str, Transaction],
        waiting: Waiting,
        last_epochs: dict[str, tuple[int, int, int]],
        wake: Callable[[str, int], None],
        attempt: int,
        now_ms: int,
    ) -> None:
        self.attempt = attempt
        self.config = config
        self.transactions = transactions
        self.waiting = waiting
        self.now_ms = now_ms
        self.outcome = Outcome()
        self.appended_bytes = 0
        self._last_epochs = last_epochs
        self._wake = wake

    def reply(self, ticket: Ticket, answer: Any) -> None:
        self.outcome.replies.append((ticket, answer))

    def refuse(self, ticket: Ticket, code: ErrorCode, message: str | None = None) -> None:
        self.reply(ticket, ApiError(code, message))
        if code in _FINAL:
            self.prove()

    def prove(self) -> None:
        """What is said rests on what is known here alone, and must not be said by a coordinator that was replaced: it
        would take one transaction for another of the same epoch, and call committed what nobody has committed."""
        self.outcome.proof = nothing()

    def store(self, transaction: Transaction, room_bytes: int = 0) -> bool:
        """False if it no longer fits in this append, with so much room to spare."""
        record = transaction_record(transaction)
        size = len(record.key) + len(record.value or b"") + RECORD_OVERHEAD_BYTES
        if self.appended_bytes + size + room_bytes > self.config.append_max_bytes:
            return False
        self.appended_bytes += size
        self.outcome.records.append(record)
        known = (transaction.producer_id, transaction.producer_epoch, transaction.last_epoch)
        self._last_epochs[transaction.transactional_id] = known
        return True

    def write_markers(self, transaction: Transaction) -> None:
        """Of a transaction that is decided: carried out once the decision is committed."""
        self.outcome.effects.append(
            WriteMarkers(
                transaction.transactional_id, transaction.producer_id, transaction.producer_epoch,
                transaction.state.is_commit, transaction.partitions, self.attempt,
                bumped=transaction.version >= BUMPING_VERSION,
            )
        )  # fmt: skip

    def fence(self, transaction: Transaction, *, by_its_owner: bool = False) -> bool:
        """Aborts what is open under an epoch that no producer has: whoever had it can not go on. If it was its own
        wish, it will be given that epoch."""
        _, epoch = transaction.owner
        aborted = transaction.becoming(
            State.PREPARE_ABORT, self.now_ms, last_epoch=epoch if by_its_owner else NO_EPOCH,
            producer_epoch=min(transaction.producer_epoch + 1, EPOCH_MAX),
            next_producer_epoch=min(epoch + 1, EPOCH_MAX) if transaction.is_kept else NO_EPOCH,
        )  # fmt: skip
        if not self.store(aborted):
            return False
        self.write_markers(aborted)
        return True

    def wait(self, transactional_id: str, command: Command) -> None:
        """Until the markers are written, for a while: then it is decided again. Kafka tells clients to come again at
        once, and they sleep; so the next transaction begins as early as it can."""
        waiting = self.waiting.setdefault(transactional_id, [])
        if len(waiting) >= self.config.waiting_max:
            self.refuse(command.ticket, ErrorCode.CONCURRENT_TRANSACTIONS)
            return
        deadline_ms = self.now_ms + self.config.wait_for_markers_ms
        waiting.append((deadline_ms, command))
        self._wake(transactional_id, deadline_ms)
