"""Histories that never happened, for tests of the judge: a clean one in a few lines, to be spoilt in one way each."""

from __future__ import annotations

import itertools

from tests.history.events import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Acknowledged,
    Assigned,
    Began,
    Ended,
    Event,
    Failed,
    FinalRead,
    Message,
    Read,
    Sent,
)

TOPIC = "t"


class Forgery:
    """A log as it would be, and the events of those who wrote and read it, a millisecond apart."""

    def __init__(self, partitions: int = 1) -> None:
        self.events: list[Event] = []
        self.logs: list[dict[int, tuple[Message, bool]]] = [{} for _ in range(partitions)]  # and whether it is visible
        self._clock = itertools.count()
        self._ends = [0] * partitions

    def now(self) -> float:
        return next(self._clock) / 1000

    def wait(self, seconds: float) -> None:
        for _ in range(int(seconds * 1000)):
            next(self._clock)

    def began(self, producer: str, *, idempotent: bool = True, transactional_id: str | None = None) -> None:
        self.events.append(Began(self.now(), producer, idempotent, transactional_id))

    def sent(self, producer: str, number: int, partition: int | None = 0, transaction: int | None = None) -> None:
        self.events.append(Sent(self.now(), producer, number, TOPIC, partition, None, transaction))

    def stored(self, producer: str, number: int, partition: int = 0, *, visible: bool = True) -> int:
        offset = self._ends[partition]
        self._ends[partition] += 1
        self.logs[partition][offset] = (Message(producer, number), visible)
        return offset

    def marker(self, partition: int = 0) -> None:
        self._ends[partition] += 1

    def acknowledged(self, producer: str, number: int, offset: int, partition: int = 0) -> None:
        self.events.append(Acknowledged(self.now(), producer, number, TOPIC, partition, offset))

    def failed(self, producer: str, number: int, *, certain: bool = False) -> None:
        self.events.append(Failed(self.now(), producer, number, certain, "for a test"))

    def wrote(
        self, producer: str, number: int, partition: int = 0, transaction: int | None = None, *, visible: bool = True
    ) -> int:
        """Sent, stored and acknowledged; the offset."""
        self.sent(producer, number, partition, transaction)
        offset = self.stored(producer, number, partition, visible=visible)
        self.acknowledged(producer, number, offset, partition)
        return offset

    def ended(self, producer: str, transaction: int, outcome: str) -> None:
        self.events.append(Ended(self.now(), producer, transaction, outcome))

    def assigned(self, reader: str, partition: int = 0) -> None:
        self.events.append(Assigned(self.now(), reader, TOPIC, partition))

    def read(
        self,
        reader: str,
        offset: int,
        partition: int = 0,
        *,
        group: str | None = None,
        isolation: str = READ_COMMITTED,
        message: Message | None = None,
    ) -> None:
        found = message or self.logs[partition][offset][0]
        self.events.append(Read(self.now(), reader, group, TOPIC, partition, offset, *found, isolation))

    def final(
        self, *, isolations: tuple[str, ...] = (READ_COMMITTED, READ_UNCOMMITTED), without: tuple[int, ...] = ()
    ) -> None:
        """Both final reads, but for some offsets of partition 0."""
        for isolation in isolations:
            reader = f"final {isolation}"
            for partition, log in enumerate(self.logs):
                for offset, (_, visible) in log.items():
                    if (visible or isolation == READ_UNCOMMITTED) and (partition or offset not in without):
                        self.read(reader, offset, partition, isolation=isolation)
            self.events.append(FinalRead(self.now(), reader, TOPIC, isolation, list(self._ends)))
