"""What the worker process does with a batch on its way into a log: work that would hold up the event loop.

Functions of bytes alone. What a client got wrong comes back as text, so that it can be told.
"""

from __future__ import annotations

import gzip
from typing import NamedTuple

import cramjam

from penstock.protocol.compression import Compression, compress, decompress
from penstock.protocol.errors import CorruptBatch, InvalidRecords
from penstock.protocol.record_batch import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    CRC_AT,
    HEADER_SIZE,
    LENGTH_AT,
    LENGTH_COUNTS_FROM,
    batch_crc,
    validate_batch,
)


class Wrong(NamedTuple):
    problem: str
    records: tuple[int, ...] = ()  # places in the batch; none if it is wrong as a whole


def validate(batch: bytes, require_keys: bool, decompress_max: int) -> Wrong | None:
    """What is wrong with the batch, None if nothing is."""
    try:
        validate_batch(batch, decompress_max_bytes=decompress_max, require_keys=require_keys)
    except CorruptBatch as error:
        return Wrong(error.message or "the batch can't be read")
    except InvalidRecords as error:
        return Wrong(error.message or "", error.records)
    return None


def recompress(batch: bytes, codec: int, level: int | None, decompress_max: int) -> bytes | str:
    """The same batch with its records compressed by another codec, or what is wrong with it."""
    try:
        header = validate_batch(batch, decompress_max_bytes=decompress_max)
        records = decompress(header.compression, memoryview(batch)[HEADER_SIZE:], decompress_max)
    except CorruptBatch as error:
        return error.message or "the batch can't be decompressed"
    out = bytearray(batch[:HEADER_SIZE])
    out += _compress(Compression(codec), records, level)
    out[LENGTH_AT : LENGTH_AT + 4] = (len(out) - LENGTH_COUNTS_FROM).to_bytes(4, "big")
    attributes = header.attributes & ~COMPRESSION_MASK | codec
    out[ATTRIBUTES_AT : ATTRIBUTES_AT + 2] = attributes.to_bytes(2, "big", signed=True)
    out[CRC_AT : CRC_AT + 4] = batch_crc(out).to_bytes(4, "big")
    return bytes(out)


def _compress(codec: Compression, data: bytes, level: int | None) -> bytes:
    """With the topic's level (KIP-390), where the codec knows levels."""
    if level is not None and codec is Compression.GZIP:
        return gzip.compress(data, compresslevel=level, mtime=0)
    if level is not None and codec is Compression.LZ4:
        stream = cramjam.lz4.Compressor(level=level, block_linked=False, content_checksum=False)
        stream.compress(data)
        return bytes(stream.finish())
    if level is not None and codec is Compression.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=level))
    return compress(codec, data)
