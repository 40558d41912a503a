"""What of a group's offsets is stored, what should be, and when.

Offsets are those of the next message to process. An ordinary commit does not wait; what it did not store is tried again
with the next one. One that waits raises.

librdkafka sends a commit again that got no answer, perhaps behind a newer one, and what is stored then is older than
what we stored last. So of those that nobody waits for, one at a time is under way; and an answer for another offset
than the last one means that the last one has to be stored again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from penstock.client.committer import Committer, no_answer
from penstock.client.errors import CommitFailed, PenstockError, from_kafka
from penstock.client.message import Place

log = logging.getLogger("penstock.client")

ANSWER_TIMEOUT_S = 60.0
GONE_HINT = (
    "The group has ended: its last member was not heard of for as long as a session lasts (session.timeout.ms). "
    "What was not stored will be read again by who joins next."
)


class Commits:
    """The offsets of one consumer's group, as far as this consumer knows them."""

    def __init__(self, interval_s: float, every: int) -> None:
        self.interval_s = interval_s
        self.every = every
        self._sent: dict[Place, int] = {}
        self.committer = Committer()
        self.committer.heard = self.answered
        self.due_s = time.monotonic() + interval_s
        self._unanswered_s: float | None = None  # since when a commit is under way that nobody waits for

    def is_due(self, now_s: float, messages: int) -> bool:
        return now_s >= self.due_s or messages >= self.every

    @property
    def is_unanswered(self) -> bool:
        """Whether a commit is under way that nobody waits for."""
        return self._unanswered_s is not None

    def put_off(self, now_s: float) -> None:
        self.due_s = now_s + self.interval_s

    def later(self, positions: Mapping[Place, int], now_s: float) -> None:
        """Commits what is new, without waiting."""
        self.put_off(now_s)
        if self._unanswered_s is not None and now_s - self._unanswered_s < ANSWER_TIMEOUT_S:
            return
        offsets = self._new(positions, {})
        if offsets and self.committer.later(offsets):
            self._note(offsets)
            self._unanswered_s = now_s

    def now(self, positions: Mapping[Place, int], metadata: Mapping[Place, str] | None = None) -> None:
        """Commits what is new, and waits until it is stored."""
        offsets = self._new(positions, metadata or {})
        if not offsets:
            return
        error = self.committer.now(offsets)
        if error is not None:
            raise _failed(error)
        self._note(offsets)

    def now_for_good(self, positions: Mapping[Place, int]) -> None:
        """The same, and nothing that was sent before it is stored behind it. For the end: see `Committer.settle`."""
        if positions and not self.committer.settle():
            raise _failed(no_answer(self.committer.timeout_s))
        self.now(positions)

    def answered(self, error: KafkaError | None, offsets: Iterable[TopicPartition]) -> None:
        """Of a commit that nobody waited for. What was not stored, or may be older than it should be, is new again."""
        self._unanswered_s = None
        for each in offsets:
            place = each.topic, each.partition
            if error is not None or each.error is not None or self._sent.get(place) != each.offset:
                self._sent.pop(place, None)

    def forget(self, places: Iterable[Place]) -> None:
        """Partitions that went to another consumer, or that were put to another position."""
        for place in places:
            self._sent.pop(place, None)

    def _new(self, positions: Mapping[Place, int], metadata: Mapping[Place, str]) -> list[TopicPartition]:
        sent = self._sent
        return [
            TopicPartition(*place, offset, metadata=metadata.get(place, ""))
            for place, offset in positions.items()
            if place in metadata or sent.get(place) != offset
        ]

    def _note(self, offsets: Iterable[TopicPartition]) -> None:
        for each in offsets:
            self._sent[each.topic, each.partition] = each.offset


def _failed(error: KafkaError) -> PenstockError:
    found = from_kafka(error, "committing offsets")
    if isinstance(found, CommitFailed):
        return found
    hint = GONE_HINT if error.code() == KafkaError.GROUP_ID_NOT_FOUND else found.hint
    return CommitFailed(found.text, hint, kafka_error=error.name())


def as_places(partitions: Iterable[Any]) -> list[Place]:
    return [(each.topic, each.partition) for each in partitions]
