"""Offsets committed in transactions that are still open (KIP-98, KIP-447).

They are in the log like any other, but count only when their producer's transaction is committed; an abort forgets
them. What counts then is the order of the log, not that of the endings: an offset that stands later in the log, with or
without a transaction, is newer, and one that it has overtaken is not brought back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from penstock.groups.offsets import OffsetAndMetadata


class Place(NamedTuple):
    """What an offset is committed for."""

    group_id: str
    topic: str
    partition: int


@dataclass(slots=True)
class PendingOffset:
    position: int  # rises along the log
    offset: OffsetAndMetadata
    is_overtaken: bool = False


_NONE: dict[int, PendingOffset] = {}


class PendingOffsets:
    """By producer and by group. A producer has one open transaction, and one offset in it for each partition."""

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[Place, PendingOffset]] = {}
        self._by_group: dict[str, dict[Place, dict[int, PendingOffset]]] = {}
        self._position = 0

    def put(self, producer_id: int, place: Place, offset: OffsetAndMetadata) -> None:
        self._position += 1
        pending = PendingOffset(self._position, offset)
        self._by_producer.setdefault(producer_id, {})[place] = pending
        self._by_group.setdefault(place.group_id, {}).setdefault(place, {})[producer_id] = pending

    def has(self, place: Place) -> bool:
        places = self._by_group.get(place.group_id)
        return places is not None and place in places

    def has_group(self, group_id: str) -> bool:
        return group_id in self._by_group

    def of_group(self, group_id: str) -> Iterator[Place]:
        return iter(self._by_group.get(group_id, ()))

    def of_topics(self, topics: frozenset[str]) -> Iterator[tuple[Place, int]]:
        """With the time of the latest commit."""
        for places in self._by_group.values():
            for place, holders in places.items():
                if place.topic in topics:
                    yield place, max(pending.offset.commit_timestamp_ms for pending in holders.values())

    def overtake(self, place: Place) -> None:
        """An offset was committed behind all that are pending here."""
        for pending in self._by_group.get(place.group_id, {}).get(place, _NONE).values():
            pending.is_overtaken = True

    def forget(self, place: Place) -> None:
        """The offset was deleted, and what is pending with it."""
        for producer_id in list(self._by_group.get(place.group_id, {}).get(place, _NONE)):
            self._remove(producer_id, place)

    def end(self, producer_id: int, committed: bool) -> list[tuple[Place, OffsetAndMetadata]]:
        """The transaction is over. Returns the offsets that count from now on."""
        counting = []
        for place, pending in list(self._by_producer.get(producer_id, {}).items()):
            self._remove(producer_id, place)
            if committed and not pending.is_overtaken:
                counting.append((place, pending.offset))
                for other in self._by_group.get(place.group_id, {}).get(place, _NONE).values():
                    other.is_overtaken |= other.position < pending.position
        return counting

    def _remove(self, producer_id: int, place: Place) -> None:
        """No level keeps an empty one below it."""
        of_producer = self._by_producer[producer_id]
        del of_producer[place]
        if not of_producer:
            del self._by_producer[producer_id]
        places = self._by_group[place.group_id]
        del places[place][producer_id]
        if not places[place]:
            del places[place]
            if not places:
                del self._by_group[place.group_id]
