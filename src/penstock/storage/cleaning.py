"""What compaction leaves of one batch.

A record stays if no later one has its key, and a tombstone (a key without a value) only until its delete horizon. The
horizon is set by the first compaction that meets the tombstone (KIP-534): attribute bit 6 says that the base timestamp
holds it, and the records' deltas count from there. Records without a key go.

A batch that loses nothing stays as it is, byte for byte. Of others the records keep their bytes and offsets, and the
batch its compression, base offset, last offset and sequence. A batch that lost all records stays without any if its
producer's last sequence, or the last offset of the log so far, would be forgotten with it.

Only transactions that have been decided are met here. What was aborted goes, and hides no older record. A marker stays
as long as anything of its transaction does, then until a delete horizon of its own, so that whoever reads the log from
its beginning finds every transaction ended. A batch that can't be opened is left alone.
"""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

from crc32c import crc32c

from penstock.protocol.compression import Compression, compress, decompress
from penstock.protocol.errors import CorruptBatch
from penstock.protocol.record_batch import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    CONTROL_BIT,
    CRC_AT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_COUNTS_FROM,
    MAGIC,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
)
from penstock.protocol.wire import uvarint
from penstock.storage.disk import Buffer
from penstock.storage.segment import Batch

DIGEST_SIZE = 32
DECOMPRESS_MAX_BYTES = 256 * 1024 * 1024
NULL = 1  # the length -1 as a zigzag varint


# A record where it lies in its batch, with what compaction must know of it: start, end, timestamp delta (in zigzag form
# still), offset delta, key, whether it has a value. A plain tuple, because there are millions of them.
PackedRecord = tuple[int, int, int, int, bytes | None, bool]


class Horizon(NamedTuple):
    now_ms: int
    delete_retention_ms: int


def key_of(key: bytes) -> bytes:
    """What stands for a key in memory. Digests are longer than any key that stands for itself."""
    return key if len(key) < DIGEST_SIZE else sha256(key).digest()


def open_batch(batch: Batch, data: memoryview) -> tuple[bytes, list[PackedRecord]] | None:
    """The records' bytes and where each is in them; None if the batch must be left alone."""
    if batch.attributes & CONTROL_BIT:
        return None
    if crc32c(data[ATTRIBUTES_AT:]) != batch.crc:
        return None  # a new checksum would make the damage look sound
    try:
        codec = Compression(batch.attributes & COMPRESSION_MASK)
        body = bytes(data[HEADER_SIZE:])
        if codec and batch.record_count:
            body = decompress(codec, body, DECOMPRESS_MAX_BYTES)
        return body, walk(body, batch.record_count)
    except (CorruptBatch, IndexError, ValueError):
        return None


def walk(body: bytes, count: int) -> list[PackedRecord]:
    """Raises ValueError or IndexError where the bytes are no records."""
    records: list[PackedRecord] = []
    position = 0
    for _ in range(count):
        start = position
        size = body[position]
        position += 1
        if size > 0x7F:
            size, position = _rest_of_varint(body, position, size)
        end = position + (size >> 1)
        timestamp_delta = body[position + 1]
        position += 2
        if timestamp_delta > 0x7F:
            timestamp_delta, position = _rest_of_varint(body, position, timestamp_delta)
        offset_delta = body[position]
        position += 1
        if offset_delta > 0x7F:
            offset_delta, position = _rest_of_varint(body, position, offset_delta)
        length = body[position]
        position += 1
        if length > 0x7F:
            length, position = _rest_of_varint(body, position, length)
        key = None
        if length != NULL:
            key = body[position : position + (length >> 1)]
            position += length >> 1
        if (size | length & ~NULL | offset_delta) & 1 or position >= end:
            raise ValueError(f"no record at {start}")
        records.append((start, end, timestamp_delta, offset_delta >> 1, key, body[position] != NULL))
        position = end
    if position != len(body):
        raise ValueError("the records do not end where the batch does")
    return records


def _rest_of_varint(body: bytes, position: int, value: int) -> tuple[int, int]:
    """Still in zigzag form; `value` is its first byte, which stands before the position."""
    value &= 0x7F
    shift = 7
    while True:
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _varint(body: bytes, position: int) -> tuple[int, int]:
    value = body[position]
    return (value, position + 1) if value < 0x80 else _rest_of_varint(body, position + 1, value)


def clean(
    batch: Batch, data: memoryview, newest: dict[bytes, int], horizon: Horizon, *, keep_empty: bool
) -> Buffer | None:
    """The batch as it is to be stored again, None if nothing of it is. `newest` has the last offset of each key."""
    if batch.record_count == 0 and not batch.attributes & CONTROL_BIT:
        return data if keep_empty else None
    opened = open_batch(batch, data)
    if opened is None:
        return data
    body, records = opened
    expires_ms = batch.base_timestamp if batch.attributes & DELETE_HORIZON_BIT else None
    tombstones_stay = expires_ms is None or horizon.now_ms < expires_ms
    base_offset, newest_of = batch.base_offset, newest.get
    kept = []
    has_tombstone = False
    for record in records:
        _, _, _, offset_delta, key, has_value = record
        if key is None or base_offset + offset_delta < newest_of(key if len(key) < DIGEST_SIZE else key_of(key), -1):
            continue
        if not has_value:
            if not tombstones_stay:
                continue
            has_tombstone = True
        kept.append(record)
    if not kept:
        return without_records(batch) if keep_empty else None
    if has_tombstone and expires_ms is None:
        return _with_horizon(batch, body, kept, horizon.now_ms + horizon.delete_retention_ms)
    if len(kept) == len(records):
        return data
    return _build(batch, [body[start:end] for start, end, *_ in kept], batch.attributes, batch.base_timestamp, kept)


def _with_horizon(batch: Batch, body: bytes, kept: list[PackedRecord], expires_ms: int) -> bytes:
    shift = batch.base_timestamp - expires_ms
    parts = []
    for start, end, timestamp_delta, *_ in kept:
        _, content = _varint(body, start)
        _, behind = _varint(body, content + 1)
        delta = _unzigzag(timestamp_delta) + shift
        moved = body[content : content + 1] + uvarint((delta << 1) ^ (delta >> 63)) + body[behind:end]
        parts.append(uvarint(len(moved) << 1) + moved)
    return _build(batch, parts, batch.attributes | DELETE_HORIZON_BIT, expires_ms, kept)


def _build(batch: Batch, parts: list[bytes], attributes: int, base_timestamp: int, kept: list[PackedRecord]) -> bytes:
    max_timestamp = batch.max_timestamp
    if not attributes & TIMESTAMP_TYPE_BIT:
        max_timestamp = batch.base_timestamp + max(_unzigzag(record[2]) for record in kept)
    payload = compress(Compression(attributes & COMPRESSION_MASK), b"".join(parts))
    return _pack(batch, attributes, base_timestamp, max_timestamp, len(kept), payload)


def _unzigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


def clean_marker(batch: Batch, data: memoryview, horizon: Horizon, *, is_needed: bool) -> Buffer | None:
    """A marker whose transaction has left nothing is kept for as long as a tombstone, for readers who began before."""
    if is_needed:
        return data
    if batch.attributes & DELETE_HORIZON_BIT:
        return data if horizon.now_ms < batch.base_timestamp else None
    if crc32c(data[ATTRIBUTES_AT:]) != batch.crc:
        return data
    body = bytes(data[HEADER_SIZE:])
    try:
        records = walk(body, batch.record_count)
    except (IndexError, ValueError):
        return data
    return _with_horizon(batch, body, records, horizon.now_ms + horizon.delete_retention_ms)


def without_records(batch: Batch) -> bytes:
    """Of no transaction any more: there is nothing left in it that could count or not."""
    attributes = batch.attributes & TIMESTAMP_TYPE_BIT
    return _pack(batch, attributes, NO_TIMESTAMP, batch.max_timestamp, 0, b"")


def _pack(batch: Batch, attributes: int, base_timestamp: int, max_timestamp: int, count: int, payload: bytes) -> bytes:
    length = HEADER_SIZE - LENGTH_COUNTS_FROM + len(payload)
    header = HEADER.pack(
        batch.base_offset, length, batch.leader_epoch, MAGIC, 0, attributes, batch.last_offset - batch.base_offset,
        base_timestamp, max_timestamp, batch.producer_id, batch.producer_epoch, batch.base_sequence, count,
    )  # fmt: skip
    checksum = crc32c(payload, crc32c(header[ATTRIBUTES_AT:]))
    return header[:CRC_AT] + checksum.to_bytes(4, "big") + header[ATTRIBUTES_AT:] + payload
