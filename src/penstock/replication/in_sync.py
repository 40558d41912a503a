"""How far the replicas of a partition are, as its leader knows it: what is committed, who lags, who may join. Pure.

A record is committed when every in-sync replica has it, and only while there are enough of them. While a change of the
in-sync set is being written, nobody knows yet which of the two sets counts: so both do. A follower counts from its
first fetch in the leader's own epoch on; before that its log may hold other records at the same offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

UNKNOWN: Final = -1


class Position:
    """Of one follower. `offset` is the end of its log as far as its fetches say; it has all that lies below."""

    __slots__ = ("caught_up_ms", "end_then", "fetched_ms", "offset", "start")

    def __init__(self, now_ms: int) -> None:
        self.offset = UNKNOWN
        self.start = UNKNOWN  # where its log begins
        self.caught_up_ms = now_ms  # when it last had all that the leader had
        self.fetched_ms = now_ms
        self.end_then = 0  # where the leader's log ended when it fetched last


class InSyncReplicas:
    __slots__ = (
        "_counted", "_in_flight", "_positions", "epoch_start", "may_commit", "members", "min_insync", "node_id",
    )  # fmt: skip

    def __init__(
        self,
        node_id: int,
        replicas: Iterable[int],
        members: tuple[int, ...],
        min_insync: int,
        may_commit: bool,
        epoch_start: int,
        now_ms: int,
    ) -> None:
        self.node_id = node_id
        self.min_insync = min_insync
        self.may_commit = may_commit  # see cluster/elections.py
        self.epoch_start = epoch_start  # where the log ended when this leader began
        self.members = members
        self._in_flight: dict[int, None] = {}  # whom a change that is being written takes in or puts out
        self._positions = {replica: Position(now_ms) for replica in replicas if replica != node_id}
        self._counted: list[Position] = []
        self._recount()

    # ---- who counts

    def update(
        self, replicas: Iterable[int], members: tuple[int, ...], min_insync: int, may_commit: bool, now_ms: int
    ) -> None:
        """The partition's state has changed, though not its leader."""
        for replica in self.members:  # one that others put out, or that left by itself, must show anew what it has
            if replica not in members and replica not in self._in_flight:
                self.forget(replica)
        others = [replica for replica in replicas if replica != self.node_id]
        self._positions = {replica: self._positions.get(replica) or Position(now_ms) for replica in others}
        self.members = members
        self.min_insync = min_insync
        self.may_commit = may_commit
        self._recount()

    def begin_change(self, replica: int) -> None:
        self._in_flight[replica] = None
        self._recount()

    def end_change(self, replica: int) -> None:
        self._in_flight.pop(replica, None)
        self._recount()

    def is_changing(self, replica: int) -> bool:
        return replica in self._in_flight

    def _recount(self) -> None:
        counted = {*self.members, *self._in_flight}
        self._counted = [position for replica, position in self._positions.items() if replica in counted]

    # ---- how far they are

    @property
    def enough(self) -> bool:
        """Whether acks=all can be promised."""
        return len(self.members) >= self.min_insync

    def committed(self, local_offset: int) -> int:
        """The offset below which everything is on all that count; UNKNOWN if that can't be said, or may not move."""
        if not self.may_commit:
            return UNKNOWN
        lowest = local_offset
        for position in self._counted:
            if position.offset < lowest:
                lowest = position.offset
        return lowest

    def fetched(self, replica: int, offset: int, end_offset: int, now_ms: int) -> bool:
        """A follower asks for the offset. False if it is no replica of this partition."""
        position = self._positions.get(replica)
        if position is None:
            return False
        if offset >= end_offset:
            position.caught_up_ms = now_ms
        elif offset >= position.end_then and position.offset != UNKNOWN:
            position.caught_up_ms = max(position.caught_up_ms, position.fetched_ms)
        position.offset = offset
        position.fetched_ms = now_ms
        position.end_then = end_offset
        return True

    def begins_at(self, replica: int, start: int) -> bool:
        """A follower says where its log begins. True if that is news."""
        position = self._positions.get(replica)
        if position is None or position.start == start:
            return False
        position.start = start
        return True

    def lowest_start(self, start: int, lives: Callable[[int], bool]) -> int:
        """Where the first of the logs begins, of replicas that live."""
        starts = [max(position.start, 0) for replica, position in self._positions.items() if lives(replica)]
        return min((start, *starts))

    def knows(self, replica: int) -> bool:
        """Whether it is a replica of this partition, as far as its leader has heard."""
        return replica in self._positions

    def forget(self, replica: int) -> None:
        """Another life of the broker begins: nothing is known of it."""
        position = self._positions.get(replica)
        if position is not None:
            position.offset = position.start = UNKNOWN

    def position(self, replica: int) -> int:
        position = self._positions.get(replica)
        return position.offset if position is not None else UNKNOWN

    def may_join(self, replica: int, high_watermark: int) -> bool:
        """Whether it has all that is committed, and all that this leader began with."""
        position = self._positions.get(replica)
        if position is None or replica in self.members or replica in self._in_flight:
            return False
        return position.offset >= high_watermark and position.offset >= self.epoch_start

    def lagging(self, now_ms: int, lag_max_ms: int, end_offset: int) -> list[int]:
        """In-sync replicas that have not had all of the log for so long. To be asked more often than that: who has
        everything need not fetch, and would seem to have lagged ever since at the moment when something is written."""
        found: list[int] = []
        for replica in self.members:
            position = self._positions.get(replica)
            if position is None:
                continue
            if position.offset >= end_offset:
                position.caught_up_ms = now_ms
            elif now_ms - position.caught_up_ms > lag_max_ms and replica not in self._in_flight:
                found.append(replica)
        return found
