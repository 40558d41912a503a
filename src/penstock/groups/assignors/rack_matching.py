"""Partitions to members with room, so that few are read from another rack."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heapreplace


def match_racks(
    racks: Sequence[frozenset[str]], rack_of_member: Sequence[str | None], room: Sequence[int]
) -> list[int]:
    """For each partition, given the racks of its replicas, the index of the member that takes it.

    Each member has `room` for so many. What is left over then goes as one more to members that are exactly full, so
    `room` may be -1: such a member has its one more already.
    """
    matching = _Matching(len(racks), room)
    in_rack: dict[str, list[int]] = {}
    for member, rack_id in enumerate(rack_of_member):
        if rack_id is not None:
            in_rack.setdefault(rack_id, []).append(member)
    pools = {rack_id: _Pool(members, matching.room) for rack_id, members in in_rack.items()}
    # Who can go to few racks first.
    for partition in sorted(range(len(racks)), key=lambda each: (len(racks[each]), each)):
        matching.give(partition, [pools[rack_id] for rack_id in sorted(racks[partition] & pools.keys())])
    everyone = _Pool(range(len(room)), matching.room)
    for partition, taker in enumerate(matching.takers):
        if taker < 0:
            matching.give(partition, [everyone])
    return matching.takers


class _Matching:
    def __init__(self, partitions: int, room: Sequence[int]) -> None:
        self.room = list(room)
        self.takers = [-1] * partitions
        self._left_over = partitions - sum(each for each in room if each > 0)
        assert self._left_over >= 0, "there is room for more than there is"

    def give(self, partition: int, pools: Iterable[_Pool]) -> None:
        """To whoever of these has most room; to one that is exactly full only while something is left over."""
        most = max((pool.most_room() for pool in pools), default=None)
        if most is None or most[0] < 0 or (most[0] == 0 and not self._left_over):
            return
        if most[0] == 0:
            self._left_over -= 1
        self.room[-most[1]] -= 1
        self.takers[partition] = -most[1]


class _Pool:
    """Members, and which of them has most room. Room only shrinks: what is no longer true is mended at the top."""

    def __init__(self, members: Iterable[int], room: list[int]) -> None:
        self._room = room
        self._heap = [(-room[member], member) for member in members]
        heapify(self._heap)

    def most_room(self) -> tuple[int, int]:
        """The room, and the member's index negated, so that of equals the first is the largest."""
        heap = self._heap
        while -heap[0][0] != self._room[heap[0][1]]:
            member = heap[0][1]
            heapreplace(heap, (-self._room[member], member))
        return -heap[0][0], -heap[0][1]
