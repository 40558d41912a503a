"""From which offset to which a batch reaches in each of its partitions.

Every message that is read passes here once, so the loops are those of `map`, `zip` and `set`; what is left to find is
the last message of each partition, which mostly is near the end. Offsets may have gaps, so no message can be left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka import Message as RawMessage

from penstock.client.message import Place

Spans = dict[Place, tuple[int, int]]  # the first offset, and the one behind the last

_partition, _topic = RawMessage.partition, RawMessage.topic


def ends_of(batch: Sequence[RawMessage], topic: str | None = None) -> dict[Place, int]:
    """The offset behind the last message of each partition. `topic` is given if all are of that one."""
    return {place: raw.offset() + 1 for place, raw in _last_of(batch, topic)}


def begins_of(batch: Sequence[RawMessage], topic: str | None = None) -> dict[Place, int]:
    """The offset of the first message of each partition."""
    return {place: raw.offset() for place, raw in _last_of(batch[::-1], topic)}


def spans_of(batch: Sequence[RawMessage], topic: str | None = None) -> Spans:
    ends = ends_of(batch, topic)
    return {place: (begin, ends[place]) for place, begin in begins_of(batch, topic).items()}


def extend(spans: Spans, more: Spans) -> None:
    """By what was read after them."""
    for place, (begin, end) in more.items():
        known = spans.get(place)
        spans[place] = (begin if known is None else known[0], end)


def _last_of(batch: Sequence[RawMessage], topic: str | None) -> list[tuple[Place, Any]]:
    if not batch:
        return []
    partitions: list[Any] = list(map(_partition, batch))
    keys = partitions if topic is not None else list(zip(map(_topic, batch), partitions))
    keys.reverse()
    last = len(keys) - 1
    found = [(key, batch[last - keys.index(key)]) for key in set(keys)]
    return found if topic is None else [((topic, partition), raw) for partition, raw in found]
