"""`format("penstock_history")`: ranges of a topic's offsets, from its archive and its log, to whoever plans them.

It is what `penstock.spark.table` reads the live part of a table with, and `penstock replay` everything. People use
those; the format has no defaults of its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock.pipeline import planning
from penstock.pipeline.archive.layout import Archive, Piece
from penstock.pipeline.archived_rows import Window
from penstock.pipeline.brokers import Brokers, TopicPartition
from penstock.pipeline.fetching import OffsetRange
from penstock.pipeline.filters import EVER, Bounds
from penstock.pipeline.history import History, RangeReader
from penstock.pipeline.options import OF_CLIENTS, USED_ONCE, Options
from penstock.pipeline.problem import OptionError
from penstock.pipeline.seams import Span
from penstock.pipeline.source import OffsetsJson, from_json, row_schema, to_json
from penstock.pipeline.survey import late_enough
from penstock.protocol.record_batch import INT64_MIN

if TYPE_CHECKING:
    import pyarrow

FORMAT = "penstock_history"
OF_HISTORY = frozenset(
    {
        "topic",
        "topicid",
        "archive",
        "ranges",
        "startingoffsets",
        "endingoffsets",
        "startingtimestamp",
        "endingtimestamp",
        "fromarchive",
        USED_ONCE,
        "failondataloss",
        "maxoffsetspertrigger",
        "rowspersecond",
    }
)
REGISTERED: WeakSet[SparkSession] = WeakSet()  # sessions that know the format; Spark warns of a second time
RECORDS_PER_TASK = 2_000_000
OFFSETS_PER_BATCH = 1_000_000


@dataclass
class HistoryPartition(InputPartition):
    """What one task reads, and the files that had it when the job was planned."""

    wanted: OffsetRange
    pieces: tuple[Piece, ...] = ()


class HistoryDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return row_schema(headers=True)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = Options(self.options, OF_CLIENTS | OF_HISTORY, "history")
        kind = NarrowedHistoryReader if options.flag(USED_ONCE, False) else HistoryReader
        return kind(_history(options), _ranges(options), options.flag("fromArchive", False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = Options(self.options, OF_CLIENTS | OF_HISTORY, "history")
        return HistoryStreamReader(_history(options), _Limits.of(options))


def register(spark: SparkSession) -> None:
    if spark in REGISTERED:
        return
    java = getattr(spark, "_jvm", None)
    if java is not None:
        # Whether the name is free is asked of the session that is active, which may be another one.
        java.SparkSession.setActiveSession(spark._jsparkSession)
    spark.dataSource.register(HistoryDataSource)
    REGISTERED.add(spark)


def _history(options: Options) -> History:
    archive = options.text("archive")
    return History(
        client=options.client(),
        topic=options.required("topic"),
        archive=Archive(archive) if archive else None,
        fail_on_data_loss=options.flag("failOnDataLoss", True),
        window=Window(*(options.number(f"{side}Timestamp", INT64_MIN) for side in ("starting", "ending"))),
        topic_id=_topic_id(options),
    )


def _topic_id(options: Options) -> bytes | None:
    """In hexadecimal."""
    given = options.text("topicId")
    try:
        return None if given is None else bytes.fromhex(given)
    except ValueError:
        raise OptionError(f"option 'topicId' is {given!r}, which is no id of a topic") from None


def _ranges(options: Options) -> list[OffsetRange]:
    """Such as {"0": [[23, 42]]}."""
    topic = options.required("topic")
    try:
        given = json.loads(options.required("ranges"))
        return [
            OffsetRange(TopicPartition(topic, int(partition)), int(start), int(stop))
            for partition, spans in given.items()
            for start, stop in spans
        ]
    except (ValueError, OverflowError, AttributeError, TypeError):
        raise OptionError("option 'ranges' must be like {\"0\": [[23, 42]]}") from None


def pieces_within(archived: Mapping[int, list[Piece]], wanted: OffsetRange, window: Window) -> tuple[Piece, ...]:
    """Of the archive's pieces those that a task needs, without files that hold nothing it wants."""
    return tuple(
        replace(each, files=tuple(file for file in each.files if not window.misses_day(file.day)))
        for each in archived.get(wanted.place.partition, [])
        if each.start < wanted.stop and each.stop > wanted.start
    )


def _by_partition(archive: Archive | None, topic: str) -> dict[int, list[Piece]]:
    found: dict[int, list[Piece]] = {}
    for each in archive.pieces(topic) if archive is not None else ():
        found.setdefault(each.partition, []).append(each)
    return found


class HistoryReader(DataSourceReader):
    def __init__(self, history: History, ranges: list[OffsetRange], from_archive: bool) -> None:
        self._history = history
        self._ranges = ranges
        self._from_archive = from_archive  # whether to look there first
        self._bounds = Bounds()

    def partitions(self) -> list[InputPartition]:
        bounds, history = self._bounds, self._history
        self._history = history = replace(history, window=_both(history.window, bounds))
        ranges = [each for wanted in self._ranges if (each := bounds.narrowed(wanted)) is not None]
        if self._from_archive:
            archived = _by_partition(history.archive, history.topic)
        else:
            archived, ranges = {}, _late_enough(history, ranges)
        pieces = planning.split(ranges, None, RECORDS_PER_TASK)
        return [HistoryPartition(each, pieces_within(archived, each, history.window)) for each in pieces]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        if isinstance(partition, HistoryPartition):  # Spark makes one of its own where there is nothing to read
            yield from RangeReader(self._history, partition.wanted, partition.pieces).rows()


class NarrowedHistoryReader(HistoryReader):
    """Of a source that nobody else uses: see BatchReader."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for each in filters:
            self._bounds.take(each)
        return filters  # Spark looks at every row again


def _both(window: Window, bounds: Bounds) -> Window:
    firsts = [each for each in (window.first_ms, bounds.first_ms) if each is not None]
    stops = [each for each in (window.stop_ms, bounds.stop_ms) if each is not None and each < EVER]
    return Window(max(firsts, default=None), min(stops, default=None))


def _late_enough(history: History, ranges: list[OffsetRange]) -> list[OffsetRange]:
    """Without what comes before the first record that is late enough."""
    first_ms = history.window.first_ms
    if first_ms is None or not ranges:
        return ranges
    spans = {each.place.partition: Span(each.start, each.stop) for each in ranges}
    if len(spans) < len(ranges):
        return ranges
    with Brokers(history.client) as brokers:
        starts = late_enough(brokers, history.topic, spans, first_ms)
    return [
        OffsetRange(each.place, starts[each.place.partition], each.stop)
        for each in ranges
        if each.place.partition in starts
    ]


# ---- streaming, between two ends that are known


@dataclass(frozen=True, slots=True)
class _Limits:
    starting: planning.Offsets
    ending: planning.Offsets
    offsets_max: int
    rows_per_second: int | None

    @staticmethod
    def of(options: Options) -> _Limits:
        starting, ending = options.by_partition("startingOffsets"), options.by_partition("endingOffsets")
        if starting is None or ending is None or starting.keys() != ending.keys():
            raise OptionError("options 'startingOffsets' and 'endingOffsets' must name the same partitions")
        rate = options.number("rowsPerSecond", 1)
        offsets_max = options.number("maxOffsetsPerTrigger", 1) or OFFSETS_PER_BATCH
        return _Limits(starting, ending, offsets_max, rate)


class HistoryStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One task for each partition in a batch, so that rows arrive in the order that they had."""

    def __init__(self, history: History, limits: _Limits) -> None:
        self._history = history
        self._limits = limits
        self._archived: dict[int, list[Piece]] | None = None
        self._turn_at = 0.0  # when rows may go again, where there is a rate

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_archived": None}

    def initialOffset(self) -> OffsetsJson:
        return to_json(self._limits.starting)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._limits.offsets_max)

    def latestOffset(self, start: OffsetsJson, limit: ReadLimit) -> OffsetsJson:
        begun, end = from_json(start), self._limits.ending
        left = sum(max(0, end[place] - begun.get(place, 0)) for place in end)
        if not left:
            return start
        rate = self._limits.rows_per_second
        if rate is None:
            return to_json(planning.limited(begun, end, self._limits.offsets_max))
        time.sleep(max(0.0, self._turn_at - time.monotonic()))
        end = planning.limited(begun, end, min(rate, self._limits.offsets_max))
        # A second's rows at most, and as long as they are worth until the next: time that was not used is not saved up.
        self._turn_at = time.monotonic() + sum(end[place] - begun.get(place, 0) for place in end) / rate
        return to_json(end)

    def reportLatestOffset(self) -> OffsetsJson | None:
        return to_json(self._limits.ending)

    def prepareForTriggerAvailableNow(self) -> None:
        pass  # the end was known before the query began

    def partitions(self, start: OffsetsJson, end: OffsetsJson) -> list[InputPartition]:
        begun, ended = from_json(start), from_json(end)
        if self._archived is None:
            self._archived = _by_partition(self._history.archive, self._history.topic)
        found: list[InputPartition] = []
        for place, stop in ended.items():
            wanted = OffsetRange(place, begun[place], stop)
            if wanted.start < wanted.stop:
                pieces = pieces_within(self._archived, wanted, self._history.window)
                found.append(HistoryPartition(wanted, pieces))
        return found

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        assert isinstance(partition, HistoryPartition)
        yield from RangeReader(self._history, partition.wanted, partition.pieces).rows()
