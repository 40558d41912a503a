"""Rows to Parquet, a file for each day, with flat memory: a row group is written as soon as it is full."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.pipeline.archive import publishing
from penstock.pipeline.archive.layout import Archive, file_name, stem
from penstock.pipeline.archive.settings import DEFAULT_COMPRESSION
from penstock.pipeline.columns import EPOCH_FIELD, HEADERS_FIELD, SCHEMA

FILE_SCHEMA = pa.schema(
    [
        SCHEMA.field("key"),
        SCHEMA.field("value"),
        HEADERS_FIELD,
        SCHEMA.field("partition"),
        SCHEMA.field("offset"),
        SCHEMA.field("timestamp"),
        SCHEMA.field("timestampType"),
        EPOCH_FIELD,
    ]
)
ROW_GROUP_BYTES = 64 << 20
BUFFERED_MAX = 2 * ROW_GROUP_BYTES  # of all days together
DAYS_MAX = 256  # with a file open each
EPOCH = date(1970, 1, 1)
DAY_FIRST, DAY_LAST = (date.min - EPOCH).days, (date.max - EPOCH).days


def days_of(rows: pa.RecordBatch) -> Any:
    """Of each row, the day of its timestamp, counted from 1970. What no calendar has falls on its first or last day."""
    days = rows.column("timestamp").cast(pa.date32()).cast(pa.int32())
    return pc.min_element_wise(pc.max_element_wise(days, DAY_FIRST), DAY_LAST)


def by_day(rows: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
    """The rows of each day, in the order of the days, and of offsets within them."""
    days = days_of(rows)
    ends = pc.min_max(days)
    if ends["min"] == ends["max"]:
        return [(ends["min"].as_py(), rows)]
    order = pc.sort_indices(days)  # which is stable
    rows = rows.take(order)
    found = []
    at = 0
    for each in pc.value_counts(days.take(order)):
        count = each["counts"].as_py()
        found.append((each["values"].as_py(), rows.slice(at, count)))
        at += count
    return found


def day_name(day: int) -> str:
    return (EPOCH + timedelta(days=day)).isoformat()


class DayFile:
    """The rows of one day, under a temporary name."""

    def __init__(self, archive: Archive, topic: str, compression: str) -> None:
        self.path = publishing.temporary_path(archive, topic)
        self._archive = archive
        self._buffered: list[Any] = []
        self.buffered_bytes = 0
        self._stream = archive.filesystem.open_output_stream(self.path)
        self._writer = pq.ParquetWriter(self._stream, FILE_SCHEMA, **_writer_options(compression))

    def add(self, rows: pa.RecordBatch) -> None:
        self._buffered.append(rows)
        self.buffered_bytes += rows.nbytes
        if self.buffered_bytes >= ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._buffered:
            table = pa.Table.from_batches(self._buffered)
            self._buffered, self.buffered_bytes = [], 0
            self._writer.write_table(table, row_group_size=table.num_rows)

    def close(self) -> None:
        self.flush()
        self._writer.close()
        self._stream.close()

    def abandon(self) -> None:
        self._buffered, self.buffered_bytes = [], 0
        try:
            self._writer.close()
            self._stream.close()
        finally:
            publishing.discard(self._archive, self.path)


def _writer_options(compression: str) -> dict[str, Any]:
    return {
        "compression": compression,
        "compression_level": 1 if compression == "zstd" else None,
        # Keys and values are seldom worth a dictionary, and trying costs more than all the rest.
        "use_dictionary": ["headers.list.element.key", "partition", "timestampType", "leaderEpoch"],
        "column_encoding": {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
        "write_statistics": ["partition", "offset", "timestamp", "leaderEpoch"],
        "data_page_size": 1 << 20,
    }


class RangeFiles:
    """The files of one range. Rows come in the order of their offsets, and are seen when all files are whole."""

    def __init__(self, archive: Archive, topic: str, partition: int, compression: str = DEFAULT_COMPRESSION) -> None:
        self._archive = archive
        self._topic = topic
        self._partition = partition
        self._compression = compression
        self._days: dict[int, DayFile] = {}
        self.rows = 0

    def room(self, rows: pa.RecordBatch) -> int:
        """How many of these rows can be added before there are too many days: all, unless clocks are mad."""
        days = days_of(rows)
        new = set(pc.unique(days).to_pylist()) - self._days.keys()
        if len(self._days) + len(new) <= DAYS_MAX:
            return int(rows.num_rows)
        known = set(self._days)
        for at, day in enumerate(days.to_pylist()):
            known.add(day)
            if len(known) > DAYS_MAX:
                return at
        raise AssertionError("there are too many days")

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows with the columns of FILE_SCHEMA, and maybe others, no more than there is room for."""
        for day, of_day in by_day(rows.select(FILE_SCHEMA.names)):
            if day not in self._days:
                self._days[day] = DayFile(self._archive, self._topic, self._compression)
            self._days[day].add(of_day)
        self.rows += rows.num_rows
        while sum(each.buffered_bytes for each in self._days.values()) > BUFFERED_MAX:
            max(self._days.values(), key=lambda each: each.buffered_bytes).flush()

    def publish(self, start: int, stop: int, *, is_ours: bool = False) -> int:
        """Under the name of the range that they answer for, for everybody or among our own; the number of files."""
        archive, topic, partition = self._archive, self._topic, self._partition
        if not self._days:
            publishing.publish_empty(archive, archive.empty_folder(topic), stem(topic, partition, start, stop))
            return 0
        for each in self._days.values():
            each.close()
        parts = len(self._days)
        for part, (day, each) in enumerate(sorted(self._days.items()), 1):
            folder = archive.day_folder(topic, day_name(day), is_ours=is_ours)
            name = file_name(topic, partition, start, stop, part, parts, is_ours=is_ours)
            publishing.publish(archive, each.path, folder, name)
        return parts

    def abandon(self) -> None:
        for each in self._days.values():
            each.abandon()
