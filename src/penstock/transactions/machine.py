"""The transaction machine: all the transactional ids of one partition of `__transaction_state`.

It finds the rule for a command, ends what has taken too long, and keeps what the log says. Durable, and changed in
`apply` alone: the transactions. The rest (who waits for markers, which epoch was the one before) dies with the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from penstock.coordinator.machine import LogRecord, Outcome, ProducerStamp
from penstock.protocol.errors import ApiError, ErrorCode
from penstock.transactions import commands
from penstock.transactions.adding import add_partitions
from penstock.transactions.config import TransactionConfig
from penstock.transactions.describing import describe, list_all
from penstock.transactions.ending import end, markers_written
from penstock.transactions.initializing import initialize
from penstock.transactions.records import read_record, tombstone
from penstock.transactions.states import State
from penstock.transactions.transaction import NO_EPOCH, NO_ID, Transaction
from penstock.transactions.turn import Turn, Waiting

Rule = Callable[[Turn, Any], None]

EXPIRED_PER_TURN = 1_000


class TransactionMachine:
    """A `penstock.coordinator.machine.Machine`."""

    def __init__(self, config: TransactionConfig, attempt: int = 0) -> None:
        self.config = config
        self._attempt = attempt  # no other machine of this process has the same
        self.transactions: dict[str, Transaction] = {}
        self._waiting: Waiting = {}
        self._last_epochs: dict[str, tuple[int, int, int]] = {}  # on the way to `apply`, past the log
        # When to look at a transactional id next. Each has one place at most, at or before its true deadline.
        self._heap: list[tuple[int, str]] = []
        self._places: dict[str, int] = {}
        self._expiry_ms: int | None = None
        self._to_expire: list[str] = []
        self._rules: dict[type, Rule] = {
            commands.Initialize: initialize,
            commands.AddPartitions: add_partitions,
            commands.End: end,
            commands.MarkersWritten: markers_written,
            commands.Describe: describe,
            commands.List: list_all,
        }

    def decide(self, command: commands.Command, now_ms: int) -> Outcome:
        turn = self._turn(now_ms)
        self._rules[type(command)](turn, command)
        return turn.outcome

    def appends(self, command: commands.Command) -> bool:
        if isinstance(command, commands.AddPartitions):
            return not command.verify_only
        return isinstance(command, (commands.Initialize, commands.End, commands.MarkersWritten))

    def _turn(self, now_ms: int) -> Turn:
        return Turn(self.config, self.transactions, self._waiting, self._last_epochs, self._wake, self._attempt, now_ms)

    # ---- time

    def _wake(self, transactional_id: str, deadline_ms: int) -> None:
        place = self._places.get(transactional_id)
        if place is None or deadline_ms < place:
            self._places[transactional_id] = deadline_ms
            heappush(self._heap, (deadline_ms, transactional_id))

    def next_deadline_ms(self) -> int | None:
        while self._heap and self._places.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        due = [self._heap[0][0]] if self._heap else []
        if self._expiry_ms is not None:
            due.append(self._expiry_ms)
        return min(due, default=None)

    def tick(self, now_ms: int) -> Outcome:
        """Everything that is due, as far as it fits in one append; what is left is due still."""
        turn = self._turn(now_ms)
        while self._heap and self._heap[0][0] <= now_ms and turn.appended_bytes < self.config.append_max_bytes // 2:
            place, transactional_id = heappop(self._heap)
            if self._places.get(transactional_id) == place:
                del self._places[transactional_id]
                self._look_at(turn, transactional_id)
        if self._expiry_ms is not None and self._expiry_ms <= now_ms:
            self._expire(turn)
        return turn.outcome

    def _look_at(self, turn: Turn, transactional_id: str) -> None:
        waiting = self._waiting.pop(transactional_id, [])
        for deadline_ms, command in waiting:
            if deadline_ms <= turn.now_ms:
                turn.reply(command.ticket, _come_again(command))
            else:
                self._waiting.setdefault(transactional_id, []).append((deadline_ms, command))
                self._wake(transactional_id, deadline_ms)
        transaction = self.transactions.get(transactional_id)
        deadline = transaction.deadline_ms if transaction is not None else None
        if transaction is None or deadline is None:
            return
        if deadline > turn.now_ms or not turn.fence(transaction):
            self._wake(transactional_id, max(deadline, turn.now_ms + 1))

    def _expire(self, turn: Turn) -> None:
        """Ids that nobody has used for a week or so, a bounded number at a time."""
        if not self._to_expire:
            self._to_expire = [each for each in self.transactions if self._is_expired(each, turn.now_ms)]
        some, self._to_expire = self._to_expire[:EXPIRED_PER_TURN], self._to_expire[EXPIRED_PER_TURN:]
        turn.outcome.records += [tombstone(each) for each in some if self._is_expired(each, turn.now_ms)]
        self._expiry_ms = turn.now_ms + (1 if self._to_expire else self.config.expiration_check_ms)

    def _is_expired(self, transactional_id: str, now_ms: int) -> bool:
        each = self.transactions.get(transactional_id)
        if each is None or each.updated_ms >= now_ms - self.config.id_expiration_ms:
            return False
        return each.state is State.EMPTY or each.state.is_complete

    # ---- what the log says

    def apply(self, record: LogRecord, now_ms: int) -> None:
        found = read_record(record)
        if found is None:
            return
        transactional_id, transaction = found
        if transaction is None:
            self.transactions.pop(transactional_id, None)
            return
        producer_id, epoch, last_epoch = self._last_epochs.pop(transactional_id, (NO_ID, NO_EPOCH, NO_EPOCH))
        if (producer_id, epoch) == (transaction.producer_id, transaction.producer_epoch):
            transaction.last_epoch = last_epoch
        self.transactions[transactional_id] = transaction
        if transaction.deadline_ms is not None:
            self._wake(transactional_id, transaction.deadline_ms)

    def apply_in_transaction(self, record: LogRecord, producer: ProducerStamp, now_ms: int) -> None:
        """Nothing of this is part of a transaction: whatever it is, it is not ours."""

    def end_transaction(self, producer_id: int, committed: bool, now_ms: int) -> None:
        """A marker that has no business here."""

    def loaded(self, now_ms: int) -> Outcome:
        """What was decided is carried out again: some partitions may lack their marker."""
        turn = self._turn(now_ms)
        self._expiry_ms = now_ms + self.config.expiration_check_ms
        for transaction in self.transactions.values():
            if transaction.state.is_prepared:
                turn.write_markers(transaction)
        return turn.outcome


def _come_again(command: commands.Command) -> Any:
    if isinstance(command, commands.AddPartitions):
        return dict.fromkeys(command.partitions, ErrorCode.CONCURRENT_TRANSACTIONS)
    return ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
