"""Record batches against two other implementations, and batches that lie."""

from __future__ import annotations

import pickle
import random
import struct
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from penstock.protocol import record_batch as rb
from penstock.protocol.compression import Compression, compress
from penstock.protocol.errors import CorruptBatch, ErrorCode, InvalidRecords
from penstock.protocol.record_batch import Record, TimestampType, build_batch, read_header, read_records, validate_batch

MEGABYTE = 1 << 20
OTHERS: list[Any] = [
    *(
        pytest.param(AiokafkaBuilder, AiokafkaBatch, codec, id=f"aiokafka-{codec.name.lower()}")
        for codec in Compression
    ),
    # kafka-python has no snappy and no zstd without packages that this project does not use.
    *(
        pytest.param(KafkaPythonBuilder, KafkaPythonBatch, codec, id=f"kafka-python-{codec.name.lower()}")
        for codec in (Compression.NONE, Compression.GZIP, Compression.LZ4)
    ),
]
every_compression = pytest.mark.parametrize("compression", list(Compression), ids=lambda codec: codec.name.lower())

RECORDS = [
    Record(0, 1_700_000_000_000, b"key", b"value"),
    Record(1, 1_700_000_000_500, None, b"v" * 300, (("trace", b"1"), ("trace", b"2"), ("vide", None), ("é", b""))),
    Record(2, 1_699_999_999_000, b"", None),
    Record(3, 1_700_000_100_000, b"k" * 200, b""),
]


# Kafka 4.2 wrote these: the records of JAVA_RECORDS, once with each codec.
JAVA_BATCHES = {
    "none": (
        "0000000000000000000001260000000302d4026bf20000000000020000018bcfe568000000018bcfe5680200000000000000"
        "07000100000000000000039a01000000018c0176616c7565203076616c7565203076616c7565203076616c7565203076616c"
        "7565203076616c7565203076616c7565203076616c7565203076616c7565203076616c7565203000a601000202046b318c01"
        "76616c7565203176616c7565203176616c7565203176616c7565203176616c7565203176616c7565203176616c7565203176"
        "616c7565203176616c7565203176616c7565203102026802789e01000404046b328c0176616c7565203276616c7565203276"
        "616c7565203276616c7565203276616c7565203276616c7565203276616c7565203276616c7565203276616c756520327661"
        "6c7565203200"
    ),
    "gzip": (
        "0000000000000000000000770000000302a3ea2ca00001000000020000018bcfe568000000018bcfe5680200000000000000"
        "07000100000000000000031f8b08000000000000ff9bc5c8c0c0c0d8c3589698539aaa604021c5b08c9181898925db1066a0"
        "21851413530653c53c46061616966c2398a14614520c0001ba4330f5000000"
    ),
    "snappy": (
        "000000000000000000000087000000030251fca0210002000000020000018bcfe568000000018bcfe5680200000000000000"
        "070001000000000000000382534e4150505900000000010000000100000042f501389a01000000018c0176616c75652030fa"
        "07002400a601000202046b318c0d5100310951e207003002026802789e01000404046b32115500320955e207000000"
    ),
    "lz4": (
        "00000000000000000000008600000003026aa8569f0003000000020000018bcfe568000000018bcfe5680200000000000000"
        "070001000000000000000304224d1860408246000000ff009a01000000018c0176616c7565203007002c9400a60100020204"
        "6b315100123151000f070026d402026802789e01000404046b325500123255000f07002250756520320000000000"
    ),
    "zstd": (
        "00000000000000000000007a00000003024a70c1700004000000020000018bcfe568000000018bcfe5680200000000000000"
        "070001000000000000000328b52ffd0058ec010084029a01000000018c0176616c7565203000a601000202046b3131020268"
        "02789e01000404046b32320007000607005f5820dee004e04b05e2a0a45207010000"
    ),
}
JAVA_RECORDS = [
    Record(0, 1_700_000_000_000, None, b"value 0" * 10),
    Record(1, 1_700_000_000_001, b"k1", b"value 1" * 10, (("h", b"x"),)),
    Record(2, 1_700_000_000_002, b"k2", b"value 2" * 10),
]


def records_of(batch: bytes, **options: Any) -> list[Record]:
    return list(read_records(batch, 10 * MEGABYTE, check_crc=True, **options))


def built_by(builder: Any, compression: Compression, **options: int) -> bytes:
    theirs = builder(magic=2, compression_type=int(compression), batch_size=MEGABYTE, **options)
    for record in RECORDS:
        theirs.append(record.offset, record.timestamp_ms, record.key, record.value, list(record.headers))
    return bytes(theirs.build())


# ---- against others


@pytest.mark.parametrize(("builder", "parser", "compression"), OTHERS)
def test_others_read_the_batches_that_we_build(builder: Any, parser: Any, compression: Compression) -> None:
    batch = build_batch(
        RECORDS, compression=compression, producer_id=9, producer_epoch=2, base_sequence=5, transactional=True
    )
    theirs = parser(batch)
    assert theirs.validate_crc()
    assert [
        Record(r.offset, r.timestamp, r.key, r.value, tuple((name, value) for name, value in r.headers)) for r in theirs
    ] == RECORDS
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (9, 2, 5)
    assert theirs.is_transactional
    assert not theirs.is_control_batch
    assert theirs.max_timestamp == 1_700_000_100_000


@pytest.mark.parametrize(("builder", "parser", "compression"), OTHERS)
def test_we_read_the_batches_that_others_build(builder: Any, parser: Any, compression: Compression) -> None:
    batch = built_by(builder, compression, is_transactional=1, producer_id=9, producer_epoch=2, base_sequence=5)
    assert records_of(batch) == RECORDS
    header = validate_batch(batch, decompress_max_bytes=MEGABYTE)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 5)
    assert (header.record_count, header.last_offset_delta, header.is_transactional) == (4, 3, True)
    assert header.max_timestamp == 1_700_000_100_000


@pytest.mark.parametrize("builder", [AiokafkaBuilder, KafkaPythonBuilder], ids=["aiokafka", "kafka-python"])
def test_an_uncompressed_batch_is_the_same_to_the_byte(builder: Any) -> None:
    nobody = {"is_transactional": 0, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
    theirs = bytearray(built_by(builder, Compression.NONE, **nobody))
    ours = bytearray(build_batch(RECORDS))
    leader_epoch = slice(rb.LEADER_EPOCH_AT, rb.MAGIC_AT)  # outside the CRC, and the broker's to fill in
    theirs[leader_epoch] = ours[leader_epoch]
    assert theirs == ours


@pytest.mark.parametrize("codec", JAVA_BATCHES)
def test_we_read_the_batches_that_kafka_builds(codec: str) -> None:
    batch = bytes.fromhex(JAVA_BATCHES[codec])
    assert records_of(batch) == JAVA_RECORDS
    header = read_header(batch)
    assert header.compression is Compression[codec.upper()]
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.leader_epoch) == (7, 1, 0, 3)


def test_an_uncompressed_batch_is_the_same_to_the_byte_as_kafkas() -> None:
    batch = build_batch(JAVA_RECORDS, producer_id=7, producer_epoch=1, base_sequence=0, partition_leader_epoch=3)
    assert batch.hex() == JAVA_BATCHES["none"]


RECORD_PARTS = st.tuples(
    st.integers(-1, 2**41),
    st.none() | st.binary(max_size=200),
    st.none() | st.binary(max_size=200),
    st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=20)), max_size=3).map(tuple),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(RECORD_PARTS, min_size=1, max_size=20), st.sampled_from(list(Compression)), st.integers(0, 2**60))
def test_any_records_survive_a_batch(parts: list[Any], compression: Compression, base_offset: int) -> None:
    records = [Record(base_offset + i, *part) for i, part in enumerate(parts)]
    batch = build_batch(records, base_offset=base_offset, compression=compression)
    assert records_of(batch) == records
    assert [(r.offset, r.timestamp, r.key, r.value) for r in AiokafkaBatch(batch)] == [r[:4] for r in records]


# ---- the header


def test_the_header_says_what_the_batch_was_built_with() -> None:
    batch = build_batch(
        [Record(7, 5, None, b"x")], base_offset=7, compression=Compression.ZSTD, control=True,
        timestamp_type=TimestampType.LOG_APPEND_TIME, partition_leader_epoch=3,
    )  # fmt: skip
    header = read_header(b"before" + batch, 6)
    assert header.size == len(batch)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (7, 7, 3)
    assert (header.compression, header.timestamp_type) == (Compression.ZSTD, TimestampType.LOG_APPEND_TIME)
    assert (header.is_control, header.is_transactional, header.has_delete_horizon) == (True, False, False)
    assert header.crc == rb.batch_crc(batch)


@pytest.mark.parametrize(
    ("field", "position"),
    [
        ("base_offset", rb.BASE_OFFSET_AT), ("length", rb.LENGTH_AT), ("leader_epoch", rb.LEADER_EPOCH_AT),
        ("magic", rb.MAGIC_AT), ("crc", rb.CRC_AT), ("attributes", rb.ATTRIBUTES_AT),
        ("last_offset_delta", rb.LAST_OFFSET_DELTA_AT), ("base_timestamp", rb.BASE_TIMESTAMP_AT),
        ("max_timestamp", rb.MAX_TIMESTAMP_AT), ("producer_id", rb.PRODUCER_ID_AT),
        ("producer_epoch", rb.PRODUCER_EPOCH_AT), ("base_sequence", rb.BASE_SEQUENCE_AT),
        ("record_count", rb.RECORD_COUNT_AT),
    ],
)  # fmt: skip
def test_the_positions_of_fields_agree_with_the_layout(field: str, position: int) -> None:
    index = rb.BatchHeader._fields.index(field)
    assert struct.calcsize(">" + rb.HEADER.format[1 : index + 1]) == position


def test_offset_and_leader_epoch_can_be_stamped_in_place() -> None:
    batch = bytearray(build_batch(RECORDS, compression=Compression.LZ4))
    struct.pack_into(">q", batch, rb.BASE_OFFSET_AT, 1000)
    struct.pack_into(">i", batch, rb.LEADER_EPOCH_AT, 12)
    assert [record.offset for record in records_of(bytes(batch))] == [1000, 1001, 1002, 1003]


def test_log_append_time_stands_for_every_record() -> None:
    batch = build_batch(RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert {record.timestamp_ms for record in records_of(batch)} == {1_700_000_100_000}


def test_the_batches_of_a_fetch_are_split_and_a_cut_off_last_one_is_left_out() -> None:
    first, second = build_batch(RECORDS), build_batch(RECORDS[:1], compression=Compression.GZIP)
    assert [bytes(batch) for _, batch in rb.read_batches(first + second)] == [first, second]
    for end in range(len(second)):
        assert [bytes(batch) for _, batch in rb.read_batches(first + second[:end])] == [first]


def test_a_header_cut_off_or_of_another_magic_is_corrupt() -> None:
    batch = bytearray(build_batch(RECORDS))
    with pytest.raises(CorruptBatch):
        read_header(batch[:60])
    with pytest.raises(CorruptBatch):
        read_header(bytes(batch), len(batch) - 60)
    batch[rb.MAGIC_AT] = 1
    with pytest.raises(CorruptBatch) as caught:
        read_header(batch)
    assert caught.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


# ---- batches that lie


def patched(batch: bytes, position: int, fmt: str, value: int) -> bytes:
    """With one header field changed and the CRC made to fit."""
    changed = bytearray(batch)
    struct.pack_into(fmt, changed, position, value)
    struct.pack_into(">I", changed, rb.CRC_AT, rb.batch_crc(changed))
    return bytes(changed)


def with_payload(payload: bytes, count: int, compression: Compression = Compression.NONE) -> bytes:
    """A batch with a fitting header and CRC around any payload."""
    fields = (int(compression), count - 1, 0, 0, -1, -1, -1, count)
    header = rb.HEADER.pack(0, rb.HEADER_SIZE - rb.LENGTH_COUNTS_FROM + len(payload), -1, 2, 0, *fields)
    return patched(header + payload, rb.RECORD_COUNT_AT, ">i", count)


SOUND = b"\x0e\0\0\0\x01\x02v\0"  # a length of 7, then attributes, two deltas, no key, one byte of value, no headers


def test_the_payload_that_these_tests_bend_is_sound() -> None:
    assert records_of(with_payload(SOUND, 1)) == [Record(0, 0, None, b"v")]


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        pytest.param(SOUND, 2, id="fewer records than the header counts"),
        pytest.param(SOUND, 0, id="more records than the header counts"),
        pytest.param(SOUND, -1, id="a negative count"),
        pytest.param(SOUND, 0x7FFFFFFF, id="a count of two billion"),
        pytest.param(SOUND + b"\0", 1, id="bytes after the last record"),
        pytest.param(b"\x10" + SOUND[1:] + b"\0", 1, id="bytes after a record's headers"),
        pytest.param(b"\x0c" + SOUND[1:], 1, id="a record shorter than what it holds"),
        pytest.param(b"\x7e" + SOUND[1:], 1, id="a record longer than the batch"),
        pytest.param(b"\x01" + SOUND[1:], 1, id="a record of negative length"),
        pytest.param(b"\xff\xff\xff\xff\x0f" + SOUND[1:], 1, id="a record of minus two billion bytes"),
        pytest.param(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 1, id="a length of more than 32 bits"),
        pytest.param(b"\x0e\0\0\x02\x01\x02v\0", 1, id="a first offset delta of one"),
        pytest.param(SOUND + SOUND, 2, id="the same offset delta twice"),
        pytest.param(b"\x0e\0\0\0\x03\x02v\0", 1, id="a key of length minus two"),
        pytest.param(b"\x0e\0\0\0\x01\x7ev\0", 1, id="a value longer than its record"),
        pytest.param(b"\x0e\0\0\0\x01\x02v\x01", 1, id="a negative number of headers"),
        pytest.param(b"\x0e\0\0\0\x01\x02v\x7e", 1, id="headers that are not there"),
        pytest.param(b"\x12\0\0\0\x01\x02v\x02\x01\x01", 1, id="a header without a name"),
        pytest.param(b"\x18\0" + b"\xff" * 10 + b"\x01", 1, id="a timestamp delta of more than 64 bits"),
        pytest.param(b"\x0e\0\0\0\x01\x02v\x80", 1, id="a varint that runs past the end"),
        pytest.param(b"", 1, id="no payload"),
    ],
)
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD], ids=["plain", "compressed"])
def test_a_batch_whose_records_lie_is_an_invalid_record(payload: bytes, count: int, compression: Compression) -> None:
    batch = with_payload(compress(compression, payload), count, compression)
    with pytest.raises(CorruptBatch) as caught:
        records_of(batch)
    assert caught.value.code is ErrorCode.INVALID_RECORD


@every_compression
def test_one_changed_bit_anywhere_under_the_crc_is_found(compression: Compression) -> None:
    batch = build_batch(RECORDS[:2], compression=compression)
    for position in range(rb.CRC_AT, len(batch)):
        damaged = bytearray(batch)
        damaged[position] ^= 1 << position % 8
        with pytest.raises(CorruptBatch):
            validate_batch(bytes(damaged), decompress_max_bytes=MEGABYTE)


@every_compression
def test_damage_behind_a_fitting_crc_is_other_records_or_corrupt(compression: Compression) -> None:
    rng = random.Random(3)
    batch = build_batch(RECORDS, compression=compression)
    for _ in range(300):
        damaged = bytearray(batch)
        for _ in range(rng.choice([1, 2, 4])):
            damaged[rng.randrange(rb.ATTRIBUTES_AT, len(batch))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
        struct.pack_into(">I", damaged, rb.CRC_AT, rb.batch_crc(damaged))
        try:
            records_of(bytes(damaged))
        except CorruptBatch:
            pass


@every_compression
def test_a_batch_cut_off_at_any_byte_or_followed_by_any_is_corrupt(compression: Compression) -> None:
    batch = build_batch(RECORDS, compression=compression)
    for end in range(len(batch)):
        with pytest.raises(CorruptBatch):
            records_of(batch[:end])
    with pytest.raises(CorruptBatch):
        records_of(batch + b"\0")


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 2**31 - 1])
def test_a_batch_that_lies_about_its_length_is_corrupt(length: int) -> None:
    batch = bytearray(build_batch(RECORDS))
    struct.pack_into(">i", batch, rb.LENGTH_AT, length)
    with pytest.raises(CorruptBatch):
        records_of(bytes(batch))


def test_timestamps_that_add_up_to_more_than_64_bits_are_an_invalid_record() -> None:
    batch = build_batch([Record(0, 0, None, b""), Record(1, 1, None, b"")])
    with pytest.raises(CorruptBatch, match="a timestamp"):
        records_of(patched(batch, rb.BASE_TIMESTAMP_AT, ">q", (1 << 63) - 1))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_compression_that_does_not_exist_has_an_error_of_its_own(codec: int) -> None:
    with pytest.raises(CorruptBatch) as caught:
        records_of(patched(build_batch(RECORDS), rb.ATTRIBUTES_AT, ">h", codec))
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("compression", [c for c in Compression if c], ids=lambda codec: codec.name.lower())
def test_a_batch_that_expands_past_the_limit_is_corrupt(compression: Compression) -> None:
    batch = build_batch([Record(0, 0, None, bytes(3 * MEGABYTE))], compression=compression)
    assert len(records_of(batch)) == 1
    with pytest.raises(CorruptBatch, match="expands to more than"):
        list(read_records(batch, MEGABYTE))


def test_header_names_that_are_not_utf_8_survive_being_read_and_written() -> None:
    batch = with_payload(b"\x16\0\0\0\x01\x02v\x02\x04\xc3\x28\x01", 1)
    records = records_of(batch)
    assert build_batch(records)[rb.HEADER_SIZE :] == batch[rb.HEADER_SIZE :]


# ---- compaction and validation


def test_gaps_in_the_offsets_are_allowed_only_in_a_compacted_batch() -> None:
    kept = [RECORDS[1], RECORDS[3]]
    batch = build_batch(kept, last_offset_delta=5)
    assert records_of(batch, compacted=True) == kept
    assert read_header(batch).last_offset == 5
    with pytest.raises(CorruptBatch):
        records_of(batch)
    with pytest.raises(CorruptBatch):
        records_of(patched(batch, rb.LAST_OFFSET_DELTA_AT, ">i", 2), compacted=True)
    with pytest.raises(CorruptBatch):
        records_of(patched(build_batch(RECORDS), rb.LAST_OFFSET_DELTA_AT, ">i", 2), compacted=True)


@every_compression
def test_compaction_may_leave_a_batch_without_records(compression: Compression) -> None:
    batch = build_batch([], base_offset=40, last_offset_delta=9, compression=compression, producer_id=1)
    assert records_of(batch, compacted=True) == []
    assert read_header(batch).last_offset == 49


def test_a_batch_for_a_compacted_topic_must_have_keys() -> None:
    keyed = build_batch([RECORDS[0]])
    assert validate_batch(keyed, decompress_max_bytes=MEGABYTE, require_keys=True).record_count == 1
    with pytest.raises(InvalidRecords, match="without key") as caught:
        validate_batch(build_batch(RECORDS), decompress_max_bytes=MEGABYTE, require_keys=True)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert list(caught.value.records) == [place for place, record in enumerate(RECORDS) if record.key is None]


def test_the_error_of_a_corrupt_batch_can_cross_to_another_process() -> None:
    error = pickle.loads(pickle.dumps(CorruptBatch("broken", ErrorCode.INVALID_RECORD)))
    assert (error.code, error.message, str(error)) == (ErrorCode.INVALID_RECORD, "broken", "INVALID_RECORD: broken")
