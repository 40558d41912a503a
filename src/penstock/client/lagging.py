"""What a consumer asks the brokers about its partitions: where a time is in them, and how far their ends are."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Mapping

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaException, TopicPartition
from confluent_kafka import Consumer as KafkaConsumer

from penstock.client.errors import from_kafka
from penstock.client.message import Place

REQUEST_TIMEOUT_S = 30.0
FRESH_S = 1.0
ASK_TIMEOUT_S = 1.0
AT_END = -1  # instead of a time


def offsets_at(kafka: KafkaConsumer, places: Iterable[Place], timestamp_ms: int) -> dict[Place, int]:
    """The first offset of each partition that is as late; its end, where none is."""
    asked = [TopicPartition(*place, timestamp_ms) for place in places]
    try:
        found = kafka.offsets_for_times(asked, REQUEST_TIMEOUT_S)
    except KafkaException as failure:
        raise from_kafka(failure.args[0], "finding the offsets of a time") from failure
    for each in found:
        if each.error is not None:
            raise from_kafka(each.error, f"finding the offset of a time in {each.topic}[{each.partition}]")
    return {(each.topic, each.partition): each.offset if each.offset >= 0 else OFFSET_END for each in found}


class Ends:
    """Where partitions end, as the brokers said it a moment ago.

    librdkafka learns it when it fetches, and fetches no more of a partition while it has enough of it that nobody has
    taken. So who is behind what it has fetched does not know how far behind it is: for those the brokers are asked, all
    at once, once a second at most. Who has taken everything need not ask, and does not wait behind its own fetch.
    """

    def __init__(self) -> None:
        self._known: dict[Place, tuple[float, int]] = {}

    def look(self, kafka: KafkaConsumer, places: Iterable[Place]) -> None:
        """Without an answer, what is known must do."""
        now_s = time.monotonic()
        self._known = {place: known for place, known in self._known.items() if now_s < known[0] + FRESH_S}
        asked = [place for place in places if place not in self._known]
        if not asked:
            return
        try:
            answer = kafka.offsets_for_times([TopicPartition(*place, AT_END) for place in asked], ASK_TIMEOUT_S)
        except KafkaException:
            answer = []
        found = {(each.topic, each.partition): each.offset for each in answer if each.error is None}
        now_s = time.monotonic()
        self._known.update((place, (now_s, found.get(place, AT_END))) for place in asked)

    def later_of(self, place: Place, high: int) -> int:
        """librdkafka's may be later, as it counts what transactions have not decided yet."""
        return max(high, self._known[place][1]) if place in self._known else high


def lags(
    kafka: KafkaConsumer,
    unprocessed: Mapping[Place, int],
    starts_early: bool,
    paused: Container[Place],
    ends: Ends,
) -> dict[Place, int]:
    """How far the partitions' ends are from what was processed. librdkafka knows both, once it has read; see `Ends`.

    Its position is behind the last message that it gave away, and behind markers of transactions that nobody is given;
    so it counts, except for what is still `unprocessed`. Of a seek it does not know until it has read again, nor of the
    end of what is `paused`, so the broker is asked for that.
    """
    found = {}
    places = {(each.topic, each.partition): each for each in kafka.position(kafka.assignment())}
    marks = {place: _watermarks(kafka, each, place not in paused) for place, each in places.items()}
    ends.look(kafka, (place for place, each in places.items() if place not in paused and each.offset < marks[place][1]))
    for place, each in places.items():
        low, high = marks[place]
        high = ends.later_of(place, high)
        if place in unprocessed:
            position = {OFFSET_BEGINNING: low, OFFSET_END: high}.get(unprocessed[place], unprocessed[place])
        elif each.offset >= 0:
            position = each.offset
        else:
            position = _committed(kafka, each, low if starts_early else high)
        found[place] = max(0, high - position)
    return found


def _watermarks(kafka: KafkaConsumer, place: TopicPartition, is_read: bool) -> tuple[int, int]:
    try:
        low, high = kafka.get_watermark_offsets(place, cached=True) if is_read else (-1, -1)
        if low >= 0 and high >= 0:
            return low, high
        return kafka.get_watermark_offsets(place, timeout=REQUEST_TIMEOUT_S)
    except KafkaException as failure:
        raise from_kafka(failure.args[0], f"asking for the end of {place.topic}[{place.partition}]") from failure


def _committed(kafka: KafkaConsumer, place: TopicPartition, otherwise: int) -> int:
    """Where the reading begins of a partition that nothing was read of yet."""
    try:
        [answer] = kafka.committed([TopicPartition(place.topic, place.partition)], REQUEST_TIMEOUT_S)
    except KafkaException as failure:
        raise from_kafka(failure.args[0], "asking for the group's offsets") from failure
    return answer.offset if answer.offset >= 0 else otherwise
