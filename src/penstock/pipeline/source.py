"""Topics as rows: batch and streaming reads of `format("penstock")`.

The driver plans ranges of offsets; a task reads one range straight from the partition's leader, into Arrow columns.
"""

from __future__ import annotations

import pickle
import time
from base64 import b64decode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.pipeline import planning
from penstock.pipeline.brokers import Brokers, TopicPartition
from penstock.pipeline.fetching import FETCH_BYTES, OffsetRange, RangeFetcher
from penstock.pipeline.filters import Bounds
from penstock.pipeline.options import Edge, ReadOptions
from penstock.pipeline.problem import OptionError
from penstock.pipeline.settling import settle

if TYPE_CHECKING:
    import pyarrow

ROWS_PER_BATCH = 10_000  # where Spark is quickest
BYTES_PER_BATCH = 16 << 20

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def row_schema(headers: bool) -> StructType:
    """The columns of Spark's own connector, in its order."""
    fields = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    return StructType([*fields, StructField("headers", HEADERS)] if headers else fields)


def check_schema(schema: StructType, headers: bool) -> None:
    expected = row_schema(headers)
    if [(each.name, each.dataType) for each in schema] != [(each.name, each.dataType) for each in expected]:
        raise OptionError(f"the penstock source has a schema of its own: {expected.simpleString()}")


@dataclass
class RangePartition(InputPartition):
    """What one task reads."""

    wanted: OffsetRange


def read_rows(options: ReadOptions, wanted: OffsetRange) -> Iterator[pyarrow.RecordBatch]:
    from penstock.pipeline.columns import RowDecoder

    settle()
    place = wanted.place
    decoder = RowDecoder(place.topic, place.partition, headers=options.headers)
    with Brokers(options.client) as brokers:
        fetcher = RangeFetcher(
            brokers,
            wanted,
            committed=options.committed,
            fail_on_data_loss=options.fail_on_data_loss,
            fetch_bytes=options.fetch_bytes or FETCH_BYTES,
        )
        for batch in fetcher.batches():
            decoder.add(batch, wanted.start, wanted.stop)
            while decoder.rows >= ROWS_PER_BATCH or decoder.size >= BYTES_PER_BATCH:
                yield decoder.take(ROWS_PER_BATCH)
        while decoder.rows:
            yield decoder.take(ROWS_PER_BATCH)


# ---- batch


class BatchReader(DataSourceReader):
    """Takes no filters of Spark's: Spark 4.3 keeps one plan of ours for a DataFrame, and gives it to whoever uses the
    DataFrame, with other filters or with none. Ranges that filters had narrowed would be missing there."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with Brokers(options.client.hasty()) as brokers:
            ranges = self._ranges(brokers)
        pieces = planning.split(ranges, options.partitions_min, options.records_max)
        return [RangePartition(each) for each in pieces]

    def _ranges(self, brokers: Brokers) -> list[OffsetRange]:
        options = self._options
        planning.expect_topics(brokers, options)
        places = planning.partitions_of(brokers, options)
        starting = planning.resolve(brokers, places, options.starting, options, "starting")
        ending = planning.resolve(brokers, places, options.ending, options, "ending")
        return planning.ranges_between(brokers, starting, ending, options)

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        if isinstance(partition, RangePartition):  # Spark makes one of its own where there is nothing to read
            yield from read_rows(self._options, partition.wanted)


class NarrowedBatchReader(BatchReader):
    """Of a source that nobody else uses, and that pushdown.py has made for filters.

    It reads a part of what was planned without them, not of what the topics hold by now: a DataFrame is one state of
    its topics, however it is used.
    """

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._bounds = Bounds()

    def _ranges(self, brokers: Brokers) -> list[OffsetRange]:
        planned = self._options.planned
        ranges = super()._ranges(brokers) if planned is None else ranges_planned(planned)
        ranges = [each for wanted in ranges if (each := self._bounds.narrowed(wanted)) is not None]
        if self._bounds.first_ms is not None:
            ranges = planning.late_enough(brokers, ranges, self._bounds.first_ms)
        return ranges

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for each in filters:
            self._bounds.take(each)
        return filters  # Spark looks at every row again


def ranges_planned(planned: str) -> list[OffsetRange]:
    found = [pickle.loads(b64decode(each)) for each in planned.split(",") if each]
    return [each.wanted for each in found if isinstance(each, RangePartition)]


# ---- streaming

OffsetsJson = dict[str, dict[str, Any]]
"""As in Spark's connector: {"orders": {"0": 23}}; and under IDS which topic of that name it was."""

IDS = "#ids"  # no topic can have such a name
TopicIds = dict[str, str]  # by name


def to_json(offsets: planning.Offsets, ids: TopicIds | None = None) -> OffsetsJson:
    found: OffsetsJson = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return {**found, IDS: dict(sorted(ids.items()))} if ids else found


def from_json(offsets: OffsetsJson) -> planning.Offsets:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in offsets.items()
        if topic != IDS
        for partition, offset in partitions.items()
    }


class Ends(NamedTuple):
    offsets: planning.Offsets
    ids: TopicIds


class RefusedStreamReader(DataSourceStreamReader):
    """Tells what is wrong when Spark asks where to begin: of a reader that was not made it would tell nothing."""

    def __init__(self, problem: OptionError) -> None:
        self._problem = problem

    def initialOffset(self) -> OffsetsJson:
        raise self._problem

    def latestOffset(self, start: OffsetsJson, limit: ReadLimit) -> OffsetsJson:
        raise self._problem

    def partitions(self, start: OffsetsJson, end: OffsetsJson) -> list[InputPartition]:
        raise self._problem

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        raise self._problem


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """On the driver one of them lives as long as the query; tasks get a copy.

    Offsets name the topics that they are of, because one that is deleted and made anew has the same offsets again, of
    other records.
    """

    remembers_topics = True

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._brokers: Brokers | None = None
        self._began: planning.Offsets = {}  # of a query that has no checkpoint yet
        self._final: Ends | None = None  # where a query ends that takes what is there now
        self._latest: Ends | None = None
        self._moved_at = time.monotonic()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_brokers": None, "_latest": None, "_final": None}

    @property
    def _cluster(self) -> Brokers:
        if self._brokers is None:
            self._brokers = Brokers(self._options.client.hasty())
        return self._brokers

    # ---- the driver's

    def initialOffset(self) -> OffsetsJson:
        planning.expect_topics(self._cluster, self._options)
        places = planning.partitions_of(self._cluster, self._options)
        ids = self._ids({place.topic for place in places})
        self._began = planning.resolve(self._cluster, places, self._options.starting, self._options, "starting")
        return to_json(self._began, ids)

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.offsets_max
        return ReadMaxRows(limit) if limit is not None else ReadAllAvailable()

    def latestOffset(self, start: OffsetsJson, limit: ReadLimit) -> OffsetsJson:
        self._latest = self._available(self._final) if self._final is not None else self._ends()
        end, ids = self._latest
        begun = self._begin(from_json(start), end, start.get(IDS, {}), ids)
        if self._final is None and self._is_too_little(begun, end):
            return start
        if isinstance(limit, ReadMaxRows):
            end = planning.limited(begun, end, limit.max_rows)
        if end != from_json(start):
            self._moved_at = time.monotonic()
        return to_json(end, ids)

    def reportLatestOffset(self) -> OffsetsJson | None:
        return to_json(self._latest.offsets) if self._latest is not None else None

    def prepareForTriggerAvailableNow(self) -> None:
        self._final = self._ends()

    def _available(self, final: Ends) -> Ends:
        """Not behind offsets that the query was told, so that others which were told the same end at the same."""
        told = self._options.available
        if told is None:
            return final
        ends = {place: min(offset, told[place]) for place, offset in final.offsets.items() if place in told}
        # It may have begun behind them, or with partitions that are newer: at 'latest', a moment later.
        ends |= {place: max(offset, ends.get(place, 0)) for place, offset in self._began.items()}
        return Ends(ends, final.ids)

    def _ends(self) -> Ends:
        places = planning.partitions_of(self._cluster, self._options)
        # First who they are: of one that is made anew in between the next batch tells.
        ids = self._ids({place.topic for place in places})
        return Ends(planning.edges(self._cluster, places, Edge.LATEST, self._options.committed), ids)

    def _ids(self, topics: set[str]) -> TopicIds:
        """Brokers of old have none."""
        found = self._cluster.topics(topics) if self.remembers_topics and topics else {}
        return {name: topic.topic_id.hex() for name, topic in found.items() if any(topic.topic_id)}

    def _begin(
        self, begun: planning.Offsets, ended: planning.Offsets, before: TopicIds, now: TopicIds
    ) -> planning.Offsets:
        """Where to go on. What is new, or made anew, is read from its beginning."""
        anew = planning.made_anew(before, now, self._options)
        return begun | self._begin_new([place for place in ended if place not in begun or place.topic in anew])

    def _begin_new(self, places: Iterable[TopicPartition]) -> planning.Offsets:
        """Partitions that came after the query began are read from their beginning."""
        return planning.edges(self._cluster, places, Edge.EARLIEST, self._options.committed)

    def _is_too_little(self, begun: planning.Offsets, end: planning.Offsets) -> bool:
        wanted = self._options.offsets_min
        if wanted is None or time.monotonic() - self._moved_at >= self._options.delay_max_s:
            return False
        return sum(max(0, end[place] - begun.get(place, 0)) for place in end) < wanted

    def partitions(self, start: OffsetsJson, end: OffsetsJson) -> list[InputPartition]:
        ids, ended = end.get(IDS, {}), from_json(end)
        begun = self._begin(from_json(start), ended, start.get(IDS, {}), ids)
        planning.expect_no_loss(begun, ended, self._options)
        gone = planning.made_anew(ids, self._ids({place.topic for place in ended}), self._options)
        ended = {place: offset for place, offset in ended.items() if place.topic not in gone}
        ranges = planning.ranges_between(self._cluster, begun, ended, self._options)
        pieces = planning.split(ranges, self._options.partitions_min, self._options.records_max)
        return [RangePartition(each) for each in pieces]

    def stop(self) -> None:
        if self._brokers is not None:
            self._brokers.close()

    # ---- the tasks'

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        assert isinstance(partition, RangePartition)
        yield from read_rows(self._options, partition.wanted)
