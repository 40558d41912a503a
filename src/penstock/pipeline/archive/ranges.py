"""A stream of ranges: what there is to archive, and not the records themselves, which no JVM needs to see.

Pieces are cut where offsets are multiples of a number, so that a batch that is planned again has the same ones, and
nothing is planned that the archive covers. A job that lost its checkpoint, or got an old one, writes what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, StructField, StructType

from penstock.pipeline import planning
from penstock.pipeline.archive.group import expect_own
from penstock.pipeline.archive.layout import Archive, Range, another_topic, first_uncovered, uncovered
from penstock.pipeline.archive.settings import ArchiveOptions, archive_options
from penstock.pipeline.brokers import TopicPartition
from penstock.pipeline.fetching import OffsetRange
from penstock.pipeline.options import Edge, ReadOptions, read_options
from penstock.pipeline.problem import DataLost
from penstock.pipeline.source import OffsetsJson, StreamReader, from_json, to_json

if TYPE_CHECKING:
    import pyarrow

Coverage = dict[TopicPartition, list[Range]]

SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("start", LongType()),
        StructField("stop", LongType()),
        StructField("covered", BooleanType()),
    ]
)


class RangesDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "penstock_ranges"

    def schema(self) -> StructType:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        archive, others = archive_options(self.options)
        return RangesReader(read_options(others, streaming=True), archive)


@dataclass
class PlannedPiece(InputPartition):
    wanted: OffsetRange
    covered: bool  # nothing is to be written; it only says how far the batch goes


class RangesReader(StreamReader):
    remembers_topics = False  # the archive does

    def __init__(self, options: ReadOptions, archive: ArchiveOptions) -> None:
        super().__init__(options)
        self._archive_options = archive
        self._archive: Archive = archive.open()
        self._topic_ids: dict[str, bytes] = {}

    # ---- the driver's

    def initialOffset(self) -> OffsetsJson:
        """Behind what is covered of what the log still has."""
        planning.expect_topics(self._cluster, self._options)
        places = planning.partitions_of(self._cluster, self._options)
        self._expect_ours(places)
        earliest = planning.edges(self._cluster, places, Edge.EARLIEST, self._options.committed)
        covered = self._coverage(places)
        for place, offset in earliest.items():
            self._expect_no_gap(place, offset, covered[place])
        return to_json({place: first_uncovered(offset, covered[place]) for place, offset in earliest.items()})

    def _expect_no_gap(self, place: TopicPartition, earliest: int, covered: list[Range]) -> None:
        if self._options.fail_on_data_loss and covered and covered[-1][1] < earliest:
            raise DataLost(
                f"{place} is archived up to {covered[-1][1]}, and its log begins at {earliest}: what is between was "
                "deleted before it was archived. Option --allow-gaps goes on behind it."
            )

    def _expect_ours(self, places: Iterable[TopicPartition]) -> None:
        """Neither another topic's archive, nor another archive's group."""
        places = list(places)
        self._expect_own_groups(places)
        self._expect_same_topics(places)

    def _expect_own_groups(self, places: list[TopicPartition]) -> None:
        by_group: dict[str, list[TopicPartition]] = {}
        for place in places:
            by_group.setdefault(self._archive_options.group_of(place.topic), []).append(place)
        for group, of_group in by_group.items():
            expect_own(self._cluster, group, of_group, self._archive.location)

    def _expect_same_topics(self, places: Iterable[TopicPartition]) -> None:
        """A topic that was deleted and made anew has the same offsets again, of other records."""
        for name, topic in self._cluster.topics({place.topic for place in places}).items():
            known = self._topic_ids.get(name) or self._archive.topic_id(name)
            if not known:
                self._archive.set_topic_id(name, topic.topic_id)
            elif known != topic.topic_id:
                raise another_topic(self._archive, name)
            self._topic_ids[name] = topic.topic_id

    def partitions(self, start: OffsetsJson, end: OffsetsJson) -> list[InputPartition]:
        begun, ended = from_json(start), from_json(end)
        self._expect_ours(ended)
        planning.expect_no_loss(begun, ended, self._options)
        begun |= self._begin_new(ended.keys() - begun.keys())
        covered = self._coverage(ended)
        missing = {place: min(first_uncovered(begun[place], covered[place]), ended[place]) for place in ended}
        ranges = planning.ranges_between(self._cluster, missing, ended, self._options)
        pieces = [PlannedPiece(each, False) for each in cut(ranges, covered, self._archive_options.records_per_file)]
        return [*pieces, *_reached(begun, ended, pieces)]

    def _coverage(self, places: Iterable[TopicPartition]) -> Coverage:
        places = list(places)
        by_topic = {topic: self._archive.coverage(topic) for topic in {place.topic for place in places}}
        return {place: by_topic[place.topic].get(place.partition, []) for place in places}

    # ---- the tasks'

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow as pa

        assert isinstance(partition, PlannedPiece)
        (topic, number), start, stop = partition.wanted
        columns = {"topic": [topic], "partition": [number], "start": [start], "stop": [stop]}
        types = (("topic", pa.string()), ("partition", pa.int32()), ("start", pa.int64()), ("stop", pa.int64()))
        schema = pa.schema([*types, ("covered", pa.bool_())])
        yield pa.RecordBatch.from_pydict({**columns, "covered": [partition.covered]}, schema=schema)


def cut(ranges: Iterable[OffsetRange], covered: Mapping[TopicPartition, list[Range]], size: int) -> list[OffsetRange]:
    """Pieces that nothing covers, none of which crosses a multiple of `size`."""
    found = []
    for each in ranges:
        at = each.start
        while at < each.stop:
            stop = min((at // size + 1) * size, each.stop)
            found += [OffsetRange(each.place, *part) for part in uncovered(at, stop, covered.get(each.place, []))]
            at = stop
    return found


def _reached(begun: planning.Offsets, ended: planning.Offsets, pieces: list[PlannedPiece]) -> list[PlannedPiece]:
    """Partitions whose last piece was archived before: the batch reaches to their end all the same."""
    last = {each.wanted.place: each.wanted.stop for each in pieces}
    return [
        PlannedPiece(OffsetRange(place, begun[place], stop), True)
        for place, stop in ended.items()
        if begun[place] < stop and last.get(place) != stop
    ]
