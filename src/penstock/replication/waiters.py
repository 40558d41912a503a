"""Those who wait until the high watermark has passed an offset, in the order of their offsets."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

NEVER_MS: Final = 1 << 62

Waiter = tuple[int, Callable[[], None], int]
"""The offset that the high watermark must reach, whom to call then, and until when that is waited for."""


class Waiters:
    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[Waiter] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, offset: int, wake: Callable[[], None], deadline_ms: int) -> None:
        if not self._waiting or self._waiting[-1][0] <= offset:
            self._waiting.append((offset, wake, deadline_ms))
        else:  # for a repetition of an older batch that is still on its way
            waiting = [*self._waiting, (offset, wake, deadline_ms)]
            waiting.sort(key=lambda waiter: waiter[0])
            self._waiting = deque(waiting)

    def reached(self, offset: int) -> None:
        while self._waiting and self._waiting[0][0] <= offset:
            self._waiting.popleft()[1]()

    def release_above(self, offset: int) -> None:
        """What they wait for was never written."""
        while self._waiting and self._waiting[-1][0] > offset:
            self._waiting.pop()[1]()

    def release_overdue(self, now_ms: int) -> None:
        """Those who have waited for the other replicas for as long as they wanted to."""
        overdue = [waiter for waiter in self._waiting if waiter[2] <= now_ms]
        if overdue:
            self._waiting = deque(waiter for waiter in self._waiting if waiter[2] > now_ms)
            for _, wake, _ in overdue:
                wake()

    def release(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, wake, _ in waiting:
            wake()
