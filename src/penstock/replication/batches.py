"""What a leader looks at in a producer's batch, and what it writes into it."""

from __future__ import annotations

from struct import Struct
from typing import Final

from crc32c import crc32c

from penstock.protocol.errors import ApiError, ErrorCode

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
CODEC_LAST: Final = 4  # zstd
ATTRIBUTES_OF_CLIENTS: Final = 0x1F
RECORD_SIZE_MIN: Final = 7  # with neither key nor value nor headers
# Compressed. Each has an offset delta of its own, so that the best codecs do not get the emptiest records below a third
# of a byte. A header that could claim any count would use up a segment's offsets, 2**31, with a few bytes.
RECORDS_PER_BYTE_MAX: Final = 64

_int64 = Struct(">q").pack_into
_read_int64 = Struct(">q").unpack_from


def stamp_append_time(batch: memoryview, attributes: int, now_ms: int) -> None:
    """LogAppendTime: the broker's clock as the largest timestamp, which changes the checksum."""
    _int64(batch, 35, now_ms)
    batch[21:23] = (attributes | LOG_APPEND_TIME).to_bytes(2, "big")
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")


def stamp_max_timestamp(batch: memoryview, newest_delta: int) -> int:
    """Some clients leave it out, and searches by time go by it, and retention. Kafka finds it anew for everyone, which
    would be dear here: so only for these. Where records were not walked, compressed ones for one, the first one speaks
    for all: then `newest_delta` is 0."""
    (base,) = _read_int64(batch, 27)
    found: int = base
    if base < 0:
        return found
    found += newest_delta
    if not 0 <= found < 2**63:
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, f"a record is dated {newest_delta} ms from {base}")
    _int64(batch, 35, found)
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    return found


def check_attributes(attributes: int, producer_id: int, may_be_transactional: bool) -> None:
    if attributes & TRANSACTIONAL:
        if producer_id < 0:
            raise ApiError(ErrorCode.INVALID_RECORD, "a transactional batch must have a producer id")
        if not may_be_transactional:
            problem = "a transactional batch came without a transactional id"
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, problem)
    if attributes & COMPRESSION_MASK > CODEC_LAST:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression {attributes & COMPRESSION_MASK}")


def refuse(size: int, length: int, magic: int, attributes: int, last_delta: int, count: int) -> None:
    if magic != 2:
        raise ApiError(ErrorCode.INVALID_RECORD, f"record batches must have magic 2, not {magic}")
    if length != size - 12:
        raise ApiError(ErrorCode.INVALID_RECORD, "a partition's records must be exactly one batch")
    if attributes & CONTROL:
        raise ApiError(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if count <= 0 or last_delta != count - 1:
        raise ApiError(ErrorCode.INVALID_RECORD, f"{count} records do not end at offset delta {last_delta}")
    raise ApiError(ErrorCode.INVALID_RECORD, f"unknown batch attributes {attributes:#06x}")


def refuse_count(size: int, count: int) -> None:
    raise ApiError(ErrorCode.INVALID_RECORD, f"{count} records are more than a batch of {size} bytes can hold")
