"""Messages that can't be handled yet, because they are not due. Pure: the caller pauses and resumes partitions.

A tier's partition is in the order in which its messages become due, so only its head need be looked at. Where the head
is not due, the partition is paused, and what had already been read of it is held here, behind the head. No other
partition waits for it. A head that is taken and can't be handled after all comes back to the front.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Key = tuple[str, int]  # topic and partition
Item = TypeVar("Item")


class Waiting(Generic[Item]):
    def __init__(self, offset_of: Callable[[Item], int]) -> None:
        self._offset_of = offset_of
        self._held: dict[Key, deque[tuple[int, Item]]] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._held

    def __len__(self) -> int:
        return len(self._held)

    def keys(self) -> list[Key]:
        return list(self._held)

    def hold(self, key: Key, due_at_ms: int, item: Item, in_front: bool = False) -> bool:
        """Whether this is the first of its partition, which must be paused now."""
        held = self._held.get(key)
        if held is None:
            self._held[key] = deque([(due_at_ms, item)])
            return True
        (held.appendleft if in_front else held.append)((due_at_ms, item))
        return False

    def is_behind(self, key: Key, offset: int) -> bool:
        """Whether messages of the partition are held that come before this one."""
        held = self._held.get(key)
        return held is not None and self._offset_of(held[0][1]) < offset

    def next_due_at_ms(self) -> int | None:
        return min((held[0][0] for held in self._held.values()), default=None)

    def take_due(self, now_ms: int) -> list[tuple[Key, Item, bool]]:
        """The heads that are due, each with whether it was the last that is held of its partition."""
        due = []
        for key, held in list(self._held.items()):
            if held[0][0] <= now_ms:
                _, item = held.popleft()
                if not held:
                    del self._held[key]
                due.append((key, item, not held))
        return due

    def drop(self, key: Key) -> None:
        self._held.pop(key, None)
