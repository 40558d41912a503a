"""The broker's bound on bytes in flight: a large request is read only as far as there is room for it.

Whoever finds no room is remembered in the order of asking and called when there is some, so a surge turns into
back-pressure on sockets, one connection after the other, and not into memory. A frame takes memory as its bytes arrive,
so many may hold a part and want more: one of them at a time may go beyond the limit, or they would all wait for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class MemoryBudget:
    __slots__ = ("finishing", "limit", "on_shortage", "used", "waiting")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.waiting: deque[Callable[[], None]] = deque()
        self.finishing: object = None  # whose frame may go beyond the limit
        self.on_shortage: Callable[[], None] | None = None

    def take(self, size: int) -> bool:
        """A single request larger than the whole budget passes when nothing else is in flight."""
        if self.used and self.used + size > self.limit:
            return False
        self.used += size
        return True

    def take_more(self, size: int, owner: object) -> bool:
        """For a frame that holds memory already."""
        if self.take(size):
            return True
        if self.finishing is None:
            self.finishing = owner
        if self.finishing is not owner:
            return False
        self.used += size
        return True

    def wait(self, ask_again: Callable[[], None]) -> None:
        self.waiting.append(ask_again)
        if self.on_shortage is not None:
            self.on_shortage()

    def finished(self, owner: object) -> None:
        """The owner's frame is complete or given up."""
        if self.finishing is owner:
            self.finishing = None

    def give_back(self, size: int) -> None:
        self.used -= size
        assert self.used >= 0
        waiting, self.waiting = self.waiting, deque()
        for ask_again in waiting:
            ask_again()
