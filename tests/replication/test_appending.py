"""What a partition takes, what it refuses, and what it writes into a batch."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from crc32c import crc32c

from penstock.protocol.compression import Compression
from penstock.protocol.errors import ErrorCode
from penstock.protocol.record_batch import Record, TimestampType, build_batch, read_header, read_records
from penstock.replication import partition
from penstock.replication.batches import RECORD_SIZE_MIN, RECORDS_PER_BYTE_MAX
from penstock.storage.log import LogSettings
from tests.replication.leading import OS, TOPIC_ID, Led, batch
from tests.storage.logs import NOW_MS


def changed(at: int, layout: str, value: int, *, right_crc: bool = True) -> memoryview:
    """A batch of two records with one field set to something else."""
    data = batch(2)
    struct.pack_into(layout, data, at, value)
    if right_crc:
        struct.pack_into(">I", data, 17, crc32c(data[21:]))
    return data


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (memoryview(b""), ErrorCode.INVALID_RECORD),
        (batch()[:60], ErrorCode.CORRUPT_MESSAGE),
        (batch()[:-1], ErrorCode.INVALID_RECORD),
        (memoryview(bytearray(bytes(batch()) * 2)), ErrorCode.INVALID_RECORD),
        (changed(8, ">i", -1), ErrorCode.INVALID_RECORD),
        (changed(16, ">b", 1), ErrorCode.INVALID_RECORD),
        (changed(16, ">b", 3), ErrorCode.INVALID_RECORD),
        (changed(17, ">I", 1, right_crc=False), ErrorCode.CORRUPT_MESSAGE),
        (changed(70, ">b", 2, right_crc=False), ErrorCode.CORRUPT_MESSAGE),
        (changed(57, ">i", 0), ErrorCode.INVALID_RECORD),
        (changed(57, ">i", -1), ErrorCode.INVALID_RECORD),
        (changed(57, ">i", 3), ErrorCode.INVALID_RECORD),
        (changed(23, ">i", 5), ErrorCode.INVALID_RECORD),
        (changed(23, ">i", -1), ErrorCode.INVALID_RECORD),
        (changed(21, ">h", 0x20), ErrorCode.INVALID_RECORD),
        (changed(21, ">h", 0x40), ErrorCode.INVALID_RECORD),
        (changed(21, ">h", -0x8000), ErrorCode.INVALID_RECORD),
        (changed(21, ">h", 0x10), ErrorCode.INVALID_RECORD),
        (changed(21, ">h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (changed(21, ">h", 7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (changed(35, ">q", NOW_MS + 3600_001), ErrorCode.INVALID_TIMESTAMP),
        (batch(producer=(7, 0, -1)), ErrorCode.INVALID_RECORD),
        (batch(producer=(7, -1, 0)), ErrorCode.INVALID_RECORD),
        (batch(size=2000), ErrorCode.MESSAGE_TOO_LARGE),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_batch_is_told_and_nothing_is_stored(
    tmp_path: Path, data: memoryview, error: ErrorCode
) -> None:
    led = Led(tmp_path, max_message_bytes=1000, **OS)
    assert led.refused(data) is error
    led.end_turn()
    assert not (tmp_path / "t-0").exists()
    led.write()
    assert led.visible() == [(0, b"0.........")]


def test_a_batch_as_large_as_is_allowed_is_taken(tmp_path: Path) -> None:
    data = batch(size=500)
    led = Led(tmp_path, max_message_bytes=len(data), **OS)
    led.write(data)
    assert led.refused(batch(size=501)) is ErrorCode.MESSAGE_TOO_LARGE


def test_every_codec_is_taken_as_it_came(tmp_path: Path) -> None:
    led = Led(tmp_path, **OS)
    for codec in Compression:
        led.write(batch(3, compression=codec))
    assert len(led.visible()) == 3 * len(Compression)


def compressed(count: int, size: int) -> memoryview:
    """A batch of one record that says it is compressed, into so many bytes, and holds so many."""
    data = memoryview(bytearray(batch()[:61]) + bytes(size))
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">hi", data, 21, Compression.ZSTD, count - 1)
    struct.pack_into(">i", data, 57, count)
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    return data


@pytest.mark.parametrize("size", [1, 1000])
def test_a_compressed_batch_that_claims_more_records_than_it_can_hold_is_refused(tmp_path: Path, size: int) -> None:
    """Each claims offsets, and a segment has only so many: a few bytes must not be able to begin a new one."""
    led = Led(tmp_path, **OS)
    for count in (2**31 - 1, RECORDS_PER_BYTE_MAX * size + 1):
        assert led.refused(compressed(count, size)) is ErrorCode.INVALID_RECORD
    led.append(compressed(RECORDS_PER_BYTE_MAX * size, size))
    assert led.refused(compressed(1, 0)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_records_that_compress_as_well_as_any_are_far_from_being_refused(tmp_path: Path, codec: Compression) -> None:
    count = 100_000
    data = build_batch([Record(n, NOW_MS, None, None) for n in range(count)], compression=codec)
    assert count < RECORDS_PER_BYTE_MAX / 16 * (len(data) - 61)
    assert Led(tmp_path, max_message_bytes=len(data), **OS).append(memoryview(bytearray(data)))[1] == count


@pytest.mark.parametrize("walked_max", [0, 500, 2**31])
def test_a_batch_has_room_for_the_records_it_counts_whether_they_are_walked_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, walked_max: int
) -> None:
    monkeypatch.setattr(partition, "WALKED_MAX", walked_max)
    led = Led(tmp_path, **OS)
    smallest = bytearray(build_batch([Record(n, NOW_MS, None, None) for n in range(2)]))
    assert len(smallest) == 61 + 2 * RECORD_SIZE_MIN
    led.append(memoryview(smallest))
    for count in (3, 501, 2**31 - 1):
        claiming = bytearray(smallest)
        struct.pack_into(">i", claiming, 23, count - 1)
        struct.pack_into(">i", claiming, 57, count)
        struct.pack_into(">I", claiming, 17, crc32c(claiming[21:]))
        assert led.refused(memoryview(claiming)) is ErrorCode.INVALID_RECORD


def test_a_timestamp_too_old_is_refused_where_the_topic_says_so(tmp_path: Path) -> None:
    led = Led(tmp_path, timestamp_before_max_ms=1000, **OS)
    assert led.refused(batch(timestamps=[NOW_MS - 1001])) is ErrorCode.INVALID_TIMESTAMP
    led.append(batch(timestamps=[NOW_MS - 1000]))
    led.append(batch(timestamps=[NOW_MS + 3600_000]))


def test_offset_and_leader_epoch_are_stamped_and_nothing_else(tmp_path: Path) -> None:
    led = Led(tmp_path, epoch=7, **OS)
    original = bytes(batch(3))
    led.write(batch(2), memoryview(bytearray(original)), batch(1))
    stored = (tmp_path / "t-0" / f"{0:020d}.log").read_bytes()
    second = stored[len(batch(2)) : len(batch(2)) + len(original)]
    header = read_header(second)
    assert (header.base_offset, header.leader_epoch) == (2, 7)
    assert second[:8] + original[8:12] + second[12:16] + original[16:] == second
    assert [offset for offset, _ in led.visible()] == [0, 1, 2, 3, 4, 5]
    assert (led.partition.log.epochs.epochs, led.partition.log.epochs.starts) == ([7], [0])
    assert (tmp_path / "t-0" / "topic-id").read_text() == TOPIC_ID.hex()


def test_log_append_time_is_the_brokers_clock(tmp_path: Path) -> None:
    led = Led(tmp_path, log_append_time=True, **OS)
    appended = led.append(batch(2, timestamps=[5, NOW_MS + 10**9]), now_ms=NOW_MS + 3)  # out of range, and no matter
    led.end_turn()
    assert appended == (0, 2, NOW_MS + 3)
    stored = (tmp_path / "t-0" / f"{0:020d}.log").read_bytes()
    assert read_header(stored).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [r.timestamp_ms for r in read_records(stored, 0, check_crc=True)] == [NOW_MS + 3] * 2
    found = led.partition.log.max_timestamp()
    assert found is not None
    assert found.timestamp_ms == NOW_MS + 3


@pytest.mark.parametrize(("compression", "newest"), [(Compression.NONE, NOW_MS + 2), (Compression.GZIP, NOW_MS)])
def test_the_newest_time_of_a_batch_is_found_where_the_client_left_it_out(
    tmp_path: Path, compression: Compression, newest: int
) -> None:
    led = Led(tmp_path, **OS)
    sent = bytearray(batch(3, timestamps=[NOW_MS, NOW_MS + 2, NOW_MS + 1], compression=compression))
    struct.pack_into(">q", sent, 35, -1)
    struct.pack_into(">I", sent, 17, crc32c(sent[21:]))
    led.append(sent)
    led.end_turn()
    stored = (tmp_path / "t-0" / f"{0:020d}.log").read_bytes()
    assert read_header(stored).max_timestamp == newest
    assert [r.timestamp_ms for r in read_records(stored, 1 << 20, check_crc=True)] == [NOW_MS, NOW_MS + 2, NOW_MS + 1]
    found = led.partition.log.max_timestamp()
    assert found is not None
    assert found.timestamp_ms == NOW_MS + 2


def test_under_create_time_the_answer_has_no_append_time(tmp_path: Path) -> None:
    assert Led(tmp_path, **OS).append() == (0, 1, -1)


def test_all_batches_of_a_turn_are_one_write(tmp_path: Path) -> None:
    led = Led(tmp_path, **OS)
    led.write()
    for _ in range(5):
        led.append()
    assert led.turn.writes == [led.partition._write]
    assert led.partition.log.end_offset == 1
    led.end_turn()
    assert led.partition.log.end_offset == 6


# ---- idempotence


@pytest.mark.parametrize("same_turn", [True, False])
def test_a_batch_sent_twice_is_stored_once_and_has_the_first_ones_offset(tmp_path: Path, same_turn: bool) -> None:
    led = Led(tmp_path, **OS)
    led.write(batch(3))
    first = led.append(batch(2, producer=(7, 0, 0)))
    if not same_turn:
        led.end_turn()
    again = led.append(batch(2, producer=(7, 0, 0)))
    led.end_turn()
    assert first == (3, 5, -1)
    assert again == (3, 5, NOW_MS)  # as in Kafka, the batch's own time
    assert led.partition.log.end_offset == 5


@pytest.mark.parametrize("same_turn", [True, False])
def test_the_last_five_batches_are_known_again_and_older_ones_are_out_of_order(tmp_path: Path, same_turn: bool) -> None:
    led = Led(tmp_path, **OS)
    for sequence in range(7):
        led.append(batch(producer=(7, 0, sequence)))
        if not same_turn:
            led.end_turn()
    assert [led.append(batch(producer=(7, 0, sequence)))[0] for sequence in range(2, 7)] == [2, 3, 4, 5, 6]
    assert led.refused(batch(producer=(7, 0, 1))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    led.end_turn()
    assert led.partition.log.end_offset == 7


def test_a_gap_in_the_sequence_is_refused(tmp_path: Path) -> None:
    led = Led(tmp_path, **OS)
    led.append(batch(2, producer=(7, 0, 0)))
    for sequence in (1, 3, 100):
        assert led.refused(batch(producer=(7, 0, sequence))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    led.append(batch(producer=(7, 0, 2)))


def test_the_sequence_wraps(tmp_path: Path) -> None:
    led = Led(tmp_path, **OS)
    led.append(batch(2, producer=(7, 0, 2**31 - 2)))
    assert led.append(batch(1, producer=(7, 0, 0))) == (2, 3, -1)
    assert led.append(batch(2, producer=(7, 0, 2**31 - 2)))[:2] == (0, 2)


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_0(tmp_path: Path) -> None:
    led = Led(tmp_path, **OS)
    led.append(batch(producer=(7, 1, 0)))
    assert led.refused(batch(producer=(7, 0, 1))) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert led.refused(batch(producer=(7, 2, 1))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    led.append(batch(producer=(7, 2, 0)))
    led.end_turn()
    assert led.refused(batch(producer=(7, 1, 1))) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_producers_do_not_know_of_each_other(tmp_path: Path) -> None:
    led = Led(tmp_path, **OS)
    for sequence in range(3):
        for producer in (1, 2):
            led.append(batch(producer=(producer, 0, sequence)))
    led.append()
    led.end_turn()
    assert led.partition.log.end_offset == 7


# ---- rolling


def test_segments_roll_and_every_batch_is_found(tmp_path: Path) -> None:
    led = Led(tmp_path, log=LogSettings(segment_bytes=300), **OS)
    led.write(*(batch(2) for _ in range(10)))
    led.write(*(batch(2) for _ in range(10)))
    assert len(led.partition.log.segments) > 3
    assert [offset for offset, _ in led.visible()] == list(range(40))
    assert led.partition.retired == led.partition.log.segments[:-1]
