"""What a consumer asks the brokers about its partitions: where a time is in them, and how far their ends are."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaException, TopicPartition
from confluent_kafka import Consumer as KafkaConsumer

from penstock.client.errors import from_kafka
from penstock.client.message import Place

REQUEST_TIMEOUT_S = 30.0


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


def lags(
    kafka: KafkaConsumer, unprocessed: Mapping[Place, int], starts_early: bool, paused: Container[Place] = ()
) -> dict[Place, int]:
    """How far the partitions' ends are from what was processed. librdkafka knows both, once it has read.

    Its position is behind the last message that it gave away, and behind markers of transactions that nobody is given;
    so it counts, except for what is still `unprocessed`. Of a seek it does not know until it has read again, nor of the
    end of what is `paused`, so the broker is asked for that.
    """
    found = {}
    for each in kafka.position(kafka.assignment()):
        place = each.topic, each.partition
        low, high = _watermarks(kafka, each, place not in paused)
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
