"""The states of a transactional id, and which may follow which.

            ┌──────────────────────────────────────────────┐
            │                                              ▼
    Empty ──┴─► Ongoing ──► PrepareCommit ──► CompleteCommit ──► Ongoing, Empty, PrepareAbort
                   │
                   └──────► PrepareAbort ───► CompleteAbort ───► Ongoing, Empty, PrepareAbort

Once a Prepare record is committed the transaction is decided, whatever happens: a coordinator that finds one in its log
writes the markers again, and only then the Complete record. With transactions of version 2 (KIP-890) a producer may
abort what it has not begun, because its epoch rises then.
"""

from __future__ import annotations

from enum import IntEnum


class State(IntEnum):
    """By the numbers of Kafka's log format."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        """Decided, and the markers are on their way."""
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        return self in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)

    @property
    def is_commit(self) -> bool:
        return self in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)


_FOLLOWS = {
    State.EMPTY: {State.EMPTY, State.ONGOING, State.PREPARE_ABORT},
    State.ONGOING: {State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT},
    State.PREPARE_COMMIT: {State.COMPLETE_COMMIT},
    State.PREPARE_ABORT: {State.COMPLETE_ABORT},
    State.COMPLETE_COMMIT: {State.EMPTY, State.ONGOING, State.PREPARE_ABORT},
    State.COMPLETE_ABORT: {State.EMPTY, State.ONGOING, State.PREPARE_ABORT},
}


def may_follow(before: State, after: State) -> bool:
    return after in _FOLLOWS.get(before, ())
