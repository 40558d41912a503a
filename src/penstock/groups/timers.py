"""Deadlines that move all the time and are seldom met.

A heartbeat moves its member's deadline, thousands of times before a session ever ends. So moving one later is a single
assignment: the timer keeps its old place in the heap, and is put where it belongs when that place comes to the top.

Invariant: every timer with a deadline has an entry in the heap that is not later than the deadline.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from heapq import heapify, heappop, heappush, heapreplace


class Kind(Enum):
    SESSION = "a member was not heard of, or a pending member did not join"
    JOIN = "the join phase of a rebalance is over"
    SYNC = "members joined, but did not collect their assignment"
    DOWNGRADED = "the members of a group that was a consumer group must join anew"
    CONSUMER_SESSION = "a member of a consumer group was not heard of"
    REVOCATION = "a member did not let go of partitions in time"
    CLASSIC_JOIN = "a classic member of a consumer group was told to join, and did not"
    CLASSIC_SYNC = "a classic member of a consumer group joined, but did not collect its assignment"
    ASSIGNMENT = "a consumer group's target assignment is to be worked out, or written"
    EXPIRY = "look for offsets to expire"
    DELETED_TOPICS = "go on deleting the offsets of deleted topics"


@dataclass(slots=True, eq=False)
class Timer:
    kind: Kind
    group_id: str = ""
    member_id: str = ""
    deadline_ms: int | None = None
    queued_ms: int | None = None  # its place in the heap


SLACK = 64


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._pushes = 0  # breaks ties in order, so that a run can be repeated
        self._running = 0

    def start(self, timer: Timer, deadline_ms: int) -> None:
        """Starts the timer, or moves its deadline."""
        if timer.deadline_ms is None:
            self._running += 1
        timer.deadline_ms = deadline_ms
        if timer.queued_ms is None or deadline_ms < timer.queued_ms:
            self._push(timer, deadline_ms)

    def cancel(self, timer: Timer) -> None:
        if timer.deadline_ms is not None:
            timer.deadline_ms = None
            self._running -= 1

    def next_deadline_ms(self) -> int | None:
        self._settle_top()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> Timer | None:
        """The timer that was due first, stopped; None when nothing is due."""
        self._settle_top()
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        _, _, timer = heappop(self._heap)
        timer.deadline_ms = timer.queued_ms = None
        self._running -= 1
        return timer

    def _push(self, timer: Timer, deadline_ms: int) -> None:
        # Cancelled timers stay in the heap until their place comes up; they must not outnumber the running ones.
        if len(self._heap) > 2 * self._running + SLACK:
            self._drop_stale()
        self._pushes += 1
        timer.queued_ms = deadline_ms
        heappush(self._heap, (deadline_ms, self._pushes, timer))

    def _settle_top(self) -> None:
        """Makes the top of the heap a running timer at its true deadline."""
        heap = self._heap
        while heap:
            place_ms, _, timer = heap[0]
            if timer.queued_ms != place_ms:
                heappop(heap)  # it has moved to an earlier place since
            elif timer.deadline_ms is None:
                heappop(heap)
                timer.queued_ms = None
            elif timer.deadline_ms > place_ms:
                self._pushes += 1
                timer.queued_ms = timer.deadline_ms
                heapreplace(heap, (timer.deadline_ms, self._pushes, timer))
            else:
                return

    def _drop_stale(self) -> None:
        kept = []
        for place_ms, push, timer in self._heap:
            if timer.queued_ms == place_ms:
                if timer.deadline_ms is None:
                    timer.queued_ms = None
                else:
                    kept.append((place_ms, push, timer))
        self._heap = kept
        heapify(self._heap)
