"""The broker's bound on bytes in flight: a large request is read only as far as there is room for it.

Whoever finds no room is remembered in the order of asking and called when there is some, so a surge turns into
back-pressure on sockets, one connection after the other, and not into memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class MemoryBudget:
    __slots__ = ("limit", "used", "waiting")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.waiting: deque[Callable[[], None]] = deque()

    def take(self, size: int) -> bool:
        """A single request larger than the whole budget passes when nothing else is in flight."""
        if self.used and self.used + size > self.limit:
            return False
        self.used += size
        return True

    def give_back(self, size: int) -> None:
        self.used -= size
        assert self.used >= 0
        waiting, self.waiting = self.waiting, deque()
        for ask_again in waiting:
            ask_again()
