"""A follower in one partition: what it has asked for, and what it was told."""

from __future__ import annotations

from typing import Protocol

from penstock.protocol.messages.fetch import FetchPartition
from penstock.replication.partition import Partition

Key = tuple[bytes, int]


class Session(Protocol):
    def wake(self, place: Place) -> None:
        """There is something for it."""


class Place:
    """A follower in one partition."""

    __slots__ = ("armed", "asked", "key", "partition", "session", "told")

    def __init__(self, session: Session, key: Key, asked: FetchPartition) -> None:
        self.session = session
        self.key = key
        self.asked = asked
        self.partition: Partition | None = None
        self.armed = True  # it waits to be told
        self.told = (-1, -1)  # of the high watermark, and of where the log begins

    def wake(self) -> None:
        if self.armed:
            self.session.wake(self)

    def is_to_learn(self, high_watermark: int, start: int, of_commits: bool) -> bool:
        """Whether there is something to tell a follower that has all of the log."""
        return self.told[1] != start or (of_commits and self.told[0] != high_watermark)

    @property
    def is_told(self) -> bool:
        """Whether there is nothing to say. Asked of all that is at rest, again and again."""
        partition, asked = self.partition, self.asked
        if partition is None or not partition.leads or partition.error is not None:
            return False
        store = partition.log
        at_rest = asked.fetch_offset == store.end_offset and asked.current_leader_epoch == partition.leader_epoch
        return at_rest and self.told == (partition.high_watermark, store.start_offset)
