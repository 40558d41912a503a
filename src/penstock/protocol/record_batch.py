"""The record batch, version 2: the one format from producer to disk to consumer.

                 0               8       12      16  17      21
                +---------------+-------+-------+---+-------+----
                | base offset   |length | leader|mag|  CRC  | what the CRC covers ...
                |               |       | epoch | ic|       |
                +---------------+-------+-------+---+-------+----
     21       23      27              35              43              51      53      57      61
    +--------+-------+---------------+---------------+---------------+-------+-------+-------+---
    | attri- | last  | base          | max           | producer id   | prod. | base  | record| records ...
    | butes  | delta | timestamp     | timestamp     |               | epoch | seq.  | count |
    +--------+-------+---------------+---------------+---------------+-------+-------+-------+---

    attributes   0-2 compression   3 timestamp type   4 transactional   5 control   6 delete horizon

The length counts what comes after it. Base offset and leader epoch stand before the CRC so that a leader can stamp them
in place. Nothing here is trusted: whatever is wrong with a batch ends in `CorruptBatch`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from crc32c import crc32c

from penstock.protocol.compression import Buffer, Compression, compress, decompress
from penstock.protocol.errors import CorruptBatch as CorruptBatch
from penstock.protocol.errors import ErrorCode, InvalidRecords
from penstock.protocol.wire import uvarint

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = 61
assert HEADER.size == HEADER_SIZE

BASE_OFFSET_AT: Final = 0
LENGTH_AT: Final = 8
LEADER_EPOCH_AT: Final = 12
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
LAST_OFFSET_DELTA_AT: Final = 23
BASE_TIMESTAMP_AT: Final = 27
MAX_TIMESTAMP_AT: Final = 35
NAMED_MAX: Final = 1000  # records of a batch that an answer names
PRODUCER_ID_AT: Final = 43
PRODUCER_EPOCH_AT: Final = 51
BASE_SEQUENCE_AT: Final = 53
RECORD_COUNT_AT: Final = 57

LENGTH_COUNTS_FROM = LEADER_EPOCH_AT  # the size of a batch is this plus its length field
MAGIC: Final = 2

COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

NO_PRODUCER_ID: Final = -1
NO_TIMESTAMP: Final = -1
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Record(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return LENGTH_COUNTS_FROM + self.length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def compression(self) -> Compression:
        codec = self.attributes & COMPRESSION_MASK
        if codec > Compression.ZSTD:
            raise CorruptBatch(f"no compression has the number {codec}", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        return Compression(codec)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON_BIT)


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`; the batch itself may reach past the buffer's end."""
    if len(buffer) - position < HEADER_SIZE:
        raise CorruptBatch("the buffer ends inside a batch's header")
    header = BatchHeader._make(HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        raise CorruptBatch(f"a batch has magic {header.magic}", ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
    if header.size < HEADER_SIZE:
        raise CorruptBatch(f"a batch claims a length of {header.length}")
    return header


def read_batches(buffer: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The whole batches in a buffer, such as a fetch returns: its last one may be cut off, and is left out."""
    view = memoryview(buffer)
    position = 0
    while len(view) - position >= HEADER_SIZE:
        header = read_header(view, position)
        if header.size > len(view) - position:
            return
        yield header, view[position : position + header.size]
        position += header.size


def batch_crc(batch: Buffer) -> int:
    """What the CRC field of this one batch ought to hold."""
    return crc32c(memoryview(batch)[ATTRIBUTES_AT:])


# ---- reading


def read_records(
    batch: Buffer, decompress_max_bytes: int, *, check_crc: bool = False, compacted: bool = False
) -> Iterator[Record]:
    """The records of exactly one batch. In a log that was compacted, a batch may lack some of its records."""
    header = read_header(batch)
    if header.size != len(batch):
        raise CorruptBatch(f"a batch of {header.size} bytes stands in {len(batch)}")
    if check_crc and header.crc != batch_crc(batch):
        raise CorruptBatch("the CRC does not match")
    payload = memoryview(batch)[HEADER_SIZE:]
    data = bytes(payload)
    if header.compression and (header.record_count or data):
        data = decompress(header.compression, payload, decompress_max_bytes)
    if not compacted and header.last_offset_delta != header.record_count - 1:
        raise _invalid(f"{header.record_count} records reach up to offset delta {header.last_offset_delta}")
    try:
        yield from _walk(data, header, compacted)
    except IndexError:
        raise _invalid("a record runs past the end of its batch") from None


def validate_batch(
    batch: Buffer, *, decompress_max_bytes: int, require_keys: bool = False, compacted: bool = False
) -> BatchHeader:
    """Everything that can be known of a batch from its bytes: the CRC, and each record in its place."""
    records = read_records(batch, decompress_max_bytes, check_crc=True, compacted=compacted)
    keyless = [place for place, record in enumerate(records) if record.key is None]
    if require_keys and keyless:
        raise InvalidRecords(keyless[:NAMED_MAX], "Compacted topic cannot accept message without key")
    return read_header(batch)


def _walk(data: bytes, header: BatchHeader, compacted: bool) -> Iterator[Record]:
    position, end, previous = 0, len(data), -1
    stamp = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    for _ in range(header.record_count):
        size, position = _read_varint(data, position)
        record_end = position + size
        if size < 0 or record_end > end:
            raise _invalid(f"a record claims {size} bytes")
        timestamp_delta, position = _read_varint(data, position + 1, bits=64)
        delta, position = _read_varint(data, position)
        if not previous < delta <= header.last_offset_delta or (delta > previous + 1 and not compacted):
            raise _invalid(f"offset delta {delta} follows {previous}")
        previous = delta
        key, position = _read_bytes(data, position, record_end)
        value, position = _read_bytes(data, position, record_end)
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if data[position] == 0:
            position += 1
        else:
            headers, position = _read_headers(data, position, record_end)
        if position != record_end:
            raise _invalid(f"a record of {size} bytes holds {size + position - record_end}")
        timestamp_ms = header.base_timestamp + timestamp_delta if stamp is None else stamp
        if not INT64_MIN <= timestamp_ms <= INT64_MAX:
            raise _invalid("a timestamp is longer than 64 bits")
        yield Record(header.base_offset + delta, timestamp_ms, key, value, headers)
    if position != end:
        raise _invalid(f"{end - position} bytes follow the last record")


def _read_headers(data: bytes, position: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = _read_varint(data, position)
    if not 0 <= count <= end - position:
        raise _invalid(f"a record claims {count} headers")
    headers = []
    for _ in range(count):
        name, position = _read_bytes(data, position, end)
        if name is None:
            raise _invalid("a header has no name")
        value, position = _read_bytes(data, position, end)
        # Brokers have never looked at the encoding of names, so what is in a log must survive being read.
        headers.append((name.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = _read_varint(data, position)
    stop = position + size
    if size < 0:
        if size == -1:
            return None, position
        raise _invalid(f"a length is {size}")
    if stop > end:
        raise _invalid("a key, value or header runs past the end of its record")
    return data[position:stop], stop


def _read_varint(data: bytes, position: int, bits: int = 32) -> tuple[int, int]:
    """A zigzag varint."""
    value = data[position]
    position += 1
    if value > 0x7F:
        value &= 0x7F
        shift = 7
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift >= bits:
                raise _invalid(f"a varint is longer than {bits} bits")
        if value >> bits:
            raise _invalid(f"a varint is longer than {bits} bits")
    return (value >> 1) ^ -(value & 1), position


def _invalid(message: str) -> CorruptBatch:
    return CorruptBatch(message, ErrorCode.INVALID_RECORD)


# ---- building


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    last_offset_delta: int | None = None,
    compression: Compression = Compression.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    partition_leader_epoch: int = -1,
    control: bool = False,
    transactional: bool = False,
) -> bytes:
    """Records keep their offsets; `last_offset_delta` is given where compaction took the batch's last records away."""
    base_timestamp = max_timestamp = NO_TIMESTAMP
    count, last_delta = 0, -1
    body = bytearray()
    for record in records:
        if count == 0:
            base_timestamp = record.timestamp_ms
        max_timestamp = max(max_timestamp, record.timestamp_ms)
        assert record.offset - base_offset > last_delta, "offsets must rise from the base offset"
        last_delta = record.offset - base_offset
        encoded = _encode_record(record, last_delta, record.timestamp_ms - base_timestamp)
        body += _zigzag(len(encoded)) + encoded
        count += 1
    attributes = compression | timestamp_type * TIMESTAMP_TYPE_BIT
    attributes |= transactional * TRANSACTIONAL_BIT | control * CONTROL_BIT
    last_delta = last_delta if last_offset_delta is None else last_offset_delta
    payload = compress(compression, body) if count else b""
    length = HEADER_SIZE - LENGTH_COUNTS_FROM + len(payload)
    producer = (producer_id, producer_epoch, base_sequence)
    fields = (attributes, last_delta, base_timestamp, max_timestamp, *producer, count)
    batch = bytearray(HEADER.pack(base_offset, length, partition_leader_epoch, MAGIC, 0, *fields))
    batch += payload
    struct.pack_into(">I", batch, CRC_AT, batch_crc(batch))
    return bytes(batch)


def _encode_record(record: Record, offset_delta: int, timestamp_delta: int) -> bytes:
    out = bytearray(1)  # the attributes of a record, unused so far
    out += _zigzag(timestamp_delta) + _zigzag(offset_delta)
    for part in (record.key, record.value):
        out += _NULL if part is None else _zigzag(len(part)) + part
    out += _zigzag(len(record.headers))
    for name, value in record.headers:
        encoded_name = name.encode("utf-8", "surrogateescape")
        out += _zigzag(len(encoded_name)) + encoded_name
        out += _NULL if value is None else _zigzag(len(value)) + value
    return bytes(out)


def _zigzag(value: int) -> bytes:
    return uvarint(value << 1 if value >= 0 else ~value << 1 | 1)


_NULL = _zigzag(-1)
