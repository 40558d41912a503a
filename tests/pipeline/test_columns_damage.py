"""Record batches that are damaged or lie: both twins refuse what the protocol refuses, and keep what they held."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol import record_batch as rb
from penstock.protocol.compression import Compression, compress
from penstock.protocol.errors import CorruptBatch, ErrorCode
from penstock.protocol.record_batch import Record, build_batch, read_header
from penstock.protocol.wire import uvarint
from tests.pipeline.column_batches import (
    EVERYTHING,
    MEGABYTE,
    RECORDS,
    new_decoder,
    rewritten,
    rows_of,
    rows_read,
    some_batches,
    taken,
)
from tests.pipeline.column_twins import each_twin, twin_of, using


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


def record(*fields: int | bytes, size: int | None = None) -> bytes:
    """A record of varints and bytes, after its attributes, under a size that may be another one."""
    body = b"\0" + b"".join(field if isinstance(field, bytes) else zigzag(field) for field in fields)
    return zigzag(len(body) if size is None else size) + body


def zigzag(value: int) -> bytes:
    return uvarint(value << 1 if value >= 0 else ~value << 1 | 1)


SOUND = record(0, 0, -1, -1, 0)
LIES = {
    "the same offset twice": (SOUND, SOUND),
    "an offset that falls": (record(0, 5, -1, -1, 0), record(0, 4, -1, -1, 0)),
    "an offset before the first": (record(0, -1, -1, -1, 0),),
    "an offset past the last": (record(0, 10, -1, -1, 0),),
    "an offset of 33 bits": (record(0, 1 << 32, -1, -1, 0),),
    "an offset that never ends": (record(0, b"\x80" * 5 + b"\0", -1, -1, 0),),
    "a timestamp of 65 bits": (record(b"\xff" * 9 + b"\x02", 0, -1, -1, 0),),
    "a timestamp that never ends": (record(b"\x80" * 10 + b"\0", 0, -1, -1, 0),),
    "no bytes at all": (record(size=0),),
    "a negative size": (record(0, 0, -1, -1, 0, size=-7),),
    "a size that is too small": (record(0, 0, -1, -1, 0, size=5),),
    "a size that is too large": (record(0, 0, -1, -1, 0, size=7),),
    "a size that hides a byte": (record(0, 0, -1, -1, 0, b"\0"),),
    "a key of length -2": (record(0, 0, -2, -1, 0),),
    "a key that reaches into the value": (record(0, 0, 2, b"k", -1, 0),),
    "a value that reaches out of the record": (record(0, 0, -1, 9, b"v", 0), SOUND[:-1] + bytes(9)),
    "a negative number of headers": (record(0, 0, -1, -1, -1),),
    "more headers than bytes": (record(0, 0, -1, -1, 1 << 30),),
    "fewer headers than it says": (record(0, 0, -1, -1, 2, 1, b"n", -1),),
    "more headers than it says": (record(0, 0, -1, -1, 1, 1, b"n", -1, 1, b"n", -1),),
    "a header without a name": (record(0, 0, -1, -1, 1, -1, -1),),
    "a header's value of length -3": (record(0, 0, -1, -1, 1, 1, b"n", -3),),
    "bytes after the last record": (SOUND, b"\0"),
}


@each_twin
@pytest.mark.parametrize("records", LIES.values(), ids=LIES.keys())
def test_a_record_that_lies_is_refused(twin: str, records: tuple[bytes, ...]) -> None:
    count = len([part for part in records if len(part) > 1])
    hostile = rewritten(build_batch([]), b"".join(records), record_count=count, last_offset_delta=9)
    with using(twin):
        assert outcome(hostile, twin) == outcome(hostile, None) == ("corrupt", ErrorCode.INVALID_RECORD)


@each_twin
@pytest.mark.parametrize(
    "fields",
    [
        (b"\x80\x00", b"\x80\x80\x00", -1, -1, b"\x80\x00"),  # numbers that are longer than they need to be
        (rb.INT64_MAX, 9, 0, 0, 1, 0, 0),
        (rb.INT64_MIN, 0, -1, 3, b"val", 2, 1, b"n", -1, 0, 1, b"v"),
    ],
)
def test_a_record_that_is_odd_and_sound_is_read(twin: str, fields: tuple[int | bytes, ...]) -> None:
    odd = rewritten(build_batch([]), record(*fields), record_count=1, last_offset_delta=9, base_timestamp=0)
    with using(twin):
        assert outcome(odd, twin) == outcome(odd, None) == ("rows", rows_read(odd, *EVERYTHING))


@each_twin
@pytest.mark.parametrize("base_timestamp", [rb.INT64_MAX, rb.INT64_MIN])
def test_a_timestamp_that_overflows_is_refused(twin: str, base_timestamp: int) -> None:
    sign = 1 if base_timestamp > 0 else -1
    fields = {"record_count": 1, "last_offset_delta": 0, "base_timestamp": base_timestamp}
    hostile = rewritten(build_batch([]), record(sign, 0, -1, -1, 0), **fields)
    with using(twin):
        assert outcome(hostile, twin) == outcome(hostile, None) == ("corrupt", ErrorCode.INVALID_RECORD)


@each_twin
@settings(max_examples=130, deadline=None)
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
@settings(max_examples=60, deadline=None)
@given(batch=some_batches(), seed=st.integers(0, 1 << 32))
def test_damaged_compressed_data_is_refused_as_the_protocol_refuses_it(twin: str, batch: bytes, seed: int) -> None:
    hostile = rewritten(batch, mutated(batch[rb.HEADER_SIZE :], random.Random(seed)))
    with using(twin):
        assert outcome(hostile, twin) == outcome(hostile, None)


@each_twin
@settings(max_examples=60, deadline=None)
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


@each_twin
def test_nothing_is_left_of_rows_that_were_undone(twin: str) -> None:
    columns = twin_of(twin).Columns(True, 1_000)
    full = record(0, 0, 1, b"k", 1, b"v", 1, 1, b"n", 1, b"h")
    second = record(0, 1, 1, b"k", 1, b"v", 1, 1, b"n", 1, b"h")
    rest = (0, 9, 0, 0, False, 3, *EVERYTHING)
    assert columns.append(full, 1, *rest)
    before = columns.data_bytes
    with pytest.raises(ValueError):
        columns.append(full + second + bytes(7), 3, *rest)
    assert (columns.rows, columns.data_bytes) == (1, before)
    _, key, value, *_, headers = plain(columns.finish())
    assert (key[1], value[1], headers[1], headers[5][1]) == (b"\1",) * 4


def plain(value: Any) -> Any:
    """Buffers as bytes."""
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return value if value is None or isinstance(value, int) else bytes(value)


@settings(max_examples=100, deadline=None)
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
