"""Record batches as Arrow's columns, by both twins, against what the protocol reads of them."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.pipeline.columns import EPOCH_FIELD, HEADERS_FIELD, SCHEMA, RowDecoder
from penstock.protocol import record_batch as rb
from penstock.protocol.compression import Compression, compress
from penstock.protocol.errors import CorruptBatch, ErrorCode
from penstock.protocol.record_batch import Record, TimestampType, build_batch, read_header, read_records
from tests.pipeline.column_twins import each_twin, twin_of, using

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


# ---- what is sound


@each_twin
@settings(max_examples=200, deadline=None)
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


# ---- what is not sound


def outcome(batch: bytes, twin: str | None) -> tuple[str, Any]:
    """Rows, or the code of what is wrong with them."""
    try:
        if twin is None:
            return "rows", rows_read(batch, *EVERYTHING)
        decoder = new_decoder(decompressed_max=10 * MEGABYTE)
        decoder.add(RECORD_BEFORE, *EVERYTHING)
        try:
            decoder.add(batch, *EVERYTHING)
        except CorruptBatch:
            # What came before is there, and what comes after is added to it.
            decoder.add(RECORD_BEFORE, *EVERYTHING)
            assert rows_of(taken(decoder)) == 2 * rows_read(RECORD_BEFORE, *EVERYTHING)
            raise
        rows = rows_of(taken(decoder))
        assert rows[:1] == rows_read(RECORD_BEFORE, *EVERYTHING)
        return "rows", rows[1:]
    except CorruptBatch as error:
        return "corrupt", error.code


RECORD_BEFORE = build_batch([Record(0, 5, b"before", b"b" * 100, (("n", b"h"), ("m", None)))])


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Some bytes changed, taken out, put in or cut off."""
    out = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(out) + 1)
        kind = chance.randrange(5)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            out[at : at + 1] = bytes([chance.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFF, chance.randrange(256)))])
        elif kind == 2:
            del out[at : at + chance.randint(1, 3)]
        elif kind == 3:
            out[at:at] = chance.choice((b"\xff\xff\xff\xff\x0f", b"\x80\x00", chance.randbytes(2)))
        else:
            del out[at:]
    return bytes(out)


@each_twin
@settings(max_examples=400, deadline=None)
@given(batch=some_batches(), seed=st.integers(0, 1 << 32))
def test_damaged_records_are_refused_as_the_protocol_refuses_them(twin: str, batch: bytes, seed: int) -> None:
    chance = random.Random(seed)
    header = read_header(batch)
    fields: dict[str, int] = {}
    if chance.random() < 0.2:
        fields["record_count"] = header.record_count + chance.choice((-1, 1, 1 << 20, -header.record_count - 1))
    if chance.random() < 0.2:
        fields["last_offset_delta"] = header.last_offset_delta + chance.choice((-1, 1, -(1 << 20)))
    if chance.random() < 0.1:
        fields["attributes"] = header.attributes ^ 1 << chance.randrange(4)
    if chance.random() < 0.1:
        fields["base_timestamp"] = chance.choice((rb.INT64_MIN, rb.INT64_MAX))
    payload = batch[rb.HEADER_SIZE :]
    if header.compression is Compression.NONE:
        payload = mutated(payload, chance)
    hostile = rewritten(batch, payload, **fields)
    with using(twin):
        assert outcome(hostile, twin) == outcome(hostile, None)


@each_twin
@settings(max_examples=200, deadline=None)
@given(batch=some_batches(), seed=st.integers(0, 1 << 32))
def test_damaged_compressed_data_is_refused_as_the_protocol_refuses_it(twin: str, batch: bytes, seed: int) -> None:
    hostile = rewritten(batch, mutated(batch[rb.HEADER_SIZE :], random.Random(seed)))
    with using(twin):
        assert outcome(hostile, twin) == outcome(hostile, None)


@each_twin
@settings(max_examples=200, deadline=None)
@given(noise=st.binary(max_size=60), count=st.integers(-2, 9), last=st.integers(-2, 9))
def test_noise_is_refused_as_the_protocol_refuses_it(twin: str, noise: bytes, count: int, last: int) -> None:
    hostile = rewritten(build_batch([]), noise, record_count=count, last_offset_delta=last)
    with using(twin):
        assert outcome(hostile, twin) == outcome(hostile, None)


@each_twin
@pytest.mark.parametrize("compression", list(Compression), ids=lambda codec: codec.name.lower())
def test_a_batch_that_is_cut_off_anywhere_is_refused(twin: str, compression: Compression) -> None:
    batch = build_batch(RECORDS, compression=compression)
    records = build_batch(RECORDS)[rb.HEADER_SIZE :]
    with using(twin):
        decoder = new_decoder()
        for size in range(len(batch)):
            with pytest.raises(CorruptBatch):
                decoder.add(batch[:size], *EVERYTHING)
        for size in range(len(records)):
            with pytest.raises(CorruptBatch, match="orders-7 at offset 0: "):
                decoder.add(rewritten(batch, compress(compression, records[:size])), *EVERYTHING)
        assert decoder.take() is None


@each_twin
def test_what_is_wrong_with_a_batch_says_where_it_is(twin: str) -> None:
    base = 123_456
    batch = build_batch([Record(base, 0, None, b"value")], base_offset=base)
    with using(twin):
        decoder = new_decoder()
        flipped = bytearray(batch)
        flipped[-1] ^= 1
        with pytest.raises(CorruptBatch, match="orders-7 at offset 123456: the CRC does not match") as caught:
            decoder.add(flipped, *EVERYTHING)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
        with pytest.raises(CorruptBatch, match="orders-7 at offset 99: the buffer ends inside"):
            decoder.add(batch[:30], 99, 200)
        with pytest.raises(CorruptBatch, match="orders-7 at offset 123456: a record runs past") as caught:
            decoder.add(rewritten(batch, record_count=1 << 30), *EVERYTHING)
        assert caught.value.code is ErrorCode.INVALID_RECORD


@each_twin
def test_offsets_past_63_bits_are_refused(twin: str) -> None:
    batch = build_batch([Record(0, 0, None, b"")])
    with using(twin):
        decoder = new_decoder()
        for fields in ({"base_offset": -1}, {"base_offset": rb.INT64_MAX, "last_offset_delta": 1}):
            with pytest.raises(CorruptBatch, match="longer than 63 bits"):
                decoder.add(rewritten(batch, **fields), *EVERYTHING)
        decoder.add(rewritten(batch, base_offset=rb.INT64_MAX - 1), *EVERYTHING)
        assert [row["offset"] for row in rows_of(taken(decoder))] == [rb.INT64_MAX - 1]


@each_twin
def test_what_expands_to_more_than_the_bound_is_refused(twin: str) -> None:
    bomb = build_batch([Record(0, 0, None, bytes(MEGABYTE))], compression=Compression.ZSTD)
    with using(twin):
        decoder = new_decoder(decompressed_max=MEGABYTE // 2)
        with pytest.raises(CorruptBatch, match="expands to more than"):
            decoder.add(bomb, *EVERYTHING)


@each_twin
def test_markers_of_transactions_are_not_rows(twin: str) -> None:
    with using(twin), pytest.raises(AssertionError, match="markers"):
        new_decoder().add(build_batch([Record(0, 0, b"\0\0\0\1", b"")], control=True), *EVERYTHING)


# ---- the twins, against each other


def plain(value: Any) -> Any:
    """Buffers as bytes."""
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return value if value is None or isinstance(value, int) else bytes(value)


@settings(max_examples=300, deadline=None)
@given(batches=st.lists(some_batches(), max_size=5), seed=st.integers(0, 1 << 32), data_max=st.integers(1, 2_000))
def test_twins_give_the_same_bytes(batches: list[bytes], seed: int, data_max: int) -> None:
    chance = random.Random(seed)
    both = [twin_of(name).Columns(True, data_max) for name in ("pure", "compiled")]
    for batch in batches:
        header = read_header(batch)
        data = b"" if header.compression else batch[rb.HEADER_SIZE :]
        if chance.random() < 0.3:
            data = mutated(data, chance)
        stamped, window = chance.random() < 0.5, (0, header.base_offset + chance.choice((1, 5, 1 << 20)))
        times = header.base_timestamp, header.max_timestamp
        arguments = header.record_count, header.base_offset, header.last_offset_delta, *times, stamped, 3, *window
        told = [attempt(columns, data, *arguments) for columns in both]
        assert told[0] == told[1]
        assert (both[0].rows, both[0].data_bytes) == (both[1].rows, both[1].data_bytes)
        if chance.random() < 0.3:
            assert plain(both[0].finish()) == plain(both[1].finish())
    assert plain(both[0].finish()) == plain(both[1].finish())


def attempt(columns: Any, *arguments: Any) -> bool:
    """Of a batch that is damaged and too large, either may be seen first."""
    try:
        return bool(columns.append(*arguments))
    except ValueError:
        return False
