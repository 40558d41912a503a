"""Record batches of one partition as rows of Arrow's columns.

Rows are gathered in a chunk, whose buffers go into Arrow's arrays as they are. What is taken of a chunk that is larger
than was asked for is a slice of it, so nothing is copied twice.
"""

from __future__ import annotations

from collections import deque

import pyarrow as pa

from penstock.pipeline import twins
from penstock.pipeline.connection import ANSWER_MAX_BYTES
from penstock.pipeline.pure_columns import Binary, Headers
from penstock.protocol.compression import Buffer, decompress
from penstock.protocol.errors import CorruptBatch, ErrorCode
from penstock.protocol.record_batch import (
    HEADER_SIZE,
    INT64_MAX,
    BatchHeader,
    TimestampType,
    batch_crc,
    read_header,
)

SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("timestampType", pa.int32()),
    ]
)
HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS_FIELD = pa.field("headers", pa.list_(pa.field("element", HEADER_TYPE)))
EPOCH_FIELD = pa.field("leaderEpoch", pa.int32())

ROWS_MAX = 10_000  # Spark does best with about so many rows to a RecordBatch
DECOMPRESSED_MAX = ANSWER_MAX_BYTES  # a batch that is not compressed can be no larger either
DATA_MAX = (1 << 31) - 1  # what the offsets of a column can count
ROW_BYTES = 40  # of a row's offsets and numbers
assert DECOMPRESSED_MAX <= DATA_MAX


class RowDecoder:
    """Rows of one partition, gathered until they are taken."""

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        headers: bool = False,
        leader_epochs: bool = False,
        decompressed_max: int = DECOMPRESSED_MAX,
        data_max: int = DATA_MAX,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._leader_epochs = leader_epochs
        self._decompressed_max = decompressed_max
        self._chunk = twins.Columns(headers, data_max)
        self._finished: deque[tuple[pa.RecordBatch, int]] = deque()  # and their bytes
        self._finished_rows = 0
        self._finished_bytes = 0
        extra = [HEADERS_FIELD] * headers + [EPOCH_FIELD] * leader_epochs
        self._schema = pa.schema([*SCHEMA, *extra])
        self._same = self._same_for(ROWS_MAX)

    @property
    def rows(self) -> int:
        return self._finished_rows + self._chunk.rows

    @property
    def size(self) -> int:
        """The bytes that are held, more or less."""
        return self._finished_bytes + self._chunk_bytes()

    def add(self, batch: Buffer, first: int, stop: int) -> None:
        """The records of exactly one whole batch whose offsets are at least `first` and less than `stop`.

        Raises CorruptBatch, and then none of its records are added. Compaction may have taken some of them away.
        """
        try:
            header = read_header(batch)
            assert not header.is_control, "markers of transactions hold no rows"
            self._append(header, _payload(batch, header, self._decompressed_max), first, stop)
        except CorruptBatch as error:
            at = int.from_bytes(batch[:8], "big", signed=True) if len(batch) >= HEADER_SIZE else first
            where = f"{self._topic}-{self._partition} at offset {at}"
            raise CorruptBatch(f"{where}: {error.message}", error.code) from None

    def _append(self, header: BatchHeader, data: Buffer, first: int, stop: int) -> None:
        appended = (
            data,
            header.record_count,
            header.base_offset,
            header.last_offset_delta,
            header.base_timestamp,
            header.max_timestamp,
            header.timestamp_type is TimestampType.LOG_APPEND_TIME,
            header.leader_epoch,
            max(first, 0),
            min(stop, INT64_MAX),
        )
        try:
            if self._chunk.append(*appended):
                return
            # No room in a chunk that others have filled; a new one has room for every batch but those that lie.
            if self._chunk.rows:
                self._finish()
                if self._chunk.append(*appended):
                    return
        except ValueError as error:
            raise CorruptBatch(str(error), ErrorCode.INVALID_RECORD) from None
        raise CorruptBatch("its records are larger than a column can be", ErrorCode.INVALID_RECORD)

    def take(self, rows_max: int = ROWS_MAX) -> pa.RecordBatch | None:
        """Up to so many rows as a RecordBatch, oldest first, or None when there are none.

        A chunk with a few rows more than that is cut into pieces of about the same size, not into one and a crumb.
        """
        assert rows_max > 0
        if not self._finished:
            if not self._chunk.rows:
                return None
            self._finish()
        batch, size = self._finished.popleft()
        rows = batch.num_rows
        if rows > rows_max:
            pieces = -(-rows // rows_max)
            cut = -(-rows // pieces)
            left = size * (rows - cut) // rows
            self._finished.appendleft((batch.slice(cut), left))
            batch, size = batch.slice(0, cut), size - left
        self._finished_rows -= batch.num_rows
        self._finished_bytes -= size
        return batch

    def _chunk_bytes(self) -> int:
        return self._chunk.data_bytes + ROW_BYTES * self._chunk.rows

    def _finish(self) -> None:
        """Makes a RecordBatch of the chunk, which starts again."""
        size = self._chunk_bytes()
        rows, key, value, offset, timestamp, kind, epoch, headers = self._chunk.finish()
        if rows > len(self._same[0]):
            self._same = self._same_for(max(rows, 2 * len(self._same[0])))
        numbers = ((pa.int64(), offset), (SCHEMA.field("timestamp").type, timestamp), (pa.int32(), kind))
        columns = [
            _binary(pa.binary(), rows, key),
            _binary(pa.binary(), rows, value),
            *(column.slice(0, rows) for column in self._same),
            *(_numbers(of_type, rows, data) for of_type, data in numbers),
        ]
        if headers is not None:
            columns.append(_headers(rows, headers))
        if self._leader_epochs:
            columns.append(_numbers(pa.int32(), rows, epoch))
        self._finished.append((pa.RecordBatch.from_arrays(columns, schema=self._schema), size))
        self._finished_rows += rows
        self._finished_bytes += size

    def _same_for(self, rows: int) -> tuple[pa.Array, pa.Array]:
        """Topic and partition, which are the same in all rows: every RecordBatch has a slice of them."""
        return pa.repeat(pa.scalar(self._topic, pa.string()), rows), pa.repeat(
            pa.scalar(self._partition, pa.int32()), rows
        )


def _payload(batch: Buffer, header: BatchHeader, decompressed_max: int) -> Buffer:
    if header.size != len(batch):
        raise CorruptBatch(f"a batch of {header.size} bytes stands in {len(batch)}")
    if header.crc != batch_crc(batch):
        raise CorruptBatch("the CRC does not match")
    payload = memoryview(batch)[HEADER_SIZE:]
    if header.compression and (header.record_count or len(payload)):
        return decompress(header.compression, payload, decompressed_max)
    return payload


def _numbers(of_type: pa.DataType, rows: int, data: bytes) -> pa.Array:
    return pa.Array.from_buffers(of_type, rows, [None, pa.py_buffer(data)], 0)


def _binary(of_type: pa.DataType, rows: int, column: Binary) -> pa.Array:
    nulls, valid, offsets, data = column
    validity = pa.py_buffer(valid) if nulls else None
    return pa.Array.from_buffers(of_type, rows, [validity, pa.py_buffer(offsets), pa.py_buffer(data)], nulls)


def _headers(rows: int, headers: Headers) -> pa.Array:
    """Null where a record has none, as in Spark's connector."""
    nulls, valid, offsets, items, names, values = headers
    parts = [_binary(pa.string(), items, names), _binary(pa.binary(), items, values)]
    pairs = pa.Array.from_buffers(HEADER_TYPE, items, [None], 0, children=parts)
    validity = pa.py_buffer(valid) if nulls else None
    return pa.Array.from_buffers(HEADERS_FIELD.type, rows, [validity, pa.py_buffer(offsets)], nulls, children=[pairs])
