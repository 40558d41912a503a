"""Arrow's columns as record batches, by both twins, against the batches that the protocol builds."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2

from penstock.pipeline.columns import BATCH_BYTES_MAX, HEADERS_FIELD, Encoded, RowDecoder, RowEncoder, RowError, seal
from penstock.protocol.compression import Compression
from penstock.protocol.record_batch import Record, build_batch, read_header, read_records
from tests.pipeline.column_twins import each_twin, twin_of, using

NOW_MS = 1_700_000_000_000
COUNTS = {"orders": 5, "payments": 1, "émigrés": 64}
TIMESTAMP = pa.timestamp("us", "UTC")

Place = tuple[str, int]

some_bytes = st.none() | st.binary(max_size=20) | st.binary(min_size=120, max_size=140)
some_headers = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=6), "value": some_bytes}), max_size=3
)
some_rows = st.lists(
    st.fixed_dictionaries(
        {
            "key": some_bytes,
            "value": some_bytes,
            "topic": st.sampled_from(sorted(COUNTS)),
            "partition": st.none() | st.just(0),
            "timestamp": st.none() | st.integers(-(1 << 62), 1 << 62) | st.integers(-2000, 2000),
            "headers": some_headers,
        }
    ),
    max_size=12,
)


def new_encoder(topic: str | None = None, **options: Any) -> RowEncoder:
    batch_bytes_max = options.pop("batch_bytes_max", BATCH_BYTES_MAX)
    options = {"now_ms": lambda: NOW_MS, "first_of": lambda count: 0, **options}
    options["batch_bytes_of"] = lambda topic: batch_bytes_max
    return RowEncoder(topic, COUNTS.__getitem__, **options)


def table_of(rows: list[dict[str, Any]], types: dict[str, Any] | None = None) -> Any:
    found = {
        "value": pa.binary(),
        "key": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "timestamp": TIMESTAMP,
        "headers": HEADERS_FIELD.type,
        **(types or {}),
    }
    names = [name for name in found if rows and name in rows[0]]
    return pa.record_batch(
        [pa.array([row[name] for row in rows], found[name]) for name in names],
        schema=pa.schema([pa.field(name, found[name]) for name in names]),
    )


def drained(encoder: RowEncoder) -> dict[Place, list[Encoded]]:
    pieces: dict[Place, list[Encoded]] = {}
    for (topic, partition), size in list(encoder.buffered()):
        taken = list(iter(lambda t=topic, p=partition: encoder.take(t, p), None))  # type: ignore[misc]
        assert sum(len(piece.records) for piece in taken) == size
        pieces[topic, partition] = taken
    assert list(encoder.buffered()) == []
    return pieces


def records_in(batch: bytes) -> list[Record]:
    return list(read_records(batch, 1 << 30, check_crc=True))


def records_by_place(pieces: dict[Place, list[Encoded]]) -> dict[Place, list[Record]]:
    """All records of each partition, as if its batches had been appended to a log one after the other."""
    found: dict[Place, list[Record]] = defaultdict(list)
    for place, taken in pieces.items():
        for piece in taken:
            records = records_in(seal(piece, Compression.NONE))
            assert len(records) == piece.count
            start = len(found[place])
            found[place] += (record._replace(offset=start + record.offset) for record in records)
    return found


def expected_records(rows: list[dict[str, Any]], turn: int = 0) -> dict[Place, list[Record]]:
    found: dict[Place, list[Record]] = defaultdict(list)
    for row in rows:
        topic, key, partition = row["topic"], row["key"], row["partition"]
        if partition is None:
            partition = turn % COUNTS[topic] if key is None else (murmur2(key) & 0x7FFFFFFF) % COUNTS[topic]
        timestamp_ms = NOW_MS if row["timestamp"] is None else row["timestamp"] // 1000
        headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
        log = found[topic, partition]
        log.append(Record(len(log), timestamp_ms, key, row["value"], headers))
    return found


# ---- what is sound


@each_twin
@settings(max_examples=60, deadline=None)
@given(rows=some_rows, skipped=st.integers(0, 3), batch_bytes_max=st.sampled_from((100, 300, 1_000_000)))
def test_records_are_the_rows(twin: str, rows: list[dict[str, Any]], skipped: int, batch_bytes_max: int) -> None:
    with using(twin):
        encoder = new_encoder(batch_bytes_max=batch_bytes_max)
        encoder.add(table_of(rows).slice(skipped))
        pieces = drained(encoder)
        assert records_by_place(pieces) == expected_records(rows[skipped:])
        for piece in (piece for taken in pieces.values() for piece in taken):
            sealed = seal(piece, Compression.NONE)
            assert sealed == build_batch(records_in(sealed))
            assert len(sealed) <= batch_bytes_max or piece.count == 1


@each_twin
@pytest.mark.parametrize("compression", list(Compression), ids=lambda codec: codec.name.lower())
def test_a_sealed_batch_is_the_one_that_the_protocol_builds(twin: str, compression: Compression) -> None:
    rows = [
        {"key": b"k", "value": b"v" * 500, "timestamp": 5_000_999, "headers": [{"key": "é", "value": None}]},
        {"key": None, "value": None, "timestamp": 1_000, "headers": None},
        {"key": b"", "value": b"", "timestamp": None, "headers": []},
    ]
    producer = {"producer_id": 9, "producer_epoch": 2, "base_sequence": 5, "transactional": True}
    records = [
        Record(0, 5_000, b"k", b"v" * 500, (("é", None),)),
        Record(1, 1, None, None),
        Record(2, NOW_MS, b"", b""),
    ]
    with using(twin):
        encoder = new_encoder("payments")
        encoder.add(table_of(rows))
        piece = encoder.take("payments", 0)
        assert piece is not None
        assert (piece.count, piece.base_timestamp_ms, piece.max_timestamp_ms) == (3, 5_000, NOW_MS)
        for options in ({}, producer):
            assert seal(piece, compression, **options) == build_batch(records, compression=compression, **options)  # type: ignore[arg-type]


@each_twin
def test_rows_that_were_decoded_are_encoded_to_the_same_batch(twin: str) -> None:
    headers = (("trace", b"1"), ("trace", None))
    records = [Record(n, NOW_MS + n, b"%d" % n, b"v" * n, headers[: n % 3]) for n in range(300)]
    batch = build_batch(records)
    with using(twin):
        decoder = RowDecoder("payments", 0, headers=True, leader_epochs=True)
        decoder.add(batch, 0, 1 << 62)
        encoder = new_encoder()
        while (rows := decoder.take(70)) is not None:
            encoder.add(rows)
        piece = encoder.take("payments", 0)
        assert piece is not None
        assert seal(piece, Compression.NONE) == batch


# ---- where a row goes


@each_twin
@settings(max_examples=60, deadline=None)
@given(key=st.binary(max_size=40))
def test_a_key_goes_where_other_clients_send_it(twin: str, key: bytes) -> None:
    with using(twin):
        encoder = new_encoder("émigrés")
        encoder.add(table_of([{"value": b"", "key": key}]))
        assert [place for place, _ in encoder.buffered()] == [("émigrés", (murmur2(key) & 0x7FFFFFFF) % 64)]


@each_twin
def test_rows_without_a_key_go_to_one_partition_after_the_other(twin: str) -> None:
    with using(twin):
        encoder = new_encoder("orders", first_of=lambda count: count - 1)
        places = []
        for _ in range(7):
            encoder.add(table_of([{"value": b"a"}, {"value": b"b"}]))
            places.append({place: len(taken[0].records) for place, taken in drained(encoder).items()})
    assert [list(place) for place in places] == [[("orders", p)] for p in (4, 0, 1, 2, 3, 4, 0)]


@each_twin
def test_the_turn_of_partitions_starts_anywhere(twin: str) -> None:
    started = set()
    with using(twin):
        for _ in range(200):
            encoder = RowEncoder("orders", COUNTS.__getitem__, now_ms=lambda: NOW_MS)
            encoder.add(table_of([{"value": b""}]))
            started |= {partition for (_, partition), _ in encoder.buffered()}
    assert started == set(range(5))


@each_twin
def test_a_topic_that_was_given_wins_over_the_column(twin: str) -> None:
    with using(twin):
        encoder = new_encoder("payments")
        encoder.add(table_of([{"value": b"", "topic": "orders"}, {"value": b"", "topic": None}]))
        assert [place for place, _ in encoder.buffered()] == [("payments", 0)]


@each_twin
def test_a_topic_that_gets_more_partitions_keeps_what_it_has(twin: str) -> None:
    counts = {"orders": 1}
    with using(twin):
        encoder = RowEncoder("orders", counts.__getitem__, now_ms=lambda: NOW_MS, first_of=lambda count: 0)
        encoder.add(table_of([{"value": b"1", "partition": 0}]))
        for count in (3_000, 2):
            counts["orders"] = count
            encoder.add(table_of([{"value": b"2", "partition": count - 1}]))
        assert [place[1] for place, _ in encoder.buffered()] == [0, 1, 2_999]
        assert [encoder.take("orders", p) is None for p in (0, 1, 2_999, 5, -1, 3_000)] == [False] * 3 + [True] * 3
        assert encoder.take("payments", 0) is None


# ---- how much of it at once


@each_twin
def test_a_batch_that_is_taken_fits_into_a_topic(twin: str) -> None:
    with using(twin):
        encoder = new_encoder("payments")
        for _ in range(3):
            encoder.add(table_of([{"value": b"v" * 997} for _ in range(1_000)]))
        (pieces,) = drained(encoder).values()
        sizes = [len(seal(piece, Compression.NONE)) for piece in pieces]
        assert sum(piece.count for piece in pieces) == 3_000
        assert len(sizes) == 4
        assert all(BATCH_BYTES_MAX - 1_100 < size <= BATCH_BYTES_MAX for size in sizes[:-1])
        assert all(read_header(seal(piece, Compression.NONE)).last_offset_delta == piece.count - 1 for piece in pieces)


@each_twin
def test_a_batch_may_be_as_large_as_the_bound_and_no_larger(twin: str) -> None:
    rows = table_of([{"value": b"v" * 50}, {"value": b"v" * 60}])
    whole = len(build_batch([Record(0, NOW_MS, None, b"v" * 50), Record(1, NOW_MS, None, b"v" * 60)]))
    with using(twin):
        for batch_bytes_max, batches in ((whole, 1), (whole - 1, 2)):
            encoder = new_encoder("payments", batch_bytes_max=batch_bytes_max)
            encoder.add(rows)
            (pieces,) = drained(encoder).values()
            assert len(pieces) == batches


@each_twin
def test_a_record_that_is_larger_than_a_batch_is_one_alone(twin: str) -> None:
    with using(twin):
        encoder = new_encoder("payments", batch_bytes_max=1_000)
        encoder.add(table_of([{"value": value} for value in (b"a", b"b" * 5_000, b"c", b"d")]))
        (pieces,) = drained(encoder).values()
    assert [piece.count for piece in pieces] == [1, 1, 2]


@each_twin
def test_deltas_start_again_with_every_take(twin: str) -> None:
    with using(twin):
        encoder = new_encoder("payments")
        for timestamp_ms in (7_000, 3_000):
            encoder.add(table_of([{"value": b"", "timestamp": timestamp_ms * 1000}]))
            piece = encoder.take("payments", 0)
            assert piece is not None
            assert records_in(seal(piece, Compression.NONE)) == [Record(0, timestamp_ms, None, b"")]
        assert encoder.take("payments", 0) is None


@each_twin
def test_a_record_without_a_time_is_copied_as_it_was(twin: str) -> None:
    """Whose time is -1, as that of many an old client's; so are times before 1970."""
    sent = [Record(at, timestamp_ms, None, b"v") for at, timestamp_ms in enumerate((-1, -86_400_000, 0, -1))]
    with using(twin):
        decoder = RowDecoder("orders", 0)
        decoder.add(build_batch(sent), 0, 10)
        encoder = new_encoder("payments")
        encoder.add(decoder.take().select(["key", "value", "timestamp"]))  # type: ignore[union-attr]
        piece = encoder.take("payments", 0)
    assert piece is not None
    assert records_in(seal(piece, Compression.NONE)) == sent
    assert (piece.base_timestamp_ms, piece.max_timestamp_ms) == (-1, 0)


@each_twin
def test_no_rows_are_no_records(twin: str) -> None:
    with using(twin):
        encoder = new_encoder()
        encoder.add(table_of([{"value": b"", "topic": "orders"}]).slice(1))
        assert list(encoder.buffered()) == []


# ---- columns of other types


@each_twin
@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_text_is_the_bytes_of_its_utf8(twin: str, kind: Any) -> None:
    rows = [
        {"key": key, "value": value, "topic": "payments"} for key, value in (("é", "välue"), (None, None), ("", "v"))
    ]
    with using(twin):
        encoder = new_encoder()
        encoder.add(table_of(rows, {"key": kind, "value": kind, "topic": kind}))
        (records,) = records_by_place(drained(encoder)).values()
    assert [(r.key, r.value) for r in records] == [("é".encode(), "välue".encode()), (None, None), (b"", b"v")]


@each_twin
def test_large_and_other_types_are_taken_as_what_they_stand_for(twin: str) -> None:
    names = {"key": pa.large_string(), "value": pa.large_binary()}
    types = {
        "key": pa.binary(2),
        "value": pa.large_binary(),
        "partition": pa.int64(),
        "timestamp": pa.timestamp("ms", "Europe/Stockholm"),
        "headers": pa.large_list(pa.struct(names.items())),
    }
    row = {"key": b"kk", "value": b"v", "partition": 3, "timestamp": 5, "headers": [{"key": "n", "value": b"h"}]}
    with using(twin):
        encoder = new_encoder("orders")
        encoder.add(table_of([row, dict.fromkeys(row)], types))
        found = records_by_place(drained(encoder))
    assert found == {
        ("orders", 3): [Record(0, 5, b"kk", b"v", (("n", b"h"),))],
        ("orders", 0): [Record(0, NOW_MS, None, None)],
    }


@each_twin
def test_columns_of_nothing_but_null_are_as_if_they_were_not_there(twin: str) -> None:
    columns = ("key", "value", "partition", "timestamp", "headers")
    with using(twin):
        encoder = new_encoder("payments")
        encoder.add(pa.record_batch({name: pa.nulls(2) for name in columns}))
        assert records_by_place(drained(encoder)) == {
            ("payments", 0): [Record(0, NOW_MS, None, None), Record(1, NOW_MS, None, None)]
        }


@each_twin
def test_columns_that_no_connector_knows_are_left_alone(twin: str) -> None:
    with using(twin):
        encoder = new_encoder("payments")
        encoder.add(pa.record_batch({"value": pa.array([b"v"]), "amount": pa.array([1.5]), "Key": pa.array([b"k"])}))
        assert records_by_place(drained(encoder)) == {("payments", 0): [Record(0, NOW_MS, None, b"v")]}


# ---- what can't be sent

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"topic": None}, "row 1 for None: the topic is null"),
    ({"partition": 5}, "row 1 for orders, partition 5: there is no such partition"),
    ({"partition": -1}, "row 1 for orders, partition -1: there is no such partition"),
    ({"headers": [{"key": None, "value": b""}]}, "row 1 for orders: a header's name is null"),
    ({"headers": [{"key": "n", "value": b""}, None]}, "row 1 for orders: a header is null"),
]


@each_twin
@pytest.mark.parametrize(("wrong", "why"), REFUSED)
def test_a_row_that_is_refused_takes_all_rows_with_it(twin: str, wrong: dict[str, Any], why: str) -> None:
    good = {"value": b"", "topic": "orders", "partition": None, "timestamp": None, "headers": None}
    with using(twin):
        encoder = new_encoder()
        encoder.add(table_of([good]))
        before = list(encoder.buffered())
        with pytest.raises(RowError, match=f"^{why}$"):
            encoder.add(table_of([good, good | wrong, good]))
        with pytest.raises(RowError, match=f"^{why}$"):
            encoder.add(table_of([good, good, good | wrong, good]).slice(1))
        assert list(encoder.buffered()) == before


@each_twin
@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"key": pa.array([b""])}, "there is no column 'value'"),
        ({"value": pa.array([1])}, "column 'value' of type int64: a string or binary is needed"),
        ({"value": pa.array([b""]), "key": pa.array([1.5])}, "column 'key' of type double"),
        ({"value": pa.array([b""]), "partition": pa.array(["x"])}, "column 'partition' of type string"),
        ({"value": pa.array([b""]), "partition": pa.array([1 << 40])}, "column 'partition' of type int64"),
        ({"value": pa.array([b""]), "timestamp": pa.array([1])}, "column 'timestamp' of type int64"),
        ({"value": pa.array([b""]), "timestamp": pa.array([1], pa.timestamp("us"))}, "a timestamp with a time zone"),
        ({"value": pa.array([b""]), "headers": pa.array(["x"])}, "column 'headers' of type string"),
    ],
)
def test_a_column_of_the_wrong_type_is_refused(twin: str, columns: dict[str, Any], why: str) -> None:
    with using(twin), pytest.raises(RowError, match=why):
        new_encoder("orders").add(pa.record_batch(columns))


@each_twin
def test_topics_have_to_come_from_somewhere(twin: str) -> None:
    twice = pa.schema([("value", pa.binary()), ("value", pa.binary())])
    with using(twin):
        with pytest.raises(RowError, match="no column 'topic', and no topic was given"):
            new_encoder().add(pa.record_batch({"value": pa.array([b""])}))
        with pytest.raises(RowError, match="there are 2 columns 'value'"):
            new_encoder("orders").add(pa.record_batch([pa.array([b""])] * 2, schema=twice))
        with pytest.raises(RowError, match="column 'topic' of type int64: a string is needed"):
            new_encoder().add(pa.record_batch({"value": pa.array([b""]), "topic": pa.array([1])}))
        for count in (0, 1 << 40):
            encoder = RowEncoder("orders", lambda topic, count=count: count, now_ms=lambda: NOW_MS)  # type: ignore[misc]
            with pytest.raises(RowError, match=f"orders has {count} partitions"):
                encoder.add(pa.record_batch({"value": pa.array([b""])}))


# ---- the twins, against each other

SHORT = "a column's buffers are shorter than its rows"


def raw(*offsets: int, data: bytes = b"0123456789", valid: bytes | None = None, offset: int = 0) -> Any:
    return offset, valid, b"".join(n.to_bytes(4, "little", signed=True) for n in offsets), data


def numbers(*values: int, width: int = 4) -> Any:
    return 0, None, None, b"".join(n.to_bytes(width, "little", signed=True) for n in values)


Arrays = dict[str, Any]
NAMES = ("topic", "partition", "timestamp", "key", "value", "lists", "items", "names", "headers")
ITEMS = {"items": (0, None, None, None), "names": raw(0, 1, 2), "headers": raw(0, 1, 2)}


def encoded_raw(twin: str, rows: int, arrays: Arrays) -> tuple[Any, Any]:
    there = twin_of(twin)
    topics = []
    for count in (4, 2):
        partitions = there.Partitions(200)
        partitions.grow(count)
        topics.append((partitions, count, count - 1))
    told = there.encode(rows, NOW_MS, tuple(topics), *(arrays.get(name) for name in NAMES))
    held = [partitions.buffered() for partitions, _, _ in topics]
    taken = [list(iter(lambda p=p, n=n: p.take(n), None)) for p, count, _ in topics for n in range(count)]  # type: ignore[misc]
    return told, (held, taken)


@each_twin
@pytest.mark.parametrize(
    "lies",
    [
        {"value": raw(0, 11)},
        {"value": raw(5, 3)},
        {"value": raw(-1, 3)},
        {"value": raw(0)},
        {"value": raw()},
        {"value": (0, None, None, None)},
        {"value": raw(0, 1, offset=1)},
        {"value": raw(0, 1, offset=-1)},
        {"value": raw(0, 1, valid=b"")},
        {"key": raw(0, 99)},
        {"partition": numbers()},
        {"timestamp": numbers(1)},
        {"topic": numbers(2)},
        {"topic": numbers(-1)},
        {"lists": raw(0, 3), **ITEMS},
        {"lists": raw(2, 1), **ITEMS},
        {"lists": raw(-1, 1), **ITEMS},
        {"lists": raw(0, 2), **ITEMS, "names": raw(0, 1)},
        {"lists": raw(0, 2), **ITEMS, "headers": raw(0, 1, 99)},
        {"lists": raw(0, 2), **ITEMS, "items": (7, b"\xff", None, None)},
    ],
)
def test_buffers_that_lie_are_refused(twin: str, lies: Arrays) -> None:
    """Nothing that pyarrow makes of its own is like that; what someone else hands over may be."""
    told, (held, _) = encoded_raw(twin, 1, {"value": raw(0, 1), **lies})
    assert told == (0, SHORT)
    assert held == [[], []]


some_offsets = st.lists(st.integers(-1, 11) | st.integers(0, 10), max_size=6)
some_raw = st.none() | st.builds(
    lambda offsets, ordered, valid, offset: raw(*(sorted(offsets) if ordered else offsets), valid=valid, offset=offset),
    some_offsets,
    st.booleans() | st.just(True),
    st.none() | st.binary(max_size=2),
    st.integers(0, 2),
)


def some_numbers(width: int) -> st.SearchStrategy[Any]:
    values = st.lists(st.integers(0, 3) | st.integers(-1, 1 << 20), max_size=5)
    return st.none() | values.map(lambda found: numbers(*found, width=width))


@settings(max_examples=160, deadline=None)
@given(
    rows=st.integers(0, 4),
    value=some_raw.filter(bool),
    arrays=st.fixed_dictionaries(
        {
            "topic": st.none() | st.lists(st.integers(0, 1), min_size=4, max_size=4).map(lambda v: numbers(*v)),
            "partition": some_numbers(4),
            "timestamp": some_numbers(8),
            "key": some_raw,
            "lists": some_raw,
            "items": st.just((0, None, None, None)) | st.just((1, b"\x7f", None, None)),
            "names": some_raw,
            "headers": some_raw,
        }
    ),
)
def test_twins_encode_the_same(rows: int, value: Any, arrays: Arrays) -> None:
    arrays["value"] = value
    assert encoded_raw("pure", rows, arrays) == encoded_raw("compiled", rows, arrays)


@settings(max_examples=60, deadline=None)
@given(tables=st.lists(some_rows, max_size=3), batch_bytes_max=st.integers(70, 2_000))
def test_twins_cut_batches_at_the_same_places(tables: list[list[dict[str, Any]]], batch_bytes_max: int) -> None:
    found = []
    for twin in ("pure", "compiled"):
        with using(twin):
            encoder = new_encoder(batch_bytes_max=batch_bytes_max)
            for rows in tables:
                encoder.add(table_of(rows))
            found.append((sorted(encoder.buffered()), drained(encoder)))
    assert found[0] == found[1]
