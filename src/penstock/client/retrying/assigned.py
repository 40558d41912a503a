"""One partition that the group gave us: how far it is done, what is known of deaths, and which keys are parked."""

from __future__ import annotations

from confluent_kafka import TopicPartition

from penstock.client.retrying.deaths import Mark, Watch
from penstock.client.retrying.ledger import Ledger
from penstock.client.retrying.ordering import ParkedKeys
from penstock.client.retrying.topics import Places
from penstock.client.retrying.waiting import Key


class Assigned:
    """Begun with its first message: until then nothing is committed in its name."""

    __slots__ = (
        "assigned_at_ms",
        "begun",
        "found",
        "handed_over",
        "is_tier",
        "key",
        "ledger",
        "parked_keys",
        "places",
        "watch",
    )

    def __init__(self, key: Key, places: Places, now_ms: int) -> None:
        self.key = key
        self.assigned_at_ms = now_ms
        self.places = places
        self.is_tier = key[0] != places.origin
        self.begun = False
        self.found: Mark | None = None
        self.ledger = Ledger(-1)
        self.watch = Watch(-1, None, 0)
        self.handed_over: frozenset[int] = (
            frozenset()
        )  # offsets whose copies are in other topics, though the position is before
        self.parked_keys: ParkedKeys | None = None  # of the origin's partition, shared with its tiers; if order is kept

    def starts_at(self, offset: int, found: Mark | None, window: int) -> None:
        self.found = found
        self.ledger = Ledger(offset)
        self.watch = Watch(offset, found, window)

    @property
    def is_placed(self) -> bool:
        return self.ledger.next_offset >= 0

    def has_copies_from(self, offset: int) -> bool:
        if self.handed_over and max(self.handed_over) < offset:
            self.handed_over = frozenset()
        return bool(self.handed_over)

    def at(self, offset: int, mark: Mark | None) -> TopicPartition:
        return TopicPartition(*self.key, offset, metadata="" if mark is None else mark.encode())

    def progress(self, now_ms: int, position: int | None = None) -> TopicPartition:
        """To where all is done, if nothing else is said."""
        position = self.ledger.position if position is None else position
        return self.at(position, self.watch.working(position, now_ms))
