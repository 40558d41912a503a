"""The four codecs of record batches, as Kafka's clients frame them.

Decompressing never holds much more than `max_bytes`: the output is bounded before a codec is let loose on it, so that a
few kilobytes from a producer can't claim gigabytes here.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import cramjam

from penstock.protocol.errors import CorruptBatch

Buffer = bytes | bytearray | memoryview


class Compression(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# Kafka's snappy is snappy-java's stream: this header, then blocks of an int32 length and raw snappy each.
XERIAL_MAGIC = b"\x82SNAPPY\0"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES = 32 * 1024

GZIP_WBITS = 31
GZIP_PIECE_BYTES = 1 << 20  # what a bomb may overshoot the limit by
ZSTD_LEVEL = 3
FIRST_GUESS_BYTES_MIN = 64 * 1024


def compress(codec: Compression, data: Buffer) -> bytes:
    return _COMPRESS[codec](data)


def decompress(codec: Compression, data: Buffer, max_bytes: int) -> bytes:
    """Raises CorruptBatch where the data is damaged, or expands to more than `max_bytes`."""
    try:
        return _DECOMPRESS[codec](data, max_bytes)
    except (cramjam.DecompressionError, zlib.error, struct.error) as error:
        raise CorruptBatch(f"{codec.name.lower()}: {error}") from None


def _too_large(codec: Compression, max_bytes: int) -> CorruptBatch:
    return CorruptBatch(f"{codec.name.lower()}: expands to more than {max_bytes} bytes")


# ---- none


def _decompress_none(data: Buffer, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise _too_large(Compression.NONE, max_bytes)
    return bytes(data)


# ---- gzip


def _compress_gzip(data: Buffer) -> bytes:
    return gzip.compress(data, compresslevel=6, mtime=0)


def _decompress_gzip(data: Buffer, max_bytes: int) -> bytes:
    """A gzip stream may hold several members, one after the other."""
    out = bytearray()
    rest: Buffer = data
    while True:
        member = zlib.decompressobj(GZIP_WBITS)
        while not member.eof:
            piece = member.decompress(rest, GZIP_PIECE_BYTES)
            rest = member.unconsumed_tail
            if not piece and not member.eof and not rest:
                raise CorruptBatch("gzip: the stream ends early")
            out += piece
            if len(out) > max_bytes:
                raise _too_large(Compression.GZIP, max_bytes)
        rest = member.unused_data
        if not rest:
            return bytes(out)


# ---- snappy


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    out = bytearray(XERIAL_HEADER)
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        out += struct.pack(">i", len(block)) + block
    return bytes(out)


def _decompress_snappy(data: Buffer, max_bytes: int) -> bytes:
    """Either snappy-java's stream or, as librdkafka sends it, one bare block."""
    view = memoryview(data)
    if view[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return _snappy_block(view, max_bytes)
    out = bytearray()
    position = len(XERIAL_HEADER)
    while position < len(view):
        (size,) = struct.unpack_from(">i", view, position)
        position += 4
        if not 0 < size <= len(view) - position:
            raise CorruptBatch("snappy: a block runs past the end")
        out += _snappy_block(view[position : position + size], max_bytes - len(out))
        position += size
    if position > len(view):
        raise CorruptBatch("snappy: the stream ends early")
    return bytes(out)


def _snappy_block(block: memoryview, max_bytes: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(block) > max_bytes:
        raise _too_large(Compression.SNAPPY, max_bytes)
    return bytes(cramjam.snappy.decompress_raw(block))


# ---- lz4 and zstd


def _compress_lz4(data: Buffer) -> bytes:
    # Java's reader refuses linked blocks, which are this library's default; so is a level six times slower.
    stream = cramjam.lz4.Compressor(level=1, block_linked=False, content_checksum=False)
    stream.compress(bytes(data))
    return bytes(stream.finish())


def _compress_zstd(data: Buffer) -> bytes:
    # The compressor lives for one call: two threads that share one crash the process.
    return bytes(cramjam.zstd.compress(data, level=ZSTD_LEVEL))


def _decompress_lz4(data: Buffer, max_bytes: int) -> bytes:
    return _decompress_bounded(Compression.LZ4, cramjam.lz4.decompress_into, data, max_bytes)


def _decompress_zstd(data: Buffer, max_bytes: int) -> bytes:
    return _decompress_bounded(Compression.ZSTD, cramjam.zstd.decompress_into, data, max_bytes)


def _decompress_bounded(codec: Compression, decompress_into: Callable[..., Any], data: Buffer, max_bytes: int) -> bytes:
    """Into a buffer that grows until the output fits, and never past the limit.

    These frames need not say how much they hold, and what they say need not be true.
    """
    room = min(max_bytes, max(FIRST_GUESS_BYTES_MIN, 8 * len(data)))
    while True:
        out = bytearray(room)
        try:
            size = decompress_into(data, out)
        except cramjam.DecompressionError as error:
            if "write whole buffer" not in str(error):
                raise
        else:
            del out[size:]
            return bytes(out)
        if room >= max_bytes:
            raise _too_large(codec, max_bytes)
        room = min(max_bytes, 8 * room)


_COMPRESS: dict[Compression, Callable[[Buffer], bytes]] = {
    Compression.NONE: bytes,
    Compression.GZIP: _compress_gzip,
    Compression.SNAPPY: _compress_snappy,
    Compression.LZ4: _compress_lz4,
    Compression.ZSTD: _compress_zstd,
}

_DECOMPRESS: dict[Compression, Callable[[Buffer, int], bytes]] = {
    Compression.NONE: _decompress_none,
    Compression.GZIP: _decompress_gzip,
    Compression.SNAPPY: _decompress_snappy,
    Compression.LZ4: _decompress_lz4,
    Compression.ZSTD: _decompress_zstd,
}
