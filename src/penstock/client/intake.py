"""What is taken from librdkafka: how much at once, what among it is no message, and from where on.

How many are taken at once follows how long the program takes for them, so that a slow one still asks often enough to
stay a member of its group (max.poll.interval.ms) and commits as often as it promised.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.client.admin import is_missing
from penstock.client.commits import as_places
from penstock.client.errors import PenstockError, SettingsError, from_kafka
from penstock.client.message import Place, has_errors
from penstock.client.settings import Settings, refused
from penstock.client.spans import begins_of

log = logging.getLogger("penstock.client")

BATCH_S_MAX = 0.5  # a batch that takes longer makes the next one half as large
BATCH_S_MIN = 0.1  # one that takes less makes it twice as large
FIRST_BATCH = 64
LOOK_S = 0.5  # for a topic that does not exist yet
SEEK_TIMEOUT_S = 10.0
SEEK_RETRY_S = 0.01
SILENT = frozenset({KafkaError._PARTITION_EOF, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT})


class Intake:
    """One consumer of librdkafka. `gone` are partitions that were taken away during the call that is under way."""

    def __init__(self, settings: Settings, batch_max: int, on_commit: Callable[..., object]) -> None:
        self.kafka = _make({**settings, "on_commit": on_commit})
        self.gone: set[Place] = set()
        self._batch_max = batch_max
        self._batch_size = min(FIRST_BATCH, batch_max)
        self._taken = 0
        self._missing: set[str] = set()  # topics that do not exist yet
        self._look_at_s = 0.0
        self._subscribe: Callable[[], None] = lambda: None

    def subscribe(self, topics: list[str], **listeners: Callable[..., None]) -> None:
        self._subscribe = lambda: self.kafka.subscribe(topics, **listeners)
        try:
            self._subscribe()
        except KafkaException as failure:
            raise from_kafka(failure.args[0], f"subscribing to {', '.join(topics)}") from failure

    # ---- how much

    def take(self, timeout_s: float, most: int) -> list[Any]:
        """What is there, or else the next message, alone: who had to be waited for seldom comes in company."""
        self.gone.clear()
        size = min(self._batch_size, most)
        kafka = self.kafka
        try:
            batch = kafka.consume(size, 0) if self._taken >= size else []  # where there is more, as it seems
            if not batch:
                first = kafka.poll(0)
                if first is None:
                    first = kafka.poll(timeout_s)
                    batch = [] if first is None else [first]
                else:
                    batch = [first, *kafka.consume(size - 1, 0)] if size > 1 else [first]
        except KafkaException as failure:
            raise from_kafka(failure.args[0], "reading") from failure
        if has_errors(batch):
            batch = self._without_errors(batch)
        if self.gone:
            batch = [raw for raw in batch if (raw.topic(), raw.partition()) not in self.gone]
        self._taken = len(batch)
        return batch

    def adapt(self, took_s: float) -> None:
        """To how long the last batch took."""
        if took_s > BATCH_S_MAX:
            self._batch_size = max(1, self._batch_size // 2)
        elif took_s < BATCH_S_MIN and self._taken >= self._batch_size:
            self._batch_size = min(self._batch_max, self._batch_size * 2)

    def take_few(self) -> None:
        """From now on: the last batch was far too much."""
        self._batch_size = 1

    # ---- what is no message

    def _without_errors(self, batch: list[Any]) -> list[Any]:
        """What is no message is news: passing trouble, which librdkafka sees to, or an error that ends the reading."""
        good = [raw for raw in batch if raw.error() is None]
        for raw in batch:
            error = raw.error()
            if error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                log.warning("there is no topic %r yet; waiting for it", raw.topic())
                self._missing.add(raw.topic())
            elif error is not None and error.code() == KafkaError._MAX_POLL_EXCEEDED:
                log.warning("the program took longer than max.poll.interval.ms: the group reads again what it had")
            elif error is not None and error.code() not in SILENT and not error.retriable():
                self.rewind(begins_of(good))
                topic = raw.topic()
                raise from_kafka(error, f"reading {topic!r}" if topic else "reading")
        return good

    def look_for_missing(self, now_s: float) -> None:
        """librdkafka would do so every five minutes; who subscribes anew is told at once."""
        if not self._missing or now_s < self._look_at_s:
            return
        self._look_at_s = now_s + LOOK_S
        try:
            found = {topic for topic in self._missing if not is_missing(self.kafka, topic, LOOK_S)}
        except KafkaException:  # no answer now
            return
        if found:
            self._missing -= found
            self._subscribe()

    # ---- from where on

    def rewind(self, begins: Mapping[Place, int]) -> None:
        """What comes next, in those of these partitions that are still ours."""
        for place, begin in begins.items():
            try:
                self.seek(place, begin)
            except PenstockError:
                if place in self.assignment():
                    raise

    def seek(self, place: Place, offset: int) -> None:
        """librdkafka can't seek in a partition that it has just been given, until it has begun to read it."""
        deadline_s = time.monotonic() + SEEK_TIMEOUT_S
        while True:
            try:
                return self.kafka.seek(TopicPartition(*place, offset))
            except KafkaException as failure:
                error = failure.args[0]
                if error.code() != KafkaError._STATE or time.monotonic() > deadline_s or place not in self.assignment():
                    raise from_kafka(error, f"seeking in {place[0]}[{place[1]}]") from failure
            time.sleep(SEEK_RETRY_S)

    def assignment(self) -> list[Place]:
        return sorted(as_places(self.kafka.assignment()))


def _make(settings: Settings) -> KafkaConsumer:
    try:
        return KafkaConsumer(settings)
    except KafkaException as failure:
        raise refused(failure, settings) from failure
    except (TypeError, ValueError) as failure:
        raise SettingsError(f"settings: {failure}.") from failure
