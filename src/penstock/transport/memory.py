"""The broker's bound on bytes in flight: a large request is read only as far as there is room for it.

Whoever finds no room is remembered in the order of asking and called when there is some, so a surge turns into
back-pressure on sockets, one connection after the other, and not into memory. Nobody passes those who wait, but for a
frame that holds memory already: frames take memory as their bytes arrive, so many may hold a part and want more. One of
them at a time may even go beyond the limit, or they would all wait for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol


class Asker(Protocol):
    def memory_returned(self) -> None:
        """There may be room: time to ask again."""


class MemoryBudget:
    __slots__ = ("finishing", "limit", "on_shortage", "used", "waiting")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.waiting: deque[Asker] = deque()  # the first one is called, and stays the first until it has what it wants
        self.finishing: Asker | None = None  # whose frame may go beyond the limit
        self.on_shortage: Callable[[], None] | None = None

    def take(self, size: int, asker: Asker) -> bool:
        """For a frame that begins. One larger than the whole budget passes when nothing else is in flight."""
        if (self.waiting and self.waiting[0] is not asker) or not self._has_room(size):
            self._wait(asker, len(self.waiting))
            return False
        self.used += size
        self.leave(asker)
        return True

    def take_more(self, size: int, asker: Asker) -> bool:
        """For a frame that holds memory already."""
        if not self._has_room(size):
            if self.finishing is None:
                self.finishing = asker
            if self.finishing is not asker:
                self._wait(asker, 0)
                return False
        self.used += size
        self.leave(asker)
        return True

    def _has_room(self, size: int) -> bool:
        return not self.used or self.used + size <= self.limit

    def _wait(self, asker: Asker, place: int) -> None:
        if asker not in self.waiting:
            self.waiting.insert(place, asker)
        if self.on_shortage is not None:
            self.on_shortage()

    def leave(self, asker: Asker) -> None:
        """It waits no more: because it has what it asked for, or because it is gone."""
        if asker in self.waiting:
            self.waiting.remove(asker)
            self._call_first()

    def _call_first(self) -> None:
        if self.waiting:
            self.waiting[0].memory_returned()

    def finished(self, asker: Asker) -> None:
        """Its frame is complete or given up."""
        if self.finishing is asker:
            self.finishing = None
            self._call_first()

    def give_back(self, size: int) -> None:
        self.used -= size
        assert self.used >= 0
        self._call_first()
