"""Record batches of all kinds, and the rows that the protocol reads of them."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from penstock.pipeline.columns import RowDecoder
from penstock.protocol import record_batch as rb
from penstock.protocol.compression import Compression
from penstock.protocol.record_batch import Record, TimestampType, build_batch, read_header, read_records

EVERYTHING = (0, rb.INT64_MAX)
MEGABYTE = 1 << 20
MICROSECONDS_MAX = rb.INT64_MAX // 1000
HEADERS = (("trace", b"1"), ("trace", None), ("é", b""), ("", b"x" * 200))
RECORDS = [
    Record(0, 1_700_000_000_000, b"key", b"value"),
    Record(1, 1_700_000_000_500, None, b"v" * 300, HEADERS),
    Record(3, 1_699_999_999_000, b"", None),
    Record(9, 1_700_000_100_000, b"k" * 200, b""),
]

Row = dict[str, Any]

some_bytes = st.none() | st.binary(max_size=20) | st.binary(min_size=120, max_size=140)
some_headers = st.lists(st.tuples(st.text(max_size=6), some_bytes), max_size=3).map(tuple)
# Deltas between two of them must have 64 bits too.
some_times = st.integers(-(1 << 61), 1 << 61) | st.integers(1_700_000_000_000, 1_700_000_100_000)


@st.composite
def some_records(draw: st.DrawFn) -> list[Record]:
    offset, records = -1, []
    for _ in range(draw(st.integers(0, 12))):
        offset += draw(st.integers(1, 3) | st.just(200))
        parts = draw(some_bytes), draw(some_bytes), draw(some_headers)
        records.append(Record(offset, draw(some_times), *parts))
    return records


@st.composite
def some_batches(draw: st.DrawFn) -> bytes:
    records = draw(some_records())
    base = draw(st.integers(0, 1 << 40))
    last = (records[-1].offset if records else 0) + draw(st.integers(0, 2))
    return build_batch(
        [record._replace(offset=base + record.offset) for record in records],
        base_offset=base,
        last_offset_delta=last,
        compression=draw(st.sampled_from(Compression)),
        timestamp_type=draw(st.sampled_from(TimestampType)),
        partition_leader_epoch=draw(st.integers(-1, 1 << 30)),
    )


def rows_read(batch: bytes, first: int, stop: int) -> list[Row]:
    """What the protocol makes of a batch."""
    header = read_header(batch)
    records = read_records(batch, 10 * MEGABYTE, check_crc=True, compacted=True)
    return [_row(record, header) for record in list(records) if first <= record.offset < stop]


def _row(record: Record, header: rb.BatchHeader) -> Row:
    timestamp_ms = max(-MICROSECONDS_MAX - 1, min(record.timestamp_ms, MICROSECONDS_MAX + 1))
    headers = [
        {"key": name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), "value": value}
        for name, value in record.headers
    ]
    return {
        "key": record.key,
        "value": record.value,
        "topic": "orders",
        "partition": 7,
        "offset": record.offset,
        "timestamp": max(rb.INT64_MIN, min(timestamp_ms * 1000, rb.INT64_MAX)),
        "timestampType": int(header.timestamp_type),
        "headers": headers or None,
        "leaderEpoch": header.leader_epoch,
    }


def rows_of(batches: Iterable[Any]) -> list[Row]:
    rows: list[Row] = []
    for batch in batches:
        batch.validate(full=True)
        at = batch.schema.get_field_index("timestamp")
        rows += batch.set_column(at, "timestamp", batch.column(at).cast(pa.int64())).to_pylist()
    return rows


def taken(decoder: RowDecoder, rows_max: int = 10_000) -> list[Any]:
    return list(iter(lambda: decoder.take(rows_max), None))


def new_decoder(**options: Any) -> RowDecoder:
    return RowDecoder("orders", 7, headers=True, leader_epochs=True, **options)


def rewritten(batch: bytes, payload: bytes | None = None, **fields: int) -> bytes:
    """The same batch with something else in it, and a length and a CRC that agree with that."""
    header = read_header(batch)._replace(**fields)
    data = batch[rb.HEADER_SIZE :] if payload is None else payload
    made = bytearray(rb.HEADER.pack(*header._replace(length=rb.HEADER_SIZE - 12 + len(data))) + data)
    struct.pack_into(">I", made, rb.CRC_AT, rb.batch_crc(made))
    return bytes(made)
