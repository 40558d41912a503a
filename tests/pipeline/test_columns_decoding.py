"""Record batches as Arrow's columns, by both twins, against what the protocol reads of them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.pipeline.columns import EPOCH_FIELD, HEADERS_FIELD, SCHEMA, RowDecoder
from penstock.protocol import record_batch as rb
from penstock.protocol.compression import Compression
from penstock.protocol.errors import CorruptBatch
from penstock.protocol.record_batch import Record, TimestampType, build_batch, read_header
from tests.pipeline.column_batches import (
    EVERYTHING,
    MICROSECONDS_MAX,
    RECORDS,
    Row,
    new_decoder,
    rows_of,
    rows_read,
    some_batches,
    taken,
)
from tests.pipeline.column_twins import each_twin, using

# ---- what is sound


@each_twin
@settings(max_examples=60, deadline=None)
@given(batches=st.lists(some_batches(), max_size=4), rows_max=st.integers(1, 20), early=st.booleans(), data=st.data())
def test_rows_are_the_records_of_the_batches(
    twin: str, batches: list[bytes], rows_max: int, early: bool, data: st.DataObject
) -> None:
    expected: list[Row] = []
    found: list[Row] = []
    with using(twin):
        decoder = new_decoder()
        for batch in batches:
            base = read_header(batch).base_offset
            first, stop = base + data.draw(st.integers(-1, 9)), base + data.draw(st.integers(0, 40))
            decoder.add(batch, first, stop)
            expected += rows_read(batch, first, stop)
            if early and decoder.rows:
                found += rows_of([decoder.take(rows_max)])
            assert decoder.rows == len(expected) - len(found)
        rest = taken(decoder, rows_max)
        assert all(piece.num_rows <= rows_max for piece in rest)
        assert found + rows_of(rest) == expected
        assert (decoder.rows, decoder.size) == (0, 0)


@each_twin
@pytest.mark.parametrize("compression", list(Compression), ids=lambda codec: codec.name.lower())
def test_every_compression_is_read(twin: str, compression: Compression) -> None:
    batch = build_batch(RECORDS, compression=compression, partition_leader_epoch=3)
    with using(twin):
        decoder = new_decoder()
        for buffer in (batch, bytearray(batch), memoryview(batch)):
            decoder.add(buffer, *EVERYTHING)
        assert rows_of(taken(decoder)) == 3 * rows_read(batch, *EVERYTHING)


@each_twin
def test_columns_are_as_asked_for(twin: str) -> None:
    batch = build_batch(RECORDS)
    with using(twin):
        for options, more in (
            ({}, []),
            ({"headers": True}, [HEADERS_FIELD]),
            ({"leader_epochs": True}, [EPOCH_FIELD]),
            ({"headers": True, "leader_epochs": True}, [HEADERS_FIELD, EPOCH_FIELD]),
        ):
            decoder = RowDecoder("orders", 7, **options)
            decoder.add(batch, *EVERYTHING)
            (rows,) = taken(decoder)
            assert rows.schema.equals(pa.schema([*SCHEMA, *more]), check_metadata=True)
            assert rows.num_rows == len(RECORDS)


def test_the_schema_is_the_one_that_spark_expects() -> None:
    from pyspark.sql import types
    from pyspark.sql.pandas.types import to_arrow_schema

    pair = types.StructType(
        [types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())]
    )
    ours = types.StructType(
        [
            types.StructField("key", types.BinaryType()),
            types.StructField("value", types.BinaryType()),
            types.StructField("topic", types.StringType()),
            types.StructField("partition", types.IntegerType()),
            types.StructField("offset", types.LongType()),
            types.StructField("timestamp", types.TimestampType()),
            types.StructField("timestampType", types.IntegerType()),
            types.StructField("headers", types.ArrayType(pair)),
            types.StructField("leaderEpoch", types.IntegerType()),
        ]
    )
    assert to_arrow_schema(ours, timezone="UTC").equals(pa.schema([*SCHEMA, HEADERS_FIELD, EPOCH_FIELD]))


@each_twin
def test_a_record_without_headers_has_null_for_them(twin: str) -> None:
    with using(twin):
        decoder = new_decoder()
        decoder.add(build_batch(RECORDS), *EVERYTHING)
        (rows,) = taken(decoder)
        assert rows.column("headers").is_null().to_pylist() == [True, False, True, True]
        assert [header["value"] for header in rows.column("headers")[1].as_py()] == [b"1", None, b"", b"x" * 200]


@each_twin
def test_names_of_headers_that_are_not_utf8_are_mended(twin: str) -> None:
    record = Record(0, 0, None, None, ((b"a\xffb\xc3".decode("utf-8", "surrogateescape"), b"\xff"),))
    with using(twin):
        decoder = new_decoder()
        decoder.add(build_batch([record]), *EVERYTHING)
        (row,) = rows_of(taken(decoder))
        assert row["headers"] == [{"key": "a\ufffdb\ufffd", "value": b"\xff"}]


@each_twin
def test_a_batch_that_the_log_stamped_has_one_timestamp(twin: str) -> None:
    batch = build_batch(RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME)
    with using(twin):
        decoder = new_decoder()
        decoder.add(batch, *EVERYTHING)
        rows = rows_of(taken(decoder))
        assert {(row["timestamp"], row["timestampType"]) for row in rows} == {(1_700_000_100_000_000, 1)}


@each_twin
def test_times_that_microseconds_cannot_hold_are_as_far_away_as_they_go(twin: str) -> None:
    times = [rb.INT64_MAX, MICROSECONDS_MAX + 1, MICROSECONDS_MAX, -1, -MICROSECONDS_MAX, rb.INT64_MIN]
    with using(twin):
        decoder = new_decoder()
        for offset, timestamp_ms in enumerate(times):
            decoder.add(build_batch([Record(offset, timestamp_ms, None, b"")], base_offset=offset), *EVERYTHING)
        found = [row["timestamp"] for row in rows_of(taken(decoder))]
    expected = [rb.INT64_MAX, rb.INT64_MAX, MICROSECONDS_MAX * 1000, -1000, -MICROSECONDS_MAX * 1000, rb.INT64_MIN]
    assert found == expected


# ---- how much of it at once


@each_twin
def test_a_chunk_that_is_too_large_is_taken_in_even_pieces(twin: str) -> None:
    records = [Record(offset, 0, b"%d" % offset, b"v") for offset in range(2_005)]
    with using(twin):
        decoder = new_decoder()
        decoder.add(build_batch(records), *EVERYTHING)
        before = decoder.size
        pieces = [decoder.take(1_000)]
        assert 0.5 * before < decoder.size < 0.8 * before
        pieces += taken(decoder, 1_000)
        assert [piece.num_rows for piece in pieces] == [669, 668, 668]
        assert [row["offset"] for row in rows_of(pieces)] == list(range(2_005))


@each_twin
def test_rows_of_many_small_batches_are_taken_together(twin: str) -> None:
    with using(twin):
        decoder = new_decoder()
        for offset in range(500):
            decoder.add(build_batch([Record(offset, 0, None, b"v")], base_offset=offset), *EVERYTHING)
        assert [piece.num_rows for piece in taken(decoder)] == [500]


@each_twin
def test_a_piece_travels_without_the_rest_of_its_chunk(twin: str) -> None:
    records = [Record(offset, 0, b"key", b"v" * 1_000, (("name", b"h" * 100),)) for offset in range(1_000)]
    with using(twin):
        decoder = new_decoder()
        decoder.add(build_batch(records), *EVERYTHING)
        for piece in taken(decoder, 100):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, piece.schema) as stream:
                stream.write_batch(piece)
            assert len(sink.getvalue()) < 130_000


@each_twin
def test_a_column_that_would_overflow_is_finished_first(twin: str) -> None:
    batches = [build_batch([Record(offset, 0, b"k", b"v" * 400)], base_offset=offset) for offset in range(5)]
    with using(twin):
        decoder = new_decoder(data_max=1_000)
        for batch in batches:
            decoder.add(batch, *EVERYTHING)
        assert decoder.rows == 5
        pieces = taken(decoder)
        assert [piece.num_rows for piece in pieces] == [2, 2, 1]
        assert [row["offset"] for row in rows_of(pieces)] == list(range(5))


@each_twin
@pytest.mark.parametrize(
    "record",
    [
        Record(1, 0, b"k" * 1_001, None),
        Record(1, 0, None, b"v" * 1_001),
        Record(1, 0, None, None, (("n" * 1_001, None),)),
        Record(1, 0, None, None, (("n", b"v" * 1_001),)),
        Record(1, 0, None, None, (("", None),) * 1_001),
        # Every bad byte of a name becomes three.
        Record(1, 0, None, None, (("\udcff" * 400, None),)),
    ],
)
def test_a_batch_that_no_column_can_hold_is_refused(twin: str, record: Record) -> None:
    with using(twin):
        decoder = new_decoder(data_max=1_000)
        decoder.add(build_batch([Record(0, 0, b"k", b"v" * 900)]), *EVERYTHING)
        with pytest.raises(CorruptBatch, match="larger than a column"):
            decoder.add(build_batch([record], base_offset=1), *EVERYTHING)
        decoder.add(build_batch([Record(2, 0, b"k", b"v" * 900)], base_offset=2), *EVERYTHING)
        assert [row["offset"] for row in rows_of(taken(decoder))] == [0, 2]
