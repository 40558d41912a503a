from __future__ import annotations

import re
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from penstock.pipeline import planning
from penstock.pipeline.brokers import Brokers, Topic, TopicPartition
from penstock.pipeline.fetching import OffsetRange
from penstock.pipeline.filters import Bounds
from penstock.pipeline.options import (
    HINTS,
    OF_CLIENTS,
    OF_READERS,
    OF_WRITERS,
    REASONS,
    Edge,
    read_options,
    write_options,
)
from penstock.pipeline.problem import DataLost, OptionError
from penstock.pipeline.source import from_json, to_json
from penstock.protocol.compression import Compression

PLACES = [TopicPartition("t", n) for n in range(4)]
GIVEN = {"kafka.bootstrap.servers": "a:1, b:2", "subscribe": "t"}

sizes = st.lists(st.integers(0, 1000), min_size=4, max_size=4)


@given(sizes, st.one_of(st.none(), st.integers(1, 40)), st.one_of(st.none(), st.integers(1, 300)))
def test_pieces_are_the_whole_and_as_many_as_wanted(
    counts: list[int], partitions_min: int | None, records_max: int | None
) -> None:
    whole = [OffsetRange(place, 10, 10 + count) for place, count in zip(PLACES, counts) if count]
    pieces = planning.split(whole, partitions_min, records_max)
    for each in whole:
        own = [piece for piece in pieces if piece.place == each.place]
        assert [own[0].start, *(piece.stop for piece in own)] == [*(piece.start for piece in own), each.stop]
        assert own[0].start == each.start
    assert all(piece.start < piece.stop for piece in pieces)
    if records_max is not None:
        assert all(piece.stop - piece.start <= records_max for piece in pieces)
    total = sum(counts)
    if partitions_min is not None and len(whole) < partitions_min <= total:
        assert len(pieces) >= partitions_min


@given(sizes, st.integers(1, 2000))
def test_what_a_batch_may_read_is_shared_out_and_every_partition_moves(counts: list[int], offsets_max: int) -> None:
    start = dict.fromkeys(PLACES, 5)
    end = {place: 5 + count for place, count in zip(PLACES, counts)}
    found = planning.limited(start, end, offsets_max)
    taken = sum(found[place] - start[place] for place in PLACES)
    assert taken >= min(offsets_max, sum(counts)), "rounding leaves nothing over for a batch more"
    assert taken <= offsets_max + len(PLACES)  # each gets one at least, as in the connector
    for place, count in zip(PLACES, counts):
        assert start[place] <= found[place] <= end[place]
        assert (found[place] > start[place]) == (count > 0)


@given(
    st.lists(
        st.one_of(
            st.builds(EqualTo, st.just(("offset",)), st.integers(0, 60)),
            st.builds(GreaterThan, st.just(("offset",)), st.integers(0, 60)),
            st.builds(GreaterThanOrEqual, st.just(("offset",)), st.integers(0, 60)),
            st.builds(LessThan, st.just(("offset",)), st.integers(0, 60)),
            st.builds(LessThanOrEqual, st.just(("offset",)), st.integers(0, 60)),
            st.builds(In, st.just(("partition",)), st.lists(st.integers(0, 3)).map(tuple)),
            st.builds(EqualTo, st.just(("partition",)), st.integers(0, 3)),
            st.builds(EqualTo, st.just(("topic",)), st.sampled_from(["t", "u"])),
            st.builds(EqualTo, st.just(("value",)), st.just("x")),
        ),
        max_size=4,
    )
)
def test_filters_leave_nothing_out_that_passes_them(filters: list[Filter]) -> None:
    bounds = Bounds()
    for each in filters:
        bounds.take(each)
    for place in PLACES:
        kept = bounds.narrowed(OffsetRange(place, 0, 50))
        for offset in range(50):
            row = {"topic": place.topic, "partition": place.partition, "offset": offset}
            if all(_passes(each, row) for each in filters):
                assert kept is not None
                assert kept.start <= offset < kept.stop


def _passes(given: Filter, row: dict[str, object]) -> bool:
    value, wanted = row.get(given.attribute[0]), given.value
    match given:
        case _ if value is None:
            return True  # a column that nothing is known of
        case EqualTo():
            return value == wanted
        case In():
            return value in wanted
        case GreaterThan():
            return value > wanted
        case GreaterThanOrEqual():
            return value >= wanted
        case LessThan():
            return value < wanted
        case _:
            return value <= wanted


def test_a_log_that_became_shorter_is_not_hidden_by_a_limit() -> None:
    start, end = {PLACES[0]: 100, PLACES[1]: 0}, {PLACES[0]: 50, PLACES[1]: 1_000_000}
    limited = planning.limited(start, end, 10)
    assert limited == {PLACES[0]: 50, PLACES[1]: 10}
    with pytest.raises(DataLost, match="t-0 was read up to 100, and ends at 50 now"):
        planning.expect_no_loss(start, limited, read_options(GIVEN, streaming=True))


class ListedTopics(Brokers):
    """A cluster of which only the list of topics is asked."""

    def __init__(self, *listed: Topic) -> None:
        self._listed = listed

    def topics(self, names: Collection[str] | None = None) -> dict[str, Topic]:
        return {each.name: each for each in self._listed if names is None or each.name in names}


def test_a_pattern_leaves_out_what_nobody_means() -> None:
    names = {"orders": False, "__consumer_offsets": True, "__penstock_decisions": False, "__ours": False}
    cluster = ListedTopics(*(Topic(name, b"", internal, {0: 1}) for name, internal in names.items()))
    where = {"kafka.bootstrap.servers": "a:1"}
    every = read_options({**where, "subscribePattern": ".*"}, streaming=True)
    assert [each.topic for each in planning.partitions_of(cluster, every)] == ["orders", "__ours"]
    named = read_options({**where, "subscribe": "__penstock_decisions"}, streaming=True)
    assert [each.topic for each in planning.partitions_of(cluster, named)] == ["__penstock_decisions"]


def test_times_before_1970_are_times_like_others() -> None:
    bounds = Bounds()
    bounds.take(GreaterThanOrEqual(("timestamp",), datetime(1969, 12, 31, tzinfo=UTC)))
    assert bounds.first_ms == -86_400_000
    bounds.take(GreaterThan(("timestamp",), datetime(1969, 12, 30, tzinfo=UTC)))
    assert bounds.first_ms == -86_400_000


def test_times_are_rounded_to_where_nothing_is_lost() -> None:
    bounds = Bounds()
    bounds.take(GreaterThan(("timestamp",), datetime(1970, 1, 1, 0, 0, 1, 500, tzinfo=UTC)))
    bounds.take(LessThan(("timestamp",), datetime(1970, 1, 1, 0, 0, 2, 500, tzinfo=UTC)))
    assert (bounds.first_ms, bounds.stop_ms) == (1000, 2001)


def test_a_partition_that_vanishes_or_shrinks_is_told_of() -> None:
    options = read_options({**GIVEN}, streaming=True)
    place = PLACES[0]
    with pytest.raises(DataLost, match="t-0 was read up to 7, and does not exist any more"):
        planning.expect_no_loss({place: 7}, {}, options)
    with pytest.raises(DataLost, match="t-0 was read up to 7, and ends at 3 now"):
        planning.expect_no_loss({place: 7}, {place: 3}, options)
    planning.expect_no_loss({place: 7}, {}, read_options({**GIVEN, "failOnDataLoss": "FALSE"}, streaming=True))


def test_a_topic_is_made_anew_if_it_has_another_id_than_it_had() -> None:
    options = read_options({**GIVEN}, streaming=True)
    assert planning.made_anew({}, {"t": "b"}, options) == set(), "offsets of old tell no ids"
    assert planning.made_anew({"t": "a", "gone": "c"}, {"t": "a", "new": "d"}, options) == set()
    with pytest.raises(DataLost, match="t was deleted and made anew"):
        planning.made_anew({"t": "a"}, {"t": "b"}, options)
    lenient = read_options({**GIVEN, "failOnDataLoss": "false"}, streaming=True)
    assert planning.made_anew({"t": "a", "u": "c"}, {"t": "b", "u": "c"}, lenient) == {"t"}


def test_offsets_are_those_of_the_connector_and_remember_topics() -> None:
    offsets = {TopicPartition("t", 0): 7, TopicPartition("t", 1): 0}
    assert to_json(offsets) == {"t": {"0": 7, "1": 0}}
    known = to_json(offsets, {"t": "ab"})
    assert known == {"t": {"0": 7, "1": 0}, "#ids": {"t": "ab"}}
    assert from_json(known) == from_json(to_json(offsets)) == offsets


def test_options_mean_what_those_of_the_connector_mean() -> None:
    options = read_options({**GIVEN, "MAXOFFSETSPERTRIGGER": "5", "maxTriggerDelay": "2m"}, streaming=True)
    assert options.client.bootstrap == (("a", 1), ("b", 2))
    assert (options.offsets_max, options.delay_max_s, options.committed) == (5, 120.0, True)
    assert options.starting.edge is Edge.LATEST
    assert read_options(GIVEN, streaming=False).starting.edge is Edge.EARLIEST
    assert read_options(
        {**GIVEN, "startingTimestamp": "7", "startingOffsets": "earliest"}, streaming=True
    ).starting == (read_options({**GIVEN, "startingTimestamp": "7"}, streaming=True).starting)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"endingOffsets": "latest"}, "'endingOffsets' is not for a stream"),
        ({"kafka.security.protocol": "KERBEROS"}, "'kafka.security.protocol'"),
        ({"kafka.security.protocol": "SASL_SSL"}, "'kafka.sasl.mechanism' .* is missing"),
        ({"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "GSSAPI"}, "must be one of PLAIN, SCRAM"),
        (
            {
                "kafka.security.protocol": "SASL_PLAINTEXT",
                "kafka.sasl.mechanism": "PLAIN",
                "kafka.sasl.jaas.config": "x.PlainLoginModule required;",
            },
            "'kafka.sasl.jaas.config' must be like",
        ),
        ({"kafka.ssl.truststore.type": "JKS"}, "only PEM"),
        ({"maxTriggerDelay": "soon"}, "'maxTriggerDelay' is 'soon'"),
        ({"failOnDataLoss": "maybe"}, "must be true or false"),
        ({"kafka.bootstrap.servers": "a:b"}, "has no port"),
        ({"assign": "[1]", "subscribe": ""}, "one of the options"),
        ({"startingOffsets": "{"}, "it must be like"),
        ({"startingOffsets": '{"t": {"0": 1e999}}'}, "it must be like"),
        ({"maxTriggerDelay": "1 day"}, "'maxTriggerDelay' is '1 day'"),
    ],
)
def test_an_option_of_a_stream_that_makes_no_sense_is_named(more: dict[str, str], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        read_options({**GIVEN, **more}, streaming=True)


def test_every_option_is_in_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs/spark.md").read_text().lower()
    words = set(re.findall(r"`([\w.]+)`", text))
    for name in OF_CLIENTS | OF_READERS | OF_WRITERS | HINTS:
        assert name in words or name.removeprefix("kafka.") in words, name


def test_a_sink_is_exactly_once_unless_it_is_told_otherwise() -> None:
    sink = {"kafka.bootstrap.servers": "a:1", "topic": "t"}
    assert write_options(sink).exactly_once
    cheap = write_options({**sink, "delivery": "at-least-once", "kafka.acks": "1", "kafka.compression.type": "LZ4"})
    assert (cheap.exactly_once, cheap.acks, cheap.compression) == (False, 1, Compression.LZ4)
    with pytest.raises(OptionError, match="must be all"):
        write_options({**sink, "kafka.acks": "1"})
    with pytest.raises(OptionError, match=r"no option .kafka\.transactional\.id.: tasks write under names"):
        write_options({**sink, "kafka.transactional.id": "mine"})


def test_what_only_tunes_the_clients_of_kafka_is_taken_and_means_nothing() -> None:
    tuned = dict.fromkeys(HINTS, "1")
    assert read_options({**GIVEN, **tuned}, streaming=True) == read_options(GIVEN, streaming=True)
    sink = {"kafka.bootstrap.servers": "a:1", "topic": "t"}
    assert write_options({**sink, **tuned}) == write_options(sink)
    for name in REASONS:
        with pytest.raises(OptionError, match=f"no option {name!r}: "):
            read_options({**GIVEN, name: "x"}, streaming=True)


def test_writes_of_a_batch_are_named_by_words() -> None:
    sink = {"kafka.bootstrap.servers": "a:1", "topic": "t"}
    assert write_options({**sink, "batchId": "7", "writeId": "left.1"}).write == "left.1"
    with pytest.raises(OptionError, match="needs option 'batchId'"):
        write_options({**sink, "writeId": "left"})
    for bad in ("", "a/b", "a:b", "x" * 101):
        with pytest.raises(OptionError, match="'writeId' is"):
            write_options({**sink, "batchId": "7", "writeId": bad})
