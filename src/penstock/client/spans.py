"""From which offset to which a batch reaches in each of its partitions.

Every message that is read passes here once. Offsets may have gaps, so no message can be left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Message as RawMessage

from penstock.client.message import Place, last_of

Spans = dict[Place, tuple[int, int]]  # the first offset, and the one behind the last


def ends_of(batch: Sequence[RawMessage], topic: str | None = None) -> dict[Place, int]:
    """The offset behind the last message of each partition. `topic` is given if all are of that one."""
    return {place: raw.offset() + 1 for place, raw in last_of(batch, topic).items()}


def begins_of(batch: Sequence[RawMessage], topic: str | None = None) -> dict[Place, int]:
    """The offset of the first message of each partition."""
    return {place: raw.offset() for place, raw in last_of(batch[::-1], topic).items()}


def spans_of(batch: Sequence[RawMessage], topic: str | None = None) -> Spans:
    ends = ends_of(batch, topic)
    return {place: (begin, ends[place]) for place, begin in begins_of(batch, topic).items()}


def extend(spans: Spans, more: Spans) -> None:
    """By what was read after them."""
    for place, (begin, end) in more.items():
        known = spans.get(place)
        spans[place] = (begin if known is None else known[0], end)
