"""The rows of an archive's files, in the order of their offsets, as `format("penstock")` gives those of a log.

A range whose records fall on several days has a file for each, and where timestamps go back and forth so do offsets
between the files: they are read side by side, a batch of each at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.pipeline.columns import HEADERS_FIELD, SCHEMA
from penstock.protocol.record_batch import INT64_MAX, INT64_MIN

if TYPE_CHECKING:
    from penstock.pipeline.archive.layout import Archive, ArchivedFile, Piece

ROWS = pa.schema([*SCHEMA, HEADERS_FIELD])
COLUMNS = [name for name in ROWS.names if name != "topic"]  # which is in the path
ROWS_PER_BATCH = 10_000
BUFFER_BYTES = 1 << 20
DAY_MS = 86_400_000
FIRST_DAY, LAST_DAY = "1970-01-01", "9999-12-31"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Window:
    """Times in milliseconds, from the first up to the last, which is not in it. None is no bound."""

    first_ms: int | None = None
    stop_ms: int | None = None

    def of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows whose timestamps are in it."""
        column = rows.column("timestamp")
        if self.first_ms is not None:
            rows = rows.filter(pc.greater_equal(column, _moment(self.first_ms)))
            column = rows.column("timestamp")
        if self.stop_ms is not None:
            rows = rows.filter(pc.less(column, _moment(self.stop_ms)))
        return rows

    def misses(self, first_ms: int, last_ms: int) -> bool:
        """Whether no time between these two, which are in it, is in the window."""
        if self.first_ms is not None and last_ms < self.first_ms:
            return True
        return self.stop_ms is not None and first_ms >= self.stop_ms

    def misses_day(self, day: str) -> bool:
        """Whether no record of a day, as the archive names it, is in the window."""
        if not FIRST_DAY < day < LAST_DAY:
            return False  # times that no calendar has are among these
        first_ms = _milliseconds(datetime.fromisoformat(day))
        return self.misses(first_ms, first_ms + DAY_MS - 1)


ALWAYS = Window()


def _moment(timestamp_ms: int) -> pa.Scalar:
    micros = max(INT64_MIN, min(timestamp_ms * 1000, INT64_MAX))
    return pa.scalar(micros, pa.int64()).cast(SCHEMA.field("timestamp").type)


def piece_rows(archive: Archive, piece: Piece, start: int, stop: int, window: Window = ALWAYS) -> Iterator[Any]:
    """Rows from `start` up to `stop`, as RecordBatches in the order of offsets.

    A file may go at any time, which is an OSError at any time: FileNotFoundError, or what the store calls it.
    """
    files: list[OrderedFile] = []
    try:
        wanted = (each for each in piece.files if not window.misses_day(each.day))
        files.extend(OrderedFile(archive, each, start, stop, window) for each in wanted)
        if len(files) == 1:
            yield from files[0].batches()
        else:
            yield from _merged([each.batches() for each in files])
    finally:
        for each in files:
            each.close()


class OrderedFile:
    """One file, whose rows are in the order of their offsets."""

    def __init__(self, archive: Archive, file: ArchivedFile, start: int, stop: int, window: Window) -> None:
        self._topic, self._start, self._stop, self._window = file.topic, start, stop, window
        self._input = archive.open(file)
        try:
            self._parquet = pq.ParquetFile(self._input, buffer_size=BUFFER_BYTES)
        except BaseException:
            self._input.close()
            raise

    def close(self) -> None:
        self._input.close()

    def batches(self) -> Iterator[pa.RecordBatch]:
        wanted = [at for at in range(self._parquet.num_row_groups) if self._may_hold(at)]
        if not wanted:
            return
        for read in self._parquet.iter_batches(ROWS_PER_BATCH, row_groups=wanted, columns=COLUMNS, use_threads=False):
            rows = self._window.of(self._inside(read))
            if rows.num_rows:
                yield _as_rows(rows, self._topic)

    def _inside(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        offsets = rows.column("offset")
        if not rows.num_rows or (offsets[0].as_py() >= self._start and offsets[-1].as_py() < self._stop):
            return rows
        return rows.filter(pc.and_(pc.greater_equal(offsets, self._start), pc.less(offsets, self._stop)))

    def _may_hold(self, row_group: int) -> bool:
        statistics = _statistics(self._parquet.metadata.row_group(row_group))
        offsets, times = statistics.get("offset"), statistics.get("timestamp")
        if offsets is not None and (offsets[1] < self._start or offsets[0] >= self._stop):
            return False
        return times is None or not self._window.misses(_milliseconds(times[0]), _milliseconds(times[1]))


def _statistics(row_group: pq.RowGroupMetaData) -> dict[str, tuple[Any, Any]]:
    found = {}
    for at in range(row_group.num_columns):
        column = row_group.column(at)
        if column.path_in_schema in ("offset", "timestamp") and column.is_stats_set and column.statistics.has_min_max:
            with contextlib.suppress(ValueError, OverflowError):  # a time that Python has no word for
                found[column.path_in_schema] = column.statistics.min, column.statistics.max
    return found


def _milliseconds(moment: datetime) -> int:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - EPOCH) // timedelta(milliseconds=1)


def _as_rows(read: pa.RecordBatch, topic: str) -> pa.RecordBatch:
    columns = []
    for field in ROWS:
        if field.name == "topic":
            columns.append(pa.repeat(pa.scalar(topic, pa.string()), read.num_rows))
        else:
            column = read.column(field.name)
            columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=ROWS)


def _merged(sources: list[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """What all of them have up to the lowest of their last offsets is complete, and goes out in order."""
    current = [next(each, None) for each in sources]
    while waiting := [each for each in current if each is not None]:
        if len(waiting) == 1:
            at = next(index for index, each in enumerate(current) if each is not None)
            yield waiting[0]
            yield from sources[at]
            return
        last = min(each.column("offset")[-1].as_py() for each in waiting)
        complete = []
        for index, each in enumerate(current):
            if each is None:
                continue
            count = pc.sum(pc.less_equal(each.column("offset"), last)).as_py()
            complete.append(each.slice(0, count))
            current[index] = each.slice(count) if count < each.num_rows else next(sources[index], None)
        table = pa.Table.from_batches(complete).sort_by("offset").combine_chunks()
        yield from table.to_batches(max_chunksize=ROWS_PER_BATCH)
