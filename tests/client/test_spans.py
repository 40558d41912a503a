"""Where a batch reaches to, against the plain way to find out."""

from __future__ import annotations

from confluent_kafka import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.spans import Spans, begins_of, ends_of, extend, spans_of


@st.composite
def batches(draw: st.DrawFn, topics: tuple[str, ...] = ("a", "b")) -> list[Message]:
    """Runs of partitions, with gaps as compaction and transactions leave them."""
    ends: dict[tuple[str, int], int] = {}
    batch = []
    for _ in range(draw(st.integers(0, 8))):
        place = draw(st.sampled_from(topics)), draw(st.integers(0, 2))
        for gap in draw(st.lists(st.sampled_from([0, 0, 1, 4]), min_size=1, max_size=4)):
            offset = ends.get(place, 0) + gap
            batch.append(Message(topic=place[0], partition=place[1], offset=offset))
            ends[place] = offset + 1
    return batch


def plainly(batch: list[Message]) -> Spans:
    found: Spans = {}
    for each in batch:
        topic, partition, offset = each.topic(), each.partition(), each.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        found[topic, partition] = (found.get((topic, partition), (offset, 0))[0], offset + 1)
    return found


@given(batches(), st.integers(0, 20))
@settings(max_examples=50)
def test_spans_are_those_of_a_look_at_every_message(batch: list[Message], cut: int) -> None:
    assert spans_of(batch) == plainly(batch)
    together = spans_of(batch[:cut])
    extend(together, spans_of(batch[cut:]))
    assert together == plainly(batch)


@given(batches(topics=("a",)))
@settings(max_examples=20)
def test_a_topic_that_is_known_need_not_be_asked_for(batch: list[Message]) -> None:
    assert ends_of(batch, "a") == ends_of(batch) == {place: end for place, (_, end) in plainly(batch).items()}
    assert begins_of(batch, "a") == begins_of(batch) == {place: begin for place, (begin, _) in plainly(batch).items()}
