"""Encoded records as a whole record batch. Without Arrow, so that decisions are made where Spark is not installed."""

from __future__ import annotations

from dataclasses import dataclass

from crc32c import crc32c

from penstock.protocol.compression import Compression, compress
from penstock.protocol.record_batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER,
    HEADER_SIZE,
    LENGTH_COUNTS_FROM,
    MAGIC,
    TRANSACTIONAL_BIT,
)

# Of a sealed batch. Topics take 1,048,588 unless told otherwise, and what can't be compressed grows a little.
BATCH_BYTES_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class Encoded:
    """Records of one partition, as they stand in a batch before it is compressed."""

    topic: str
    partition: int
    records: bytes
    count: int
    base_timestamp_ms: int
    max_timestamp_ms: int


def seal(
    encoded: Encoded,
    compression: Compression,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """The whole record batch."""
    payload = compress(compression, encoded.records) if compression else encoded.records
    length = HEADER_SIZE - LENGTH_COUNTS_FROM + len(payload)
    attributes = compression | transactional * TRANSACTIONAL_BIT
    times = encoded.base_timestamp_ms, encoded.max_timestamp_ms
    producer = producer_id, producer_epoch, base_sequence
    fields = attributes, encoded.count - 1, *times, *producer, encoded.count
    header = HEADER.pack(0, length, -1, MAGIC, 0, *fields)
    crc = crc32c(payload, crc32c(header[ATTRIBUTES_AT:]))
    return b"".join((header[:CRC_AT], crc.to_bytes(4, "big"), header[ATTRIBUTES_AT:], payload))
