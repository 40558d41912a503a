"""Transactions that were aborted: what a reader of committed data must skip, and the markers that end transactions.

A segment knows the transactions whose abort marker it holds, in the order of the markers. While it grows they are in
memory; the file `<base>.aborted` is written before the index whose footer counts and checks them:

    | producer id i64 | first offset i64 | last offset i64 | last stable offset then i64 |     little-endian, 32 bytes

The last offset is the marker's. What the footer does not vouch for is learnt from the log again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from crc32c import crc32c

from penstock.protocol.errors import CorruptBatch
from penstock.protocol.record_batch import Record, build_batch, read_records

ENTRY = struct.Struct("<qqqq")
MARKER_BYTES_MAX = 1024

_KEY = struct.Struct(">hh")  # version, type
_VALUE = struct.Struct(">hi")  # version, coordinator epoch
_ABORT, _COMMIT = 0, 1
_KEY_VERSION = _VALUE_VERSION = 0


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Marker(NamedTuple):
    committed: bool
    coordinator_epoch: int


def dump(transactions: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(ENTRY.pack(*each) for each in transactions)


def load(data: bytes | None, count: int, checksum: int) -> list[AbortedTransaction] | None:
    """The first `count` of them; None if they are not what was counted."""
    body = memoryview(data or b"")[: count * ENTRY.size]
    if len(body) != count * ENTRY.size or crc32c(body) != checksum:
        return None
    return [AbortedTransaction(*fields) for fields in ENTRY.iter_unpack(body)]


def build_marker(producer_id: int, producer_epoch: int, marker: Marker, now_ms: int) -> bytearray:
    """A control batch of one record, to be stamped as any other batch."""
    record = Record(
        0, now_ms, _KEY.pack(_KEY_VERSION, _COMMIT if marker.committed else _ABORT),
        _VALUE.pack(_VALUE_VERSION, marker.coordinator_epoch),
    )  # fmt: skip
    return bytearray(
        build_batch([record], producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True)
    )


def read_marker(batch: bytes | memoryview) -> Marker | None:
    """None for a control batch that ends no transaction, or has lost its record."""
    try:
        for record in read_records(batch, MARKER_BYTES_MAX, compacted=True):
            version, kind = _KEY.unpack_from(record.key or b"")
            if version < 0 or kind not in (_ABORT, _COMMIT):
                return None
            _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
            return Marker(kind == _COMMIT, coordinator_epoch)
    except (CorruptBatch, struct.error):
        pass
    return None
