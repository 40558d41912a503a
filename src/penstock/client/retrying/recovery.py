"""What was parked before, read from the topics themselves: after a death, and to keep the order of keys."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from penstock.client.errors import BrokerUnreachable, from_kafka
from penstock.client.retrying.waiting import Key

if TYPE_CHECKING:
    from confluent_kafka import Message as RawMessage

QUIET_TIMEOUT_S = 30.0
REQUEST_TIMEOUT_S = 10.0
CLOCKS_APART_MS = 60_000  # of the machines of a group, at the most
BATCH = 1_000


class Scan:
    """Reads partitions from a place to where they end now, beside the group and without its knowledge."""

    def __init__(self, client: Mapping[str, Any], group: str, committed_only: bool) -> None:
        isolation = "read_committed" if committed_only else "read_uncommitted"
        self._settings = {
            **client, "group.id": group, "enable.auto.commit": False, "enable.partition.eof": True,
            "auto.offset.reset": "earliest", "isolation.level": isolation,
            "fetch.wait.max.ms": 10,  # nothing is waited for but the end, which the broker tells when that time is over
        }  # fmt: skip

    def since(self, keys: list[Key], time_ms: int) -> Iterator[RawMessage]:
        with _consumer(self._settings) as consumer:
            wanted = [TopicPartition(*key, max(0, time_ms - CLOCKS_APART_MS)) for key in keys]
            found = consumer.offsets_for_times(wanted, timeout=REQUEST_TIMEOUT_S)
            for place in found:
                if place.error is not None:
                    raise from_kafka(place.error, f"looking into {place.topic!r}")
            yield from _read(consumer, [place for place in found if place.offset >= 0])

    def behind(self, starts: Mapping[Key, int]) -> Iterator[RawMessage]:
        with _consumer(self._settings) as consumer:
            yield from _read(consumer, [TopicPartition(*key, offset) for key, offset in starts.items()])


class _consumer:
    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings

    def __enter__(self) -> Consumer:
        self._consumer = Consumer(self._settings)
        return self._consumer

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


def _read(consumer: Consumer, places: list[TopicPartition]) -> Iterator[RawMessage]:
    open_places = {(place.topic, place.partition) for place in places}
    consumer.assign(places)
    quiet_since = time.monotonic()
    while open_places:
        first = consumer.poll(0.5)
        messages = [] if first is None else [first, *consumer.consume(BATCH - 1, 0)]
        if messages:
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since > QUIET_TIMEOUT_S:
            raise BrokerUnreachable(f"{len(open_places)} partitions of parked messages can't be read.", "Try again.")
        for message in messages:
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                open_places.discard((message.topic() or "", message.partition() or 0))
            elif not error.retriable():
                raise from_kafka(error, f"reading {message.topic()!r}") from KafkaException(error)
