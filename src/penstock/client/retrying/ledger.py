"""How far a partition is done, while copies of some of its messages are still on their way. Pure.

A position is the offset of the first message that is not done. A message that was handled is done at once; one that was
handed over is done when its copy is acknowledged, which comes later and in any order. The position stays at the oldest
that is on its way, and those behind it are not held up.
"""

from __future__ import annotations


class Ledger:
    __slots__ = ("_on_their_way", "committed", "next_offset")

    def __init__(self, offset: int) -> None:
        self.next_offset = offset  # behind the last message that was taken care of
        self.committed = offset
        self._on_their_way: dict[int, None] = {}  # in order of offset, because messages are taken in that order

    def handled(self, offset: int) -> None:
        assert offset >= self.next_offset
        self.next_offset = offset + 1

    def handled_to(self, end: int) -> None:
        """All before `end` that were not handed over."""
        self.next_offset = max(self.next_offset, end)

    def handing_over(self, offset: int) -> None:
        self.handled(offset)
        self._on_their_way[offset] = None

    def acknowledged(self, offset: int) -> None:
        del self._on_their_way[offset]

    def all_acknowledged(self) -> None:
        self._on_their_way.clear()

    @property
    def on_their_way(self) -> int:
        return len(self._on_their_way)

    @property
    def position(self) -> int:
        return next(iter(self._on_their_way), self.next_offset)
